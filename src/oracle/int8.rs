//! Products with int8 activations, written from the definition in `docs/formats.md`: nothing here is shared with the
//! kernels of `cpu`.

use crate::formats::{Format, Integers, Matrix};

/// Widest row with a single scale that takes int8 inputs.
const WIDEST: usize = 131_072;

/// A row of integer codes, ready to meet inputs that become int8.
pub struct Codes {
    row: Integers,
    /// Columns whose inputs have a scale in common; the whole row where it has one scale.
    share: usize,
    one_scale: bool,
}

impl Codes {
    /// `None` where inputs stay f32.
    pub fn read(w: &Matrix, r: usize) -> Option<Codes> {
        let (share, one_scale) = match w.format() {
            Format::Int8Row | Format::Int4Row | Format::Int2Row if w.cols() <= WIDEST => (w.cols().max(1), true),
            Format::Int4Grouped { group } if group > 0 => {
                ([64, 32, 16].into_iter().find(|n| (group as usize).is_multiple_of(*n))?, false)
            }
            Format::Int3G64 => (64, false),
            Format::Mxfp4 | Format::E8 => (32, false),
            _ => return None,
        };
        Some(Codes { row: w.integers(r)?, share, one_scale })
    }

    /// The inner product, each operation rounded to f32. NaN if an input is not finite.
    pub fn dot(&self, x: &[f32]) -> f32 {
        let parts = x.chunks(self.share).zip(self.row.codes.chunks(self.share)).zip(self.row.scales.chunks(self.share));
        let mut y = 0.0f32;
        for ((x, codes), scales) in parts {
            let (q, s) = quantised(x);
            let sum: i64 = q.iter().zip(codes).map(|(q, n)| q * i64::from(*n)).sum();
            if self.one_scale {
                return (sum as f32 * scales[0]) * s;
            }
            y += sum as f32 * (scales[0] * s);
        }
        y
    }
}

/// Inputs as integers, and the scale that makes them values again.
fn quantised(x: &[f32]) -> (Vec<i64>, f32) {
    if x.iter().any(|x| !x.is_finite()) {
        return (vec![0; x.len()], f32::NAN);
    }
    let largest = x.iter().map(|x| x.abs()).fold(0.0, f32::max);
    let scale = (largest / 127.0).max(1e-12);
    let inverse = 1.0 / scale;
    (x.iter().map(|x| (x * inverse).round_ties_even() as i64).collect(), scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::matmul::{Sum, linear};
    use crate::formats::View;
    use crate::formats::layout::{Tiled, tile};
    use crate::formats::tests::{Random, coded, random_codes};

    /// Values in -1..1.
    fn noise(random: &mut Random, n: usize) -> Vec<f32> {
        (0..n).map(|_| (random.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
    }

    fn int4(cols: usize, group: u32, data: &[u8], scales: &[f32], x: &[f32]) -> Option<f32> {
        let scales: Vec<u8> = scales.iter().flat_map(|s| s.to_le_bytes()).collect();
        let view = View::new(Format::Int4Grouped { group }, 1, cols, data, &scales).unwrap();
        Codes::read(&view.into(), 0).map(|c| c.dot(x))
    }

    #[test]
    fn by_hand() {
        // One scale: codes 3 and -2, inputs 127 (code 127, scale 1) and 0.5 (a tie, to 0).
        let view = View::new(Format::Int8Row, 1, 2, &[3, 0xfe], &[0, 0, 0, 0x3f]).unwrap();
        let codes = Codes::read(&view.into(), 0).unwrap();
        assert_eq!(codes.dot(&[127.0, 0.5]), 3.0 * 127.0 * 0.5);
        assert_eq!(codes.dot(&[127.0, 1.5]), (3.0 * 127.0 - 2.0 * 2.0) * 0.5);
        // Groups of 16: an input of 1000 in one group takes nothing from the other.
        let mut x = [0.0; 18];
        (x[0], x[16], x[17]) = (1000.0, 127.0, 1.0);
        let mut data = [0x88; 9];
        (data[0], data[8]) = (0x89, 0xa9);
        assert_eq!(int4(18, 16, &data, &[2.0, 0.5], &x), Some(127.0 * (2.0 * (1000.0 / 127.0)) + 129.0 * 0.5));
    }

    #[test]
    fn zeros_and_what_is_no_number() {
        let (data, scales) = ([0x9a; 16], [1.0]);
        assert_eq!(int4(32, 32, &data, &scales, &[0.0; 32]), Some(0.0));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 32];
            x[7] = bad;
            assert!(int4(32, 32, &data, &scales, &x).unwrap().is_nan());
        }
        // Groups of other sizes keep f32 inputs.
        assert_eq!(int4(24, 24, &data[..12], &scales, &[1.0; 24]), None);
    }

    /// Inputs of one row: of many sizes, nothing, one that leaves no room for the others, next to nothing, and what
    /// has no result.
    fn inputs(cols: usize, random: &mut Random) -> Vec<Vec<f32>> {
        let plain = noise(random, cols);
        let with = |value: f32| {
            let mut x = plain.clone();
            x[cols / 2] = value;
            x
        };
        let small = plain.iter().map(|x| x * 1e-13).collect();
        vec![plain.clone(), vec![0.0; cols], with(1e30), small, with(f32::NAN), with(f32::NEG_INFINITY)]
    }

    /// The kernels make the bits of this definition: every format in both orders, shapes with ragged groups and tiles.
    #[test]
    fn the_kernels_agree_in_bits() {
        let mut random = Random(11);
        for format in coded() {
            for (rows, cols) in [(1, 1), (5, 3), (1, 31), (17, 64), (33, 65), (3, 200), (40, 513)] {
                let bytes = random_codes(format, rows, cols, &mut random);
                let view = View::new(format, rows, cols, &bytes.data, &bytes.scales).unwrap();
                let tiles = tile(&view).unwrap();
                let tiles = Tiled::new(format, rows, cols, &tiles).unwrap();
                let inputs = inputs(cols, &mut random);
                let x: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
                let mut got = [vec![0.0; x.len() * rows], vec![0.0; x.len() * rows]];
                linear(x.clone(), view, None, Sum::Int8, &mut got[0]);
                linear(x.clone(), tiles, None, Sum::Int8, &mut got[1]);
                for row in 0..rows {
                    let codes = Codes::read(&tiles.into(), row).unwrap();
                    for (i, x) in x.iter().enumerate() {
                        let want = codes.dot(x);
                        for got in &got {
                            let got = got[i * rows + row];
                            let same = got == want || got.is_nan() && want.is_nan();
                            assert!(same, "{format} {rows}x{cols}, input {i}: {got} for {want}");
                        }
                    }
                }
            }
        }
    }

    /// Wider than an integer sum of a whole row may be: such rows keep f32 inputs, groups do not mind.
    #[test]
    fn very_wide_rows() {
        let mut random = Random(3);
        for format in [Format::Int8Row, Format::Int4Grouped { group: 64 }] {
            for cols in [WIDEST, WIDEST + 64] {
                let bytes = random_codes(format, 1, cols, &mut random);
                let view = View::new(format, 1, cols, &bytes.data, &bytes.scales).unwrap();
                let x = noise(&mut random, cols);
                let run = |sum| {
                    let mut y = [0.0];
                    linear(vec![&x], view, None, sum, &mut y);
                    y[0]
                };
                let want = Codes::read(&view.into(), 0).map(|c| c.dot(&x));
                assert_eq!(want.is_none(), format == Format::Int8Row && cols > WIDEST, "{format} {cols}");
                assert_eq!(run(Sum::Int8), want.unwrap_or_else(|| run(Sum::F32)), "{format} {cols}");
            }
        }
    }
}
