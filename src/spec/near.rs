//! "Did you mean": the nearest known name.

use crate::names::near;

/// The candidate closest to `name`, if it is close enough to be a slip of the fingers:
/// at most a third of the name's length (at least one edit) away. Ties: first in order.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    near::nearest(&[name], 1, candidates.into_iter())
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
    }
}
