//! Integer rows below four bits: int2 with one scale a row, int3 with one scale per 64 columns.
//!
//! | format | bytes | value |
//! |---|---|---|
//! | `int2-row` | column `4k + j` is bits `2j, 2j + 1` of byte `k` | `(field - 2) * scale` |
//! | `int3-g64` | per 64 columns 16 bytes of low bit pairs as in int2, then 8 bytes of high bits, lowest first | `(low + 4 high - 4) * scale` |
//!
//! Bits behind the last column mean nothing: writers fill them differently. Source: formats.md sections 3 and 5.

use super::format::{INT3_BYTES, INT3_GROUP};
use super::int::{self, f32_at};

/// Values of the four fields of every byte, lowest bits first, `offset` subtracted.
const fn fields(offset: f32) -> [[f32; 4]; 256] {
    let mut table = [[0.0; 4]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut at = 0;
        while at < 4 {
            table[byte][at] = ((byte >> (2 * at)) & 3) as f32 - offset;
            at += 1;
        }
        byte += 1;
    }
    table
}

/// What the high bits of four columns add.
const fn high() -> [[f32; 4]; 16] {
    let mut table = [[0.0; 4]; 16];
    let mut nibble = 0;
    while nibble < 16 {
        let mut at = 0;
        while at < 4 {
            table[nibble][at] = ((nibble >> at) & 1) as f32 * 4.0;
            at += 1;
        }
        nibble += 1;
    }
    table
}

static INT2: [[f32; 4]; 256] = fields(2.0);
static LOW: [[f32; 4]; 256] = fields(4.0);
static HIGH: [[f32; 4]; 16] = high();

/// Fills `out` four values at a time, of the last four only as many as there are.
#[inline(always)]
fn quads(out: &mut [f32], of: impl Fn(usize) -> [f32; 4]) {
    let (whole, tail) = out.as_chunks_mut::<4>();
    whole.iter_mut().enumerate().for_each(|(at, values)| *values = of(at));
    if !tail.is_empty() {
        let last = of(whole.len());
        tail.copy_from_slice(&last[..tail.len()]);
    }
}

/// Decodes an int2 row; `scale` is the row's f32.
pub(super) fn int2_row(data: &[u8], scale: &[u8], out: &mut [f32]) {
    let scale = f32_at(scale, 0);
    let decode = |byte: u8| INT2[usize::from(byte)].map(|field| field * scale);
    quads(out, |quad| decode(data[quad]));
}

/// Decodes an int3 row; `scales` are the row's f32 values, one per 64 columns.
pub(super) fn int3_row(data: &[u8], scales: &[u8], out: &mut [f32]) {
    let groups = out.chunks_mut(INT3_GROUP).zip(data.as_chunks::<INT3_BYTES>().0);
    for (index, (values, bytes)) in groups.enumerate() {
        let (low, high) = bytes.split_at(INT3_GROUP / 4);
        let scale = f32_at(scales, index);
        quads(values, |quad| {
            let low = &LOW[usize::from(low[quad])];
            let high = &HIGH[usize::from(high[quad / 2] >> (quad % 2 * 4) & 15)];
            // The sum of the parts is a small integer, so only the product rounds.
            std::array::from_fn(|k| (low[k] + high[k]) * scale)
        });
    }
}

/// Encodes an int2 row: `scale = max |w|`, codes -1, 0, 1. Fields behind the last column are 0.
pub(super) fn encode_int2(values: &[f32], data: &mut Vec<u8>, scales: &mut Vec<u8>) {
    let scale = int::scale(values, 1.0);
    scales.extend(scale.to_le_bytes());
    let field = |v: &f32| (int::code(*v, scale, -2.0, 1.0) + 2) as u8;
    let byte = |c: &[f32]| c.iter().enumerate().fold(0, |byte, (at, v)| byte | field(v) << (2 * at));
    data.extend(values.chunks(4).map(byte));
}

/// Encodes an int3 row: per group `scale = max |w| / 3`, codes -3..3. Codes behind the last column are 4, which
/// reads as zero.
pub(super) fn encode_int3(values: &[f32], data: &mut Vec<u8>, scales: &mut Vec<u8>) {
    for group in values.chunks(INT3_GROUP) {
        let scale = int::scale(group, 3.0);
        scales.extend(scale.to_le_bytes());
        let mut codes = [4u8; INT3_GROUP];
        codes.iter_mut().zip(group).for_each(|(code, v)| *code = (int::code(*v, scale, -4.0, 3.0) + 4) as u8);
        let low = |c: &[u8]| c.iter().rev().fold(0, |byte, code| byte << 2 | (code & 3));
        let high = |c: &[u8]| c.iter().rev().fold(0, |byte, code| byte << 1 | (code >> 2));
        data.extend(codes.chunks(4).map(low));
        data.extend(codes.chunks(8).map(high));
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::{Format, View};

    #[test]
    fn int2_fields_from_the_lowest_bits_up() {
        // 0b11_10_01_00 holds -2, -1, 0, 1; of the second byte only the first field counts.
        let scale = 0.5f32.to_le_bytes();
        for padding in [0x00, 0xF8] {
            let data = [0b1110_0100, 0b11 | padding];
            let view = View::new(Format::Int2Row, 1, 5, &data, &scale).unwrap();
            let mut out = [0.0; 5];
            view.decode_row(0, &mut out);
            assert_eq!(out, [-1.0, -0.5, 0.0, 0.5, 0.5]);
        }
    }

    #[test]
    fn int3_planes_meet() {
        // Columns 0..8 hold the codes 0..7: low pairs 0 1 2 3 0 1 2 3, high bits 0 0 0 0 1 1 1 1.
        let mut data = [0u8; 48];
        (data[0], data[1], data[16]) = (0b1110_0100, 0b1110_0100, 0b1111_0000);
        // Column 64 is code 4 + 1 of the second group, worth 10 each.
        (data[24], data[40]) = (1, 1);
        let scales: Vec<u8> = [2.0f32, 10.0].iter().flat_map(|s| s.to_le_bytes()).collect();
        let view = View::new(Format::Int3G64, 1, 65, &data, &scales).unwrap();
        let mut out = [0.0; 65];
        view.decode_row(0, &mut out);
        assert_eq!(out[..9], [-8.0, -6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0, -8.0]);
        assert_eq!(out[64], 10.0);
    }
}
