//! FP8 rows: e4m3 elements with one scale per 128x128 block.
//!
//! DeepSeek V4 stores its dense matrices this way with one-byte scales, GLM-5.2-FP8 with f32
//! scales. Source: formats.md section 7.2.

use super::BlockScale;
use super::format::FP8_BLOCK;
use super::int::amax;

/// Value of every e4m3 byte ("fn" variant: no infinities, NaN only at 0x7F and 0xFF).
static E4M3: [f32; 256] = table();

const fn table() -> [f32; 256] {
    let mut table = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = e4m3(byte as u32);
        byte += 1;
    }
    table
}

const fn e4m3(byte: u32) -> f32 {
    let (exponent, mantissa) = ((byte >> 3) & 15, byte & 7);
    let magnitude = match (exponent, mantissa) {
        (15, 7) => f32::NAN,
        // Subnormals count in steps of 2^-9.
        (0, _) => mantissa as f32 / 512.0,
        // Rebias the exponent from 7 to 127, widen the mantissa from 3 to 23 bits.
        _ => f32::from_bits(((exponent + 120) << 23) | (mantissa << 20)),
    };
    if byte & 0x80 != 0 { -magnitude } else { magnitude }
}

/// Decodes one row. `scales` are the scales of the row's line of blocks, one per 128 columns.
pub(super) fn row(data: &[u8], scales: &[u8], kind: BlockScale, out: &mut [f32]) {
    let blocks = out.chunks_mut(FP8_BLOCK).zip(data.chunks(FP8_BLOCK));
    for ((values, bytes), scale) in blocks.zip(scales.chunks_exact(kind.width())) {
        let scale = match *scale {
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            [exponent, ..] => ue8m0(exponent),
            [] => f32::NAN,
        };
        for (value, &byte) in values.iter_mut().zip(bytes) {
            *value = E4M3[usize::from(byte)] * scale;
        }
    }
}

/// `2^(e-127)`: unlike the MXFP4 rule, 0 is the subnormal `2^-127` and 255 is NaN.
fn ue8m0(exponent: u8) -> f32 {
    match exponent {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        e => f32::from_bits(u32::from(e) << 23),
    }
}

/// Encodes up to 128 rows of `cols` values: one line of blocks.
///
/// With f32 scales a block's scale is `max |w| / 448`, or 1 for a block of nothing above 1e-35. With UE8M0 scales it
/// is the smallest power of two that keeps everything within 448, and its byte is 1..=254. Codes are the nearest,
/// ties to even, of `w / scale` by a true division.
pub(super) fn encode_rows(values: &[f32], cols: usize, kind: BlockScale, data: &mut Vec<u8>, scales: &mut Vec<u8>) {
    let rows = || values.chunks_exact(cols.max(1));
    let line: Vec<f32> = (0..cols)
        .step_by(FP8_BLOCK)
        .map(|at| {
            let part = |row: &[f32]| amax(&row[at..cols.min(at + FP8_BLOCK)]);
            scale_of(rows().map(part).fold(0.0, f32::max), kind, scales)
        })
        .collect();
    for row in rows() {
        for (values, scale) in row.chunks(FP8_BLOCK).zip(&line) {
            data.extend(values.iter().map(|v| to_e4m3(v / scale)));
        }
    }
}

/// The scale of a block, and its bytes behind `scales`.
fn scale_of(amax: f32, kind: BlockScale, scales: &mut Vec<u8>) -> f32 {
    match kind {
        BlockScale::F32 => {
            // Far enough from subnormal scales, which would have few bits.
            let scale = if amax > 1e-35 { amax / MOST } else { 1.0 };
            scales.extend(scale.to_le_bytes());
            scale
        }
        BlockScale::Ue8m0 => {
            // 448 = 1.75 * 2^8: with more than 1.75 in front of the power of two, one more is needed.
            let (field, fraction) = ((amax.to_bits() >> 23) as i32, amax.to_bits() & 0x7F_FFFF);
            let byte = match amax {
                0.0 => 127,
                _ => (field - 8 + i32::from(fraction > 0x60_0000)).clamp(1, 254) as u8,
            };
            scales.push(byte);
            ue8m0(byte)
        }
    }
}

/// Largest e4m3 value.
const MOST: f32 = 448.0;

/// The nearest e4m3 byte, ties to even, with 448 for everything beyond; never a NaN for a number.
pub(super) fn to_e4m3(v: f32) -> u8 {
    let magnitude = v.abs();
    let byte = if magnitude < 1.0 / 64.0 {
        // Subnormals; 8 of their steps are the smallest normal number, and its byte.
        (magnitude * 512.0).round_ties_even() as u32
    } else {
        // Rounds 23 bits of mantissa to 3; a carry moves on into the exponent, whose bias falls from 127 to 7.
        let bits = magnitude.min(MOST).to_bits();
        ((bits + 0x7_FFFF + (bits >> 20 & 1)) >> 20) - (120 << 3)
    };
    byte as u8 | u8::from(v.is_sign_negative()) << 7
}

#[cfg(test)]
mod tests {
    use super::{BlockScale, E4M3, encode_rows, to_e4m3, ue8m0};
    use crate::formats::{Format, View};

    #[test]
    fn e4m3_landmarks() {
        assert_eq!(E4M3[0x00], 0.0);
        assert!(E4M3[0x80] == 0.0 && E4M3[0x80].is_sign_negative());
        assert_eq!(E4M3[0x01], 2f32.powi(-9));
        assert_eq!(E4M3[0x07], 7.0 * 2f32.powi(-9));
        assert_eq!(E4M3[0x08], 2f32.powi(-6));
        assert_eq!(E4M3[0x38], 1.0);
        assert_eq!(E4M3[0x3C], 1.5);
        assert_eq!(E4M3[0x7E], 448.0);
        assert_eq!(E4M3[0xFE], -448.0);
        assert!(E4M3[0x7F].is_nan() && E4M3[0xFF].is_nan());
        assert_eq!(E4M3.iter().filter(|v| !v.is_finite()).count(), 2);
    }

    #[test]
    fn ue8m0_corners() {
        assert_eq!(ue8m0(0), 2f32.powi(-127));
        assert_eq!(ue8m0(1), 2f32.powi(-126));
        assert_eq!(ue8m0(127), 1.0);
        assert_eq!(ue8m0(254), 2f32.powi(127));
        assert!(ue8m0(255).is_nan());
    }

    #[test]
    fn blocks_are_128_square_with_partial_edges() {
        // 130x129 ones: a 2x2 grid of scales, the second of each only partly filled.
        let data = vec![0x38; 130 * 129];
        let scales: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let format = Format::Fp8Block { scale: BlockScale::F32 };
        let view = View::new(format, 130, 129, &data, &scales).unwrap();
        let mut out = vec![0.0; 129];
        for (row, low, high) in [(0, 1.0, 2.0), (127, 1.0, 2.0), (128, 3.0, 4.0), (129, 3.0, 4.0)] {
            view.decode_row(row, &mut out);
            assert!(out[..128].iter().all(|&v| v == low) && out[128] == high, "row {row}");
        }
    }

    #[test]
    fn byte_scales_multiply_too() {
        let format = Format::Fp8Block { scale: BlockScale::Ue8m0 };
        let view = View::new(format, 1, 3, &[0x38, 0xB8, 0x7F], &[130]).unwrap();
        let mut out = [0.0; 3];
        view.decode_row(0, &mut out);
        assert_eq!(out[..2], [8.0, -8.0]);
        assert!(out[2].is_nan());
    }

    #[test]
    fn every_byte_comes_back_and_ties_go_to_even() {
        for byte in (0..=255u8).filter(|b| b & 0x7F != 0x7F) {
            assert_eq!(to_e4m3(E4M3[usize::from(byte)]), byte);
            // Halfway to the next larger magnitude, and a little to either side.
            if byte & 0x7F < 0x7E {
                let (a, b) = (E4M3[usize::from(byte)], E4M3[usize::from(byte) + 1]);
                let middle = (a + b) / 2.0;
                assert_eq!(to_e4m3(middle), byte + (byte & 1), "{middle}");
                assert_eq!(to_e4m3(middle + (a - middle) * 1e-3), byte, "{middle}");
                assert_eq!(to_e4m3(middle + (b - middle) * 1e-3), byte + 1, "{middle}");
            }
        }
        assert_eq!((to_e4m3(1e9), to_e4m3(-449.0), to_e4m3(463.9)), (0x7E, 0xFE, 0x7E));
        assert_eq!((to_e4m3(-0.0), to_e4m3(1e-40)), (0x80, 0));
    }

    #[test]
    fn byte_scales_are_the_smallest_that_hold_the_block() {
        for (amax, byte) in [(448.0, 127), (448.1, 128), (1.0, 119), (1.75, 119), (1.76, 120), (0.0, 127), (1e-44, 1)] {
            let (mut data, mut scales) = (vec![], vec![]);
            encode_rows(&[amax, 0.0], 2, BlockScale::Ue8m0, &mut data, &mut scales);
            assert_eq!(scales, [byte], "{amax}");
        }
        let (mut data, mut scales) = (vec![], vec![]);
        encode_rows(&[f32::MAX, 1.0], 2, BlockScale::Ue8m0, &mut data, &mut scales);
        assert_eq!((data[0], scales[0]), (0x78, 247));
    }

    #[test]
    fn a_block_of_zeros_has_the_scale_one() {
        let (mut data, mut scales) = (vec![], vec![]);
        encode_rows(&[0.0, -1e-36], 2, BlockScale::F32, &mut data, &mut scales);
        assert_eq!((data, scales), (vec![0, 0x80], 1f32.to_le_bytes().to_vec()));
    }
}
