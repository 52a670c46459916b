//! AVX2 with FMA and F16C: two vectors of eight lanes.
//!
//! SAFETY of every block here: the type is used only by the entry points of `table`, which are compiled with these
//! features and offered when the processor has them; pointers are the caller's promise (`Isa`).

use super::isa::Isa;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(super) struct Avx2;

type I = [__m256i; 2];
type F = [__m256; 2];

/// Adds the products of four bytes to every word.
#[inline(always)]
unsafe fn fours(acc: I, u: I, s: __m256i) -> I {
    unsafe {
        let ones = _mm256_set1_epi16(1);
        let low = _mm256_madd_epi16(_mm256_maddubs_epi16(u[0], s), ones);
        let high = _mm256_madd_epi16(_mm256_maddubs_epi16(u[1], s), ones);
        [_mm256_add_epi32(acc[0], low), _mm256_add_epi32(acc[1], high)]
    }
}

/// The f16 in the low halves of eight words: packed inside the 128-bit parts, then the parts' lower quarters joined.
#[inline(always)]
unsafe fn widen(v: __m256i) -> __m256 {
    unsafe {
        let packed = _mm256_packus_epi32(v, v);
        _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(packed)))
    }
}

impl Isa for Avx2 {
    type I = I;
    type F = F;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> I {
        unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())] }
    }
    #[inline(always)]
    unsafe fn splat(v: u32) -> I {
        unsafe { [_mm256_set1_epi32(v as i32); 2] }
    }
    #[inline(always)]
    unsafe fn and(a: I, b: I) -> I {
        unsafe { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn or(a: I, b: I) -> I {
        unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn xor(a: I, b: I) -> I {
        unsafe { [_mm256_xor_si256(a[0], b[0]), _mm256_xor_si256(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn shl<const N: u32>(a: I) -> I {
        // A count in a register: the immediate of this instruction has another type than that of AVX-512.
        unsafe {
            [_mm256_sll_epi32(a[0], _mm_cvtsi32_si128(N as i32)), _mm256_sll_epi32(a[1], _mm_cvtsi32_si128(N as i32))]
        }
    }
    #[inline(always)]
    unsafe fn shr<const N: u32>(a: I) -> I {
        unsafe {
            [_mm256_srl_epi32(a[0], _mm_cvtsi32_si128(N as i32)), _mm256_srl_epi32(a[1], _mm_cvtsi32_si128(N as i32))]
        }
    }
    #[inline(always)]
    unsafe fn sar<const N: u32>(a: I) -> I {
        unsafe {
            [_mm256_sra_epi32(a[0], _mm_cvtsi32_si128(N as i32)), _mm256_sra_epi32(a[1], _mm_cvtsi32_si128(N as i32))]
        }
    }
    #[inline(always)]
    unsafe fn add32(a: I, b: I) -> I {
        unsafe { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn add8(a: I, b: I) -> I {
        unsafe { [_mm256_add_epi8(a[0], b[0]), _mm256_add_epi8(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn lut(table: &[u8; 16], a: I) -> I {
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, a[0]), _mm256_shuffle_epi8(table, a[1])]
        }
    }
    #[inline(always)]
    unsafe fn flag(a: I, bits: I, value: I) -> I {
        unsafe {
            let set = Self::and(a, bits);
            Self::and([_mm256_cmpeq_epi8(set[0], bits[0]), _mm256_cmpeq_epi8(set[1], bits[1])], value)
        }
    }
    #[inline(always)]
    unsafe fn twice<const HIGH: bool>(a: I) -> I {
        let step = i64::from_le_bytes([2; 8]) * HIGH as i64;
        let low = i64::from_le_bytes([0, 0, 1, 1, 4, 4, 5, 5]) + step;
        let high = low + i64::from_le_bytes([8; 8]);
        unsafe {
            [
                _mm256_shuffle_epi8(a[0], _mm256_set_epi64x(high, low, high, low)),
                _mm256_shuffle_epi8(a[1], _mm256_set_epi64x(high, low, high, low)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(acc: I, u: I, s: i32) -> I {
        unsafe {
            let s = _mm256_set1_epi32(s);
            if WIDE {
                // One product at a time fits where the sum of two would saturate.
                let low = _mm256_set1_epi16(0xff);
                let acc = fours(acc, [_mm256_and_si256(u[0], low), _mm256_and_si256(u[1], low)], s);
                return fours(acc, [_mm256_andnot_si256(low, u[0]), _mm256_andnot_si256(low, u[1])], s);
            }
            fours(acc, u, s)
        }
    }
    #[inline(always)]
    unsafe fn to_f(a: I) -> F {
        unsafe { [_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])] }
    }
    #[inline(always)]
    unsafe fn bits(a: I) -> F {
        unsafe { [_mm256_castsi256_ps(a[0]), _mm256_castsi256_ps(a[1])] }
    }
    #[inline(always)]
    unsafe fn splat_f(v: f32) -> F {
        unsafe { [_mm256_set1_ps(v); 2] }
    }
    #[inline(always)]
    unsafe fn load_f(p: *const f32) -> F {
        unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
    }
    #[inline(always)]
    unsafe fn store_f(p: *mut f32, a: F) {
        unsafe {
            _mm256_storeu_ps(p, a[0]);
            _mm256_storeu_ps(p.add(8), a[1]);
        }
    }
    #[inline(always)]
    unsafe fn add_f(a: F, b: F) -> F {
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn mul_f(a: F, b: F) -> F {
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    unsafe fn halves(a: I) -> [F; 2] {
        unsafe {
            let (low, high) = (Self::and(a, Self::splat(0xffff)), Self::shr::<16>(a));
            [[widen(low[0]), widen(low[1])], [widen(high[0]), widen(high[1])]]
        }
    }
    #[inline(always)]
    unsafe fn load_halves(p: *const u8) -> F {
        unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(p.cast())), _mm256_cvtph_ps(_mm_loadu_si128(p.add(16).cast()))] }
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> I {
        unsafe {
            [_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())), _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.add(8).cast()))]
        }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn gather(table: &[u32; 256], a: I) -> I {
        unsafe {
            let (index, table) = (Self::and(a, Self::splat(255)), table.as_ptr().cast());
            [_mm256_i32gather_epi32::<4>(table, index[0]), _mm256_i32gather_epi32::<4>(table, index[1])]
        }
    }
}
