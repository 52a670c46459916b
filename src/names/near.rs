//! The closest existing name to one that was not found.

/// The name at the smallest edit distance from any of `wanted`, if that distance is at most a third
/// of the wanted name's length, or `slack` if that is more. Ties go to the name that comes first.
///
/// Distances are bounded by the best one so far, and most names are dropped on their length or
/// their letters alone, so a hundred thousand names take about a tenth of a second at worst.
pub fn nearest<'a>(wanted: &[&str], slack: usize, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<Letters> = wanted.iter().map(|want| Letters::of(want.as_bytes())).collect();
    let mut limits: Vec<usize> = wanted.iter().map(|want| (want.len() / 3).max(slack)).collect();
    let mut found = None;
    let mut rows = Rows::default();
    for name in names {
        let name_letters = Letters::of(name.as_bytes());
        for index in 0..wanted.len() {
            let (want, limit) = (wanted[index].as_bytes(), limits[index]);
            if letters[index].distance(&name_letters) > limit {
                continue;
            }
            if let Some(distance) = rows.distance(want, name.as_bytes(), limit) {
                if distance == 0 {
                    return Some(name);
                }
                found = Some(name);
                // Only strictly closer names replace this one, whichever spelling they resemble.
                for limit in &mut limits {
                    *limit = (*limit).min(distance - 1);
                }
            }
        }
    }
    found
}

/// How often each byte (of 32 classes) occurs in a name.
struct Letters([u16; 32]);

impl Letters {
    fn of(name: &[u8]) -> Letters {
        let mut counts = [0u16; 32];
        for byte in name {
            let count = &mut counts[usize::from(byte % 32)];
            *count = count.saturating_add(1);
        }
        Letters(counts)
    }

    /// A lower bound of the edit distance: one edit removes at most one surplus letter and at most
    /// one missing letter.
    fn distance(&self, other: &Letters) -> usize {
        let (mut surplus, mut missing) = (0, 0);
        for (a, b) in self.0.iter().zip(&other.0) {
            surplus += usize::from(a.saturating_sub(*b));
            missing += usize::from(b.saturating_sub(*a));
        }
        surplus.max(missing)
    }
}

/// Working memory of the distance table, kept between names.
#[derive(Default)]
struct Rows {
    previous: Vec<usize>,
    current: Vec<usize>,
}

impl Rows {
    /// Levenshtein distance of two byte strings if it is at most `limit`.
    fn distance(&mut self, a: &[u8], b: &[u8], limit: usize) -> Option<usize> {
        if a.len().abs_diff(b.len()) > limit {
            return None;
        }
        let (a, b) = trim(a, b);
        if a.is_empty() || b.is_empty() {
            return Some(a.len().max(b.len())).filter(|distance| *distance <= limit);
        }
        self.banded(a, b, limit)
    }

    /// Fills only the cells within `limit` of the diagonal: no path outside can be short enough.
    fn banded(&mut self, a: &[u8], b: &[u8], limit: usize) -> Option<usize> {
        let beyond = limit + 1;
        let width = b.len() + 1;
        self.previous.clear();
        self.previous.extend((0..width).map(|j| j.min(beyond)));
        self.current.clear();
        self.current.resize(width, beyond);
        for (i, &left) in a.iter().enumerate() {
            let low = (i + 1).saturating_sub(limit).max(1);
            let high = (i + 1).saturating_add(limit).min(b.len());
            self.current[low - 1] = if low == 1 { (i + 1).min(beyond) } else { beyond };
            let mut best = self.current[low - 1];
            for j in low..=high {
                let replaced = self.previous[j - 1] + usize::from(left != b[j - 1]);
                let edited = self.previous[j].min(self.current[j - 1]) + 1;
                self.current[j] = replaced.min(edited).min(beyond);
                best = best.min(self.current[j]);
            }
            if high < b.len() {
                // The next row looks one cell further to the right.
                self.current[high + 1] = beyond;
            }
            if best > limit {
                return None;
            }
            std::mem::swap(&mut self.previous, &mut self.current);
        }
        Some(self.previous[b.len()]).filter(|distance| *distance <= limit)
    }
}

/// Both strings without their common beginning and end, which never change the distance.
fn trim<'s>(a: &'s [u8], b: &'s [u8]) -> (&'s [u8], &'s [u8]) {
    let start = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    (&a[..a.len() - end], &b[..b.len() - end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(a: &[u8], b: &[u8]) -> usize {
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.iter().enumerate() {
            let mut diagonal = row[0];
            row[0] = i + 1;
            for (j, y) in b.iter().enumerate() {
                let next = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
                diagonal = std::mem::replace(&mut row[j + 1], next);
            }
        }
        row[b.len()]
    }

    proptest! {
        #[test]
        fn bounded_distance_agrees_with_the_full_table(a in "[ab.]{0,12}", b in "[ab.]{0,12}", limit in 0usize..14) {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            let want = Some(plain(a, b)).filter(|distance| *distance <= limit);
            prop_assert_eq!(Rows::default().distance(a, b, limit), want);
            prop_assert!(Letters::of(a).distance(&Letters::of(b)) <= plain(a, b));
        }
    }

    #[test]
    fn a_known_distance() {
        assert_eq!(Rows::default().distance(b"kitten", b"sitting", 7), Some(3));
    }

    #[test]
    fn suggests_only_close_names() {
        let names = ["model.layers.0.self_attn.q_proj.weight", "model.norm.weight", "zz"];
        let near = |want: &str| nearest(&[want], 0, names.into_iter());
        assert_eq!(near("model.layers.0.attn.q_proj.weight"), Some(names[0]));
        assert_eq!(near("modle.norm.weight"), Some(names[1]));
        assert_eq!(near("completely.different"), None);
        assert_eq!(near("z"), None);
    }

    #[test]
    fn the_closest_spelling_counts() {
        let wanted = ["x.long.bias.weight", "x.long.bias"];
        let names = ["x.long.norm.weight", "x.long.bia"];
        assert_eq!(nearest(&wanted, 0, names.into_iter()), Some("x.long.bia"));
    }
}
