//! Rows of integer-coded weights as what integer products are made of.

use super::format::{INT3_GROUP, MXFP4_GROUP};
use super::int::f32_at;
use super::view::slice;
use super::{Format, View, e8};

/// A row whose column `c` is worth `codes[c] * scales[c]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Integers {
    /// Between -128 and 127. Of mxfp4 twice the e2m1 value, of E8 the signed number of the codebook.
    pub codes: Vec<i32>,
    /// One for each column, equal within a group.
    pub scales: Vec<f32>,
}

/// An f32 scale of one.
const ONE: [u8; 4] = 1f32.to_le_bytes();
/// The exponent byte of two: twice an e2m1 value is an integer.
const TWO: [u8; 1] = [128];

impl View<'_> {
    /// The integers of a row; `None` where the format has none. Each product of a code and its scale has the bits of
    /// [`View::decode_row`], but for the sign of zeros. Allocates.
    ///
    /// # Panics
    /// As [`View::decode_row`].
    pub fn integers(&self, row: usize) -> Option<Integers> {
        let (group, unit): (usize, &[u8]) = match self.format {
            Format::Int8Row | Format::Int4Row | Format::Int2Row => (self.cols.max(1), &ONE),
            Format::Int4Grouped { group } => ((group as usize).max(1), &ONE),
            Format::Int3G64 => (INT3_GROUP, &ONE),
            Format::Mxfp4 => (MXFP4_GROUP, &TWO),
            Format::E8 => (e8::SUB, &[]),
            _ => return None,
        };
        let mut data = self.data_row(row).to_vec();
        let count = self.cols.div_ceil(group);
        let stored = slice(self.scales, row, count * unit.len());
        let scales: Vec<f32> = match self.format {
            Format::E8 => e8::strip_scales(&mut data),
            Format::Mxfp4 => stored.iter().map(|e| f32::from_bits(u32::from(*e) << 23) * 0.5).collect(),
            _ => (0..count).map(|g| f32_at(stored, g)).collect(),
        };
        let units = unit.repeat(count);
        let mut values = vec![0.0; self.cols];
        View { format: self.format, rows: 1, cols: self.cols, data: &data, scales: &units }.decode_row(0, &mut values);
        let scales = (0..self.cols).map(|c| scales[c / group]).collect();
        Some(Integers { codes: values.into_iter().map(|v| v as i32).collect(), scales })
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::tests::{Random, coded, random_codes};
    use crate::formats::{Format, View};

    #[test]
    fn codes_and_scales_are_the_values() {
        let mut random = Random(5);
        let odd = [1, 3, 7].map(|group| Format::Int4Grouped { group });
        for format in coded().into_iter().chain(odd) {
            for cols in [1, 2, 31, 64, 65, 200, 256, 300] {
                let bytes = random_codes(format, 3, cols, &mut random);
                let view = View::new(format, 3, cols, &bytes.data, &bytes.scales).unwrap();
                let mut want = vec![0.0; cols];
                for row in 0..3 {
                    view.decode_row(row, &mut want);
                    let got = view.integers(row).unwrap();
                    let products: Vec<f32> = got.codes.iter().zip(&got.scales).map(|(n, s)| *n as f32 * s).collect();
                    assert_eq!(products, want, "{format} {cols}");
                    assert!(got.codes.iter().all(|n| (-128..128).contains(n)), "{format}");
                }
            }
        }
    }

    #[test]
    fn floats_have_no_integers() {
        let view = View::new(Format::Bf16, 1, 2, &[0; 4], &[]).unwrap();
        assert_eq!(view.integers(0), None);
    }
}
