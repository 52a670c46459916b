//! "Did you mean": the nearest known name.

/// Levenshtein distance, counting a swap of neighbours as two edits.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != *y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}

/// The candidate closest to `name`, if it is close enough to be a slip of the fingers:
/// at most a third of the name's length (at least one edit) away. Ties: first in order.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|c| (distance(name, c), c))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// `; did you mean \`x\`?`, or a list of what exists when nothing is near and the list is short.
pub fn hint<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = candidates.into_iter().collect();
    match nearest(name, all.iter().copied()) {
        Some(c) => format!("; did you mean `{c}`?"),
        None if !all.is_empty() && all.len() <= 16 => format!("; known here: {}", all.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_but_not_strangers() {
        assert_eq!(nearest("qa", ["q_a", "kv_a", "h"]), Some("q_a"));
        assert_eq!(nearest("Linera", ["Linear", "LayerNorm"]), Some("Linear"));
        assert_eq!(nearest("completely_else", ["Linear", "q_a"]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
