//! Plain floating-point rows: f32, f16, bf16.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Values converted per call of `half`'s bulk conversion.
const HALF_CHUNK: usize = 64;

/// Copies little-endian f32 values.
pub(super) fn f32_row(data: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(data.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

/// Widens bf16: its 16 bits are the upper half of the f32.
pub(super) fn bf16_row(data: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(data.as_chunks::<2>().0) {
        *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    }
}

/// Widens IEEE half precision.
///
/// `half` picks the processor's conversion instruction once per slice, but wants aligned halves, so
/// the bytes pass through a small aligned buffer.
pub(super) fn f16_row(data: &[u8], out: &mut [f32]) {
    let mut halves = [f16::ZERO; HALF_CHUNK];
    for (values, bytes) in out.chunks_mut(HALF_CHUNK).zip(data.chunks(HALF_CHUNK * 2)) {
        let halves = &mut halves[..values.len()];
        for (half, pair) in halves.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *half = f16::from_le_bytes(*pair);
        }
        halves.convert_to_f32_slice(values);
    }
}

/// Writes f32 values as they are.
pub(super) fn encode_f32(values: &[f32], data: &mut Vec<u8>) {
    data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
}

/// Rounds to the nearest half, ties to even. Values from 65520 up become infinite.
pub(super) fn encode_f16(values: &[f32], data: &mut Vec<u8>) {
    data.extend(values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()));
}

/// Rounds to the nearest bf16, ties to even. Values within 2^-9 of the end of the range become infinite.
pub(super) fn encode_bf16(values: &[f32], data: &mut Vec<u8>) {
    data.extend(values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_reads_unaligned_bytes() {
        let mut bytes = vec![0xAA];
        bytes.extend(1.5f32.to_le_bytes());
        bytes.extend((-0.25f32).to_le_bytes());
        let mut out = [0.0; 2];
        f32_row(&bytes[1..], &mut out);
        assert_eq!(out, [1.5, -0.25]);
    }

    #[test]
    fn bf16_is_the_upper_half() {
        // 0x3F80 = 1, 0xC040 = -3, 0x0001 = the smallest subnormal 2^-133.
        let mut out = [0.0; 3];
        bf16_row(&[0x80, 0x3F, 0x40, 0xC0, 0x01, 0x00], &mut out);
        assert_eq!(out, [1.0, -3.0, 2f32.powi(-133)]);
    }

    #[test]
    fn f16_covers_subnormals_and_long_rows() {
        // 0x3C00 = 1, 0x0001 = 2^-24 (subnormal), 0xC000 = -2.
        let pattern = [0x3C00u16, 0x0001, 0xC000];
        let values = [1.0, 2f32.powi(-24), -2.0];
        let n = HALF_CHUNK * 2 + 5;
        let mut bytes = vec![0u8];
        bytes.extend((0..n).flat_map(|i| pattern[i % 3].to_le_bytes()));
        let mut out = vec![0.0; n];
        f16_row(&bytes[1..], &mut out);
        assert!(out.iter().enumerate().all(|(i, &v)| v == values[i % 3]));
    }
}
