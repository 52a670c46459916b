//! How each format's codes become unsigned bytes: which columns end up where, and what is added to them.

use crate::formats::{BlockScale, Format};

/// Columns that a kernel takes at once.
pub(super) const UNIT: usize = 64;

/// The columns of a unit in the order in which unpacked bytes meet inputs: byte `k` of step `s` is column
/// `order[4 s + k]`.
pub(super) type Order = [u8; UNIT];

/// Codes of `fields` columns in each byte, so that the same field of four bytes is a step.
const fn strided(fields: usize) -> Order {
    let mut order = [0; UNIT];
    let mut at = 0;
    while at < UNIT {
        let (word, field, byte) = (at / (4 * fields), at / 4 % fields, at % 4);
        order[at] = (word * 4 * fields + byte * fields + field) as u8;
        at += 1;
    }
    order
}

/// Steps of 32 columns: place `j` of the entries that the indices 0, 4, 2, 6 choose, then of 1, 5, 3, 7.
const fn lattice() -> Order {
    const INDEX: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];
    let mut order = [0; UNIT];
    let mut at = 0;
    while at < UNIT {
        let (half, h, j, byte) = (at / 32, at / 16 % 2, at / 4 % 4, at % 4);
        order[at] = (half * 32 + INDEX[4 * h + byte] * 4 + j) as u8;
        at += 1;
    }
    order
}

pub(super) static WORDS: Order = strided(1);
pub(super) static NIBBLES: Order = strided(2);
pub(super) static PAIRS: Order = strided(4);
pub(super) static E8: Order = lattice();

/// What a format's integers look like to the kernels. Two formats with equal codings share prepared inputs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Coding {
    /// The unpacked byte is the weight's integer plus this.
    pub offset: u8,
    /// Columns that share a scale: 64, 32 or 16.
    pub group: usize,
    /// Whether one scale holds for the whole row.
    pub row_scale: bool,
    pub order: Fields,
}

/// Name of an [`Order`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Fields {
    Words,
    Nibbles,
    Pairs,
    E8,
}

impl Fields {
    pub fn order(self) -> &'static Order {
        match self {
            Fields::Words => &WORDS,
            Fields::Nibbles => &NIBBLES,
            Fields::Pairs => &PAIRS,
            Fields::E8 => &E8,
        }
    }
}

/// The coding of a format with integer codes; `None` where there is none or no kernel reads it (groups that are
/// not a multiple of 16).
pub(super) fn coding(format: Format) -> Option<Coding> {
    let (offset, group, row_scale, order) = match format {
        Format::Int8Row => (128, 64, true, Fields::Words),
        Format::Int4Row => (8, 64, true, Fields::Nibbles),
        Format::Int2Row => (2, 64, true, Fields::Pairs),
        Format::Int4Grouped { group } if group > 0 && group.is_multiple_of(64) => (8, 64, false, Fields::Nibbles),
        Format::Int4Grouped { group } if group > 0 && group.is_multiple_of(32) => (8, 32, false, Fields::Nibbles),
        Format::Int4Grouped { group } if group > 0 && group.is_multiple_of(16) => (8, 16, false, Fields::Nibbles),
        Format::Int3G64 => (4, 64, false, Fields::Pairs),
        // Twice the value, -12 to 12.
        Format::Mxfp4 => (12, 32, false, Fields::Nibbles),
        Format::E8 => (64, 32, false, Fields::E8),
        _ => return None,
    };
    Some(Coding { offset, group, row_scale, order })
}

/// Whether a format's values are multiplied as f32.
pub(super) fn is_float(format: Format) -> bool {
    let scales = [BlockScale::F32, BlockScale::Ue8m0].map(|scale| Format::Fp8Block { scale });
    matches!(format, Format::F32 | Format::F16 | Format::Bf16) || scales.contains(&format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations() {
        for fields in [Fields::Words, Fields::Nibbles, Fields::Pairs, Fields::E8] {
            let mut seen = *fields.order();
            seen.sort_unstable();
            assert!(seen.iter().enumerate().all(|(i, c)| i == usize::from(*c)), "{fields:?}");
        }
        assert_eq!(NIBBLES[..8], [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(PAIRS[..8], [0, 4, 8, 12, 1, 5, 9, 13]);
    }
}
