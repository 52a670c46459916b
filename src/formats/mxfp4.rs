//! MXFP4 rows: e2m1 elements with one shared exponent byte per 32 columns.
//!
//! Kimi K3 (`weight_packed`/`weight_scale`) and DeepSeek V4 (`weight`/`scale`) store their routed
//! experts this way. Source: formats.md section 7.1. GGUF orders the nibbles of a block differently
//! and is a different format.

use super::format::MXFP4_GROUP;
use super::nibble::{self, Pairs};

/// The sixteen e2m1 values; bit 3 of the code is the sign, so code 8 is minus zero.
const E2M1: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

static PAIRS: Pairs = nibble::pairs(E2M1);

/// Decodes one row. `data` has two elements per byte, `scales` one byte per 32 columns.
pub(super) fn row(data: &[u8], scales: &[u8], out: &mut [f32]) {
    let groups = out.chunks_mut(MXFP4_GROUP).zip(data.chunks(MXFP4_GROUP / 2));
    for ((values, bytes), &exponent) in groups.zip(scales) {
        nibble::scaled(&PAIRS, bytes, scale(exponent), values);
    }
}

/// `2^(e-127)` made by placing the byte in the exponent field, so 0 gives 0 and 255 gives infinity.
fn scale(exponent: u8) -> f32 {
    f32::from_bits(u32::from(exponent) << 23)
}

#[cfg(test)]
mod tests {
    use crate::formats::{Format, View};

    fn decode(cols: usize, data: &[u8], scales: &[u8]) -> Vec<f32> {
        let view = View::new(Format::Mxfp4, 1, cols, data, scales).unwrap();
        let mut out = vec![0.0; cols];
        view.decode_row(0, &mut out);
        out
    }

    #[test]
    fn every_code_low_nibble_first() {
        // Bytes 0x10, 0x32, ... hold the codes 0..15 in column order; exponent 128 doubles.
        let data = [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE];
        let out = decode(16, &data, &[128]);
        let want = [0., 1., 2., 3., 4., 6., 8., 12., -0., -1., -2., -3., -4., -6., -8., -12.];
        assert_eq!(out, want);
        assert!(out[8].is_sign_negative() && out[0].is_sign_positive());
    }

    #[test]
    fn scale_changes_every_32_columns() {
        let out = decode(64, &[0x22; 32], &[127, 126]);
        assert!(out[..32].iter().all(|&v| v == 1.0) && out[32..].iter().all(|&v| v == 0.5));
    }

    #[test]
    fn ragged_and_odd_widths() {
        let data = vec![0x42; 17];
        let out = decode(33, &data, &[127, 129]);
        assert_eq!((out[0], out[1], out[32]), (1.0, 2.0, 4.0));
    }

    #[test]
    fn extreme_exponents() {
        assert_eq!(decode(2, &[0x72], &[0]), [0.0, 0.0]);
        assert_eq!(decode(2, &[0x72], &[1]), [2f32.powi(-126), 6.0 * 2f32.powi(-126)]);
        assert_eq!(decode(2, &[0xA2], &[255]), [f32::INFINITY, f32::NEG_INFINITY]);
    }
}
