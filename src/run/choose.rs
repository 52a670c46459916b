//! The highest of some logits, on the host.

/// The id of the highest logit of each row of `vocab`, among the ids below `among` (1 to `vocab`); the lowest id among equal
/// ones. All logits are finite: sessions refuse others first.
pub fn highest(logits: &[f32], vocab: usize, among: u32) -> Vec<u32> {
    let first_highest = |row: &[f32]| {
        let mut best = 0;
        for (id, logit) in row.iter().enumerate().take(among as usize) {
            if *logit > row[best] {
                best = id;
            }
        }
        best as u32
    };
    logits.chunks(vocab).map(first_highest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equals_among_those_allowed() {
        let rows = [1.0, 3.0, 3.0, 9.0, -0.0, 0.0, -1.0, 0.0, -4.0, -5.0, -3.0, f32::MAX];
        assert_eq!(highest(&rows, 4, 4), [3, 0, 3]);
        assert_eq!(highest(&rows, 4, 3), [1, 0, 2]);
        assert_eq!(highest(&rows, 4, 1), [0, 0, 0]);
        assert!(highest(&[], 4, 4).is_empty());
        for row in rows.chunks(4) {
            assert_eq!(highest(row, 4, 4), [crate::text::argmax(row).unwrap()]);
        }
    }
}
