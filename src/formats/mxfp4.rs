//! MXFP4 rows: e2m1 elements with one shared exponent byte per 32 columns.
//!
//! Kimi K3 (`weight_packed`/`weight_scale`) and DeepSeek V4 (`weight`/`scale`) store their routed
//! experts this way. Source: formats.md section 7.1. GGUF orders the nibbles of a block differently
//! and is a different format.

use super::format::MXFP4_GROUP;
use super::int::amax;
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

/// Encodes a row whose length is a multiple of 32.
///
/// The exponent of a group is the one of the OCP MX specification (the largest magnitude lands in 4..8, and what
/// lies above 6 becomes 6) or the next larger one (in 2..4, nothing is cut), whichever leaves the smaller sum of
/// squared errors; the smaller exponent if they are equal. Cutting costs the largest weight of a group up to a
/// quarter of itself, and twice the step costs all others precision: neither is always better. Exponent bytes are
/// 1..=254, which all readers understand alike; a group of zeros gets 127.
pub(super) fn encode_row(values: &[f32], data: &mut Vec<u8>, scales: &mut Vec<u8>) {
    for group in values.chunks(MXFP4_GROUP) {
        let low = exponent(amax(group));
        let high = (low + 1).min(254);
        let best = if error(group, high) < error(group, low) { high } else { low };
        scales.push(best);
        let scale = scale(best);
        data.extend(group.chunks(2).map(|pair| pair.iter().rev().fold(0, |byte, v| byte << 4 | e2m1(v / scale))));
    }
}

/// The exponent byte that brings `amax` into 4..8, or the nearest allowed one.
fn exponent(amax: f32) -> u8 {
    if amax == 0.0 {
        return 127;
    }
    // Of a subnormal the exponent field is 0: below the smallest allowed byte in any case.
    let field = (amax.to_bits() >> 23) as i32;
    (field - 2).clamp(1, 254) as u8
}

/// Sum of squared errors of a group under an exponent, over the square of its scale.
fn error(group: &[f32], exponent: u8) -> f64 {
    let scale = scale(exponent);
    let off = |v: &f32| f64::from(*v) - f64::from(E2M1[usize::from(e2m1(v / scale))] * scale);
    group.iter().map(|v| off(v).powi(2)).sum()
}

/// The code of the nearest e2m1 value, ties to the even code, 6 for everything beyond.
pub(super) fn e2m1(v: f32) -> u8 {
    // Halfway between two neighbours; a tie goes to the even one.
    const BOUNDS: [f32; 7] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let above = |(at, bound): (usize, &f32)| if at % 2 == 0 { v.abs() > *bound } else { v.abs() >= *bound };
    let magnitude = BOUNDS.iter().enumerate().filter(|b| above(*b)).count() as u8;
    magnitude | u8::from(v.is_sign_negative()) << 3
}

#[cfg(test)]
mod tests {
    use super::{E2M1, amax, e2m1, encode_row, error, exponent, scale};
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

    #[test]
    fn nearest_codes_with_ties_to_even() {
        for (code, value) in E2M1.iter().enumerate() {
            assert_eq!(usize::from(e2m1(*value)), code);
        }
        let ties = [(0.25, 0), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (3.5, 6), (5.0, 6)];
        for (v, code) in ties {
            assert_eq!((e2m1(v), e2m1(-v)), (code, code | 8), "{v}");
            assert_eq!(e2m1(v * 1.001), E2M1.iter().position(|e| *e > v).unwrap() as u8, "{v}");
        }
        assert_eq!((e2m1(1e30), e2m1(-7.0)), (7, 15));
    }

    fn encoded(group: &[f32]) -> (Vec<u8>, Vec<u8>) {
        let (mut data, mut scales) = (vec![], vec![]);
        encode_row(group, &mut data, &mut scales);
        (data, scales)
    }

    #[test]
    fn the_exponent_with_the_smaller_error() {
        // Mostly small steps of 0.5 beside a 7: cutting the 7 to 6 costs 1, doubling the step costs 30 / 16.
        let mut group = [0.5; 32];
        (group[0], group[1]) = (7.0, 1.0);
        let (data, scales) = encoded(&group);
        assert_eq!((scales[0], data[0]), (127, 0x27));
        // Beside ones the doubled step is exact, and 7.5 becomes 8.
        let mut group = [1.0; 32];
        group[0] = -7.5;
        let (data, scales) = encoded(&group);
        assert_eq!((scales[0], data[0], data[1]), (128, 0x1E, 0x11));
    }

    #[test]
    fn exponents_stay_where_readers_agree() {
        assert_eq!(encoded(&[0.0; 32]), (vec![0; 16], vec![127]));
        assert_eq!(encoded(&[1e-45; 32]).1, [1]);
        let (data, scales) = encoded(&[f32::MAX; 32]);
        assert!(decode(32, &data, &scales).iter().all(|v| v.is_finite() && *v > 2.5e38));
    }

    /// What the choice of the exponent is worth: squared errors on values that are a sum of twelve evenly spread
    /// ones, by the specification's exponent alone, by the larger one alone, and by the better of both.
    #[test]
    fn the_choice_beats_both_rules() {
        let mut state = 1u64;
        let mut even = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let mut sums = [0.0; 4];
        for _ in 0..4096 {
            let group: [f32; 32] = std::array::from_fn(|_| (0..12).map(|_| even()).sum::<f32>() - 6.0);
            let low = exponent(amax(&group));
            let (a, b) = (error(&group, low), error(&group, low + 1));
            let cut = if amax(&group) > 6.0 * scale(low) { b } else { a };
            let size = group.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
            sums.iter_mut().zip([a, cut, a.min(b), size]).for_each(|(sum, e)| *sum += e);
        }
        let [specified, uncut, best] = [sums[0], sums[1], sums[2]].map(|e| (e / sums[3]).sqrt());
        println!("specified {specified:.4}, without a cut {uncut:.4}, the better {best:.4}");
        assert!(best < 0.98 * specified.min(uncut) && best < 0.113, "{specified} {uncut} {best}");
    }
}
