//! FP8 rows: e4m3 elements with one scale per 128x128 block.
//!
//! DeepSeek V4 stores its dense matrices this way with one-byte scales, GLM-5.2-FP8 with f32
//! scales. Source: formats.md section 7.2.

use super::BlockScale;
use super::format::FP8_BLOCK;

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

#[cfg(test)]
mod tests {
    use super::{BlockScale, E4M3, ue8m0};
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
}
