//! Lifetime aliasing: values that are never alive together share bytes.
//!
//! Every value is an interval of levels (nodes of one level are independent and may run at once, so a value
//! is alive from its producer's level to its last reader's, both included). Largest first, each value takes
//! the lowest offset that is free in all of its levels. Simulated only: the result is offsets and a size.

/// Alignment of every value, the largest that devices ask for (minStorageBufferOffsetAlignment).
pub const ALIGN: u64 = 256;

/// A value's life and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pub first: u32,
    pub last: u32,
    pub bytes: u64,
}

/// Where each value lies, in input order, and how large the arena is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arena {
    pub offsets: Vec<u64>,
    pub bytes: u64,
}

pub fn place(lives: &[Life]) -> Arena {
    let size = |l: &Life| l.bytes.next_multiple_of(ALIGN);
    let mut order: Vec<usize> = (0..lives.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(lives[*i].bytes), lives[*i].first, *i));
    let mut offsets = vec![0; lives.len()];
    let mut placed: Vec<usize> = vec![];
    let mut bytes = 0;
    for i in order {
        let l = lives[i];
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|p| lives[**p].first <= l.last && l.first <= lives[**p].last)
            .map(|p| (offsets[*p], offsets[*p] + size(&lives[*p])))
            .collect();
        taken.sort_unstable();
        let mut at = 0;
        for (start, end) in taken {
            if at + size(&l) <= start {
                break;
            }
            at = at.max(end);
        }
        offsets[i] = at;
        bytes = bytes.max(at + size(&l));
        placed.push(i);
    }
    Arena { offsets, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_alive_together_never_overlap(lives in prop::collection::vec((0u32..20, 0u32..8, 1u64..5000), 1..40)) {
            let lives: Vec<Life> =
                lives.into_iter().map(|(first, n, bytes)| Life { first, last: first + n, bytes }).collect();
            let arena = place(&lives);
            for i in 0..lives.len() {
                prop_assert_eq!(arena.offsets[i] % ALIGN, 0);
                prop_assert!(arena.offsets[i] + lives[i].bytes <= arena.bytes);
                for j in 0..i {
                    let together = lives[i].first <= lives[j].last && lives[j].first <= lives[i].last;
                    let (a, b) = (arena.offsets[i], arena.offsets[j]);
                    prop_assert!(!together || a + lives[i].bytes <= b || b + lives[j].bytes <= a);
                }
            }
        }
    }

    #[test]
    fn a_chain_needs_two_values() {
        let lives: Vec<Life> = (0..10).map(|i| Life { first: i, last: i + 1, bytes: 256 }).collect();
        assert_eq!(place(&lives).bytes, 512);
    }
}
