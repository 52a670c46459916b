//! AVX2 with FMA and F16C: two vectors of eight lanes.

use super::isa::{Isa, registers};
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(super) struct Avx2;

type I = [__m256i; 2];
type F = [__m256; 2];

/// Adds the products of four bytes to every word.
#[inline]
#[target_feature(enable = "avx2")]
fn fours(acc: I, u: I, s: __m256i) -> I {
    let ones = _mm256_set1_epi16(1);
    let low = _mm256_madd_epi16(_mm256_maddubs_epi16(u[0], s), ones);
    let high = _mm256_madd_epi16(_mm256_maddubs_epi16(u[1], s), ones);
    [_mm256_add_epi32(acc[0], low), _mm256_add_epi32(acc[1], high)]
}

/// The f16 in the low halves of eight words, with zeros above: packed inside the 128-bit parts, then the parts' lower
/// quarters joined.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widen(v: __m256i) -> __m256 {
    let packed = _mm256_packus_epi32(v, v);
    _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(packed)))
}

impl Isa for Avx2 {
    type I = I;
    type F = F;

    registers! { "avx2,fma,f16c";
        fn splat(v: u32) -> I { [_mm256_set1_epi32(v as i32); 2] }
        fn and(a: I, b: I) -> I { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
        fn or(a: I, b: I) -> I { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
        fn xor(a: I, b: I) -> I { [_mm256_xor_si256(a[0], b[0]), _mm256_xor_si256(a[1], b[1])] }
        // Counts in a register: the immediates of these instructions have another type than that of AVX-512.
        fn shl<const N: u32>(a: I) -> I {
            let n = _mm_cvtsi32_si128(N as i32);
            [_mm256_sll_epi32(a[0], n), _mm256_sll_epi32(a[1], n)]
        }
        fn shr<const N: u32>(a: I) -> I {
            let n = _mm_cvtsi32_si128(N as i32);
            [_mm256_srl_epi32(a[0], n), _mm256_srl_epi32(a[1], n)]
        }
        fn sar<const N: u32>(a: I) -> I {
            let n = _mm_cvtsi32_si128(N as i32);
            [_mm256_sra_epi32(a[0], n), _mm256_sra_epi32(a[1], n)]
        }
        fn add32(a: I, b: I) -> I { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
        fn add8(a: I, b: I) -> I { [_mm256_add_epi8(a[0], b[0]), _mm256_add_epi8(a[1], b[1])] }
        fn flag(a: I, bits: I, value: I) -> I {
            let low = _mm256_cmpeq_epi8(_mm256_and_si256(a[0], bits[0]), bits[0]);
            let high = _mm256_cmpeq_epi8(_mm256_and_si256(a[1], bits[1]), bits[1]);
            [_mm256_and_si256(low, value[0]), _mm256_and_si256(high, value[1])]
        }
        fn twice<const HIGH: bool>(a: I) -> I {
            let step = i64::from_le_bytes([2; 8]) * i64::from(HIGH);
            let low = i64::from_le_bytes([0, 0, 1, 1, 4, 4, 5, 5]) + step;
            let high = low + i64::from_le_bytes([8; 8]);
            let places = _mm256_set_epi64x(high, low, high, low);
            [_mm256_shuffle_epi8(a[0], places), _mm256_shuffle_epi8(a[1], places)]
        }
        fn dot<const LARGE: bool, const WIDE: bool>(acc: I, u: I, s: i32) -> I {
            let s = _mm256_set1_epi32(s);
            if WIDE {
                // One product at a time fits where the sum of two would saturate.
                let low = _mm256_set1_epi16(0xff);
                let acc = fours(acc, [_mm256_and_si256(u[0], low), _mm256_and_si256(u[1], low)], s);
                return fours(acc, [_mm256_andnot_si256(low, u[0]), _mm256_andnot_si256(low, u[1])], s);
            }
            fours(acc, u, s)
        }
        fn to_f(a: I) -> F { [_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])] }
        fn bits(a: I) -> F { [_mm256_castsi256_ps(a[0]), _mm256_castsi256_ps(a[1])] }
        fn splat_f(v: f32) -> F { [_mm256_set1_ps(v); 2] }
        fn add_f(a: F, b: F) -> F { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
        fn mul_f(a: F, b: F) -> F { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        fn fma(a: F, b: F, c: F) -> F { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
        fn halves(a: I) -> [F; 2] {
            let mask = _mm256_set1_epi32(0xffff);
            let low = [widen(_mm256_and_si256(a[0], mask)), widen(_mm256_and_si256(a[1], mask))];
            [low, [widen(_mm256_srli_epi32::<16>(a[0])), widen(_mm256_srli_epi32::<16>(a[1]))]]
        }
    }

    #[inline(always)]
    unsafe fn load(p: *const u8) -> I {
        // SAFETY: the caller promises AVX2 and 64 bytes at `p`: twice 32.
        unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())] }
    }
    #[inline(always)]
    unsafe fn load_f(p: *const f32) -> F {
        // SAFETY: the caller promises AVX2 and 16 values at `p`: twice eight.
        unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
    }
    #[inline(always)]
    unsafe fn store_f(p: *mut f32, a: F) {
        // SAFETY: the caller promises AVX2 and room for 16 values at `p`: twice eight.
        unsafe {
            _mm256_storeu_ps(p, a[0]);
            _mm256_storeu_ps(p.add(8), a[1]);
        }
    }
    #[inline(always)]
    unsafe fn lut(table: &[u8; 16], a: I) -> I {
        // SAFETY: the caller promises AVX2; the table has the 16 bytes that are read.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, a[0]), _mm256_shuffle_epi8(table, a[1])]
        }
    }
    #[inline(always)]
    unsafe fn load_halves(p: *const u8) -> F {
        // SAFETY: the caller promises F16C and 32 bytes at `p`: twice 16.
        unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(p.cast())), _mm256_cvtph_ps(_mm_loadu_si128(p.add(16).cast()))] }
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> I {
        // SAFETY: the caller promises AVX2 and 16 bytes at `p`: twice eight, the lower half of a vector.
        unsafe {
            [_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())), _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.add(8).cast()))]
        }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SAFETY: a hint, which every x86-64 processor has and which faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn gather(table: &[u32; 256], a: I) -> I {
        // SAFETY: the caller promises AVX2; indices below 256 stay in the table.
        unsafe {
            let (mask, table) = (_mm256_set1_epi32(255), table.as_ptr().cast());
            let low = _mm256_i32gather_epi32::<4>(table, _mm256_and_si256(a[0], mask));
            [low, _mm256_i32gather_epi32::<4>(table, _mm256_and_si256(a[1], mask))]
        }
    }
}
