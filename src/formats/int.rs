//! Integer rows: lookup tables (i32, i64) and int8/int4 quantised weights. Below four bits see `planes`.
//!
//! Source: formats.md sections 1, 2 and 4.

use super::nibble::{self, Pairs};

/// int4 codes are offset by 8.
static CENTRED: Pairs =
    nibble::pairs([-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);

/// Reads signed 32-bit integers.
pub(super) fn i32_row(data: &[u8], out: &mut [i64]) {
    for (value, bytes) in out.iter_mut().zip(data.as_chunks::<4>().0) {
        *value = i64::from(i32::from_le_bytes(*bytes));
    }
}

/// Reads signed 64-bit integers.
pub(super) fn i64_row(data: &[u8], out: &mut [i64]) {
    for (value, bytes) in out.iter_mut().zip(data.as_chunks::<8>().0) {
        *value = i64::from_le_bytes(*bytes);
    }
}

/// Reads signed 32-bit integers as the nearest f32.
pub(super) fn i32_as_f32(data: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(data.as_chunks::<4>().0) {
        *value = i32::from_le_bytes(*bytes) as f32;
    }
}

/// Reads signed 64-bit integers as the nearest f32.
pub(super) fn i64_as_f32(data: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(data.as_chunks::<8>().0) {
        *value = i64::from_le_bytes(*bytes) as f32;
    }
}

/// int8 with one scale: `value = code * scale`. `scale` is the row's f32.
pub(super) fn int8_row(data: &[u8], scale: &[u8], out: &mut [f32]) {
    let scale = f32_at(scale, 0);
    for (value, &byte) in out.iter_mut().zip(data) {
        *value = f32::from(byte as i8) * scale;
    }
}

/// int4 with one scale per `group` (> 0) columns: `value = (nibble - 8) * scale`.
///
/// `scales` are the row's f32 values, one per group.
pub(super) fn int4_row(data: &[u8], scales: &[u8], group: usize, out: &mut [f32]) {
    if group.is_multiple_of(2) || group >= out.len() {
        let groups = out.chunks_mut(group.max(1)).zip(data.chunks(group.max(1).div_ceil(2)));
        for (index, (values, bytes)) in groups.enumerate() {
            nibble::scaled(&CENTRED, bytes, f32_at(scales, index), values);
        }
    } else {
        // Groups that end inside a byte; no writer makes them, so clarity goes before speed.
        for (column, value) in out.iter_mut().enumerate() {
            let pair = CENTRED[usize::from(data[column / 2])];
            *value = pair[column % 2] * f32_at(scales, column / group);
        }
    }
}

/// Encodes an int8 row: `scale = max |w| / 127`, codes -127..127.
pub(super) fn encode_int8(values: &[f32], data: &mut Vec<u8>, scales: &mut Vec<u8>) {
    let scale = scale(values, 127.0);
    scales.extend(scale.to_le_bytes());
    data.extend(values.iter().map(|v| code(*v, scale, -128.0, 127.0) as u8));
}

/// Encodes an int4 row whose groups of `group` (even, or all) columns share `scale = max |w| / 7`, codes -7..7.
/// The nibble behind an odd last column is 0.
pub(super) fn encode_int4(values: &[f32], group: usize, data: &mut Vec<u8>, scales: &mut Vec<u8>) {
    let nibble = |v: f32, scale: f32| (code(v, scale, -8.0, 7.0) + 8) as u8;
    for values in values.chunks(group.max(1)) {
        let scale = scale(values, 7.0);
        scales.extend(scale.to_le_bytes());
        let high = |pair: &[f32]| pair.get(1).map_or(0, |v| nibble(*v, scale) << 4);
        data.extend(values.chunks(2).map(|pair| nibble(pair[0], scale) | high(pair)));
    }
}

/// The f32 that the largest magnitude is `largest` times of. Never zero, so that it can divide.
pub(super) fn scale(values: &[f32], largest: f32) -> f32 {
    (amax(values) / largest).max(1e-8)
}

/// The largest magnitude, 0 of nothing.
pub(super) fn amax(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most: f32, v| most.max(v.abs()))
}

/// The nearest code, ties to even. A true division: a multiplication by the reciprocal rounds some to the
/// neighbour.
pub(super) fn code(v: f32, scale: f32, least: f32, most: f32) -> i8 {
    // 1.5 * 2^23: added to a small number, it leaves the nearest integer in the low bits. The bounds are integers, so
    // rounding behind them is the same. Unlike `round_ties_even` this is vectorised on every processor.
    const MAGIC: f32 = 12_582_912.0;
    let near = (v / scale).clamp(least, most) + MAGIC;
    near.to_bits().wrapping_sub(MAGIC.to_bits()) as i8
}

pub(super) fn f32_at(bytes: &[u8], index: usize) -> f32 {
    let at = index * 4;
    f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use crate::formats::{Format, View};

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn int8_is_twos_complement_with_a_row_scale() {
        let scales = floats(&[0.5, -2.0]);
        let data = [0, 1, 0x7F, 0x80, 0xFF, 3];
        let view = View::new(Format::Int8Row, 2, 3, &data, &scales).unwrap();
        let mut out = [0.0; 3];
        view.decode_row(0, &mut out);
        assert_eq!(out, [0.0, 0.5, 63.5]);
        view.decode_row(1, &mut out);
        assert_eq!(out, [256.0, 2.0, -6.0]);
    }

    #[test]
    fn int4_row_ignores_the_unused_nibble_of_odd_widths() {
        let scales = floats(&[2.0, 1.0]);
        // Columns 0,1 from the first byte, column 2 from the low nibble of the second.
        for padding in [0x00, 0x80, 0xF0] {
            let data = [0xF0, 0x09 | padding, 0x78, padding];
            let view = View::new(Format::Int4Row, 2, 3, &data, &scales).unwrap();
            let mut out = [0.0; 3];
            view.decode_row(0, &mut out);
            assert_eq!(out, [-16.0, 14.0, 2.0]);
            view.decode_row(1, &mut out);
            assert_eq!(out, [0.0, -1.0, -8.0]);
        }
    }

    #[test]
    fn int4_groups_change_scale_inside_a_row() {
        // Five columns, groups of two: scales 1, 10, 100 cover columns 0-1, 2-3, 4.
        let scales = floats(&[1.0, 10.0, 100.0]);
        let data = [0xA9, 0xCB, 0x0D];
        let view = View::new(Format::Int4Grouped { group: 2 }, 1, 5, &data, &scales).unwrap();
        let mut out = [0.0; 5];
        view.decode_row(0, &mut out);
        assert_eq!(out, [1.0, 2.0, 30.0, 40.0, 500.0]);
    }

    #[test]
    fn groups_may_be_odd() {
        let scales = floats(&[1.0, 10.0]);
        let view = View::new(Format::Int4Grouped { group: 3 }, 1, 4, &[0x99, 0x99], &scales).unwrap();
        let mut out = [0.0; 4];
        view.decode_row(0, &mut out);
        assert_eq!(out, [1.0, 1.0, 1.0, 10.0]);
    }

    #[test]
    fn integer_tables_come_out_as_integers() {
        let wide: Vec<u8> = [i64::MIN, -1, 1 << 40].iter().flat_map(|v| v.to_le_bytes()).collect();
        let view = View::new(Format::I64, 1, 3, &wide, &[]).unwrap();
        let mut out = [0; 3];
        assert_eq!(view.int_row(0, &mut out), Some(()));
        assert_eq!(out, [i64::MIN, -1, 1 << 40]);
        let mut as_float = [0.0; 3];
        view.decode_row(0, &mut as_float);
        assert_eq!(as_float, [-(2f32.powi(63)), -1.0, 2f32.powi(40)]);

        let narrow: Vec<u8> = [7i32, -9].iter().flat_map(|v| v.to_le_bytes()).collect();
        let view = View::new(Format::I32, 2, 1, &narrow, &[]).unwrap();
        assert_eq!(view.int_row(1, &mut out[..1]), Some(()));
        assert_eq!(out[0], -9);
        view.decode_row(0, &mut as_float[..1]);
        assert_eq!(as_float[0], 7.0);
    }

    #[test]
    fn weights_are_not_integer_tables() {
        let view = View::new(Format::Int8Row, 1, 1, &[1], &[0; 4]).unwrap();
        assert_eq!(view.int_row(0, &mut [0]), None);
    }
}
