//! AVX-512 as processors have it since Ice Lake and Zen 4: F, BW, VL, DQ, VNNI, VBMI, GFNI.

use super::isa::{Isa, registers};
use super::lattice::PLANES_PLUS_64;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(super) struct Avx512;

type I = __m512i;
type F = __m512;

impl Isa for Avx512 {
    type I = I;
    type F = F;

    registers! { "avx512f,avx512bw,avx512vnni";
        fn splat(v: u32) -> I { _mm512_set1_epi32(v as i32) }
        fn and(a: I, b: I) -> I { _mm512_and_si512(a, b) }
        fn or(a: I, b: I) -> I { _mm512_or_si512(a, b) }
        fn xor(a: I, b: I) -> I { _mm512_xor_si512(a, b) }
        fn shl<const N: u32>(a: I) -> I { _mm512_slli_epi32::<N>(a) }
        fn shr<const N: u32>(a: I) -> I { _mm512_srli_epi32::<N>(a) }
        fn sar<const N: u32>(a: I) -> I { _mm512_srai_epi32::<N>(a) }
        fn add32(a: I, b: I) -> I { _mm512_add_epi32(a, b) }
        fn add8(a: I, b: I) -> I { _mm512_add_epi8(a, b) }
        fn flag(a: I, bits: I, value: I) -> I { _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(a, bits), value) }
        fn twice<const HIGH: bool>(a: I) -> I {
            let step = i64::from_le_bytes([2; 8]) * i64::from(HIGH);
            let low = i64::from_le_bytes([0, 0, 1, 1, 4, 4, 5, 5]) + step;
            let high = low + i64::from_le_bytes([8; 8]);
            _mm512_shuffle_epi8(a, _mm512_set_epi64(high, low, high, low, high, low, high, low))
        }
        fn dot<const LARGE: bool, const WIDE: bool>(acc: I, u: I, s: i32) -> I {
            _mm512_dpbusd_epi32(acc, u, _mm512_set1_epi32(s))
        }
        fn to_f(a: I) -> F { _mm512_cvtepi32_ps(a) }
        fn bits(a: I) -> F { _mm512_castsi512_ps(a) }
        fn splat_f(v: f32) -> F { _mm512_set1_ps(v) }
        fn add_f(a: F, b: F) -> F { _mm512_add_ps(a, b) }
        fn mul_f(a: F, b: F) -> F { _mm512_mul_ps(a, b) }
        fn fma(a: F, b: F, c: F) -> F { _mm512_fmadd_ps(a, b, c) }
        fn halves(a: I) -> [F; 2] {
            let high = _mm512_srli_epi32::<16>(a);
            [_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)), _mm512_cvtph_ps(_mm512_cvtepi32_epi16(high))]
        }
    }

    #[inline(always)]
    unsafe fn load(p: *const u8) -> I {
        // SAFETY: the caller promises AVX-512F and 64 bytes at `p`.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_f(p: *const f32) -> F {
        // SAFETY: the caller promises AVX-512F and 16 values at `p`.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store_f(p: *mut f32, a: F) {
        // SAFETY: the caller promises AVX-512F and room for 16 values at `p`.
        unsafe { _mm512_storeu_ps(p, a) }
    }
    #[inline(always)]
    unsafe fn lut(table: &[u8; 16], a: I) -> I {
        // SAFETY: the caller promises AVX-512BW; the table has the 16 bytes that are read.
        unsafe { _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), a) }
    }
    #[inline(always)]
    unsafe fn load_halves(p: *const u8) -> F {
        // SAFETY: the caller promises AVX-512F and 32 bytes at `p`.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> I {
        // SAFETY: the caller promises AVX-512F and 16 bytes at `p`.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SAFETY: a hint, which every x86-64 processor has and which faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[inline(always)]
    unsafe fn arrange(order: &[u8; 64], codes: &[i8; 64]) -> [i32; 16] {
        let mut out = [0i32; 16];
        // SAFETY: the caller promises AVX-512 VBMI; `order`, `codes` and `out` have 64 bytes each.
        unsafe {
            let (order, codes) = (Self::load(order.as_ptr()), Self::load(codes.as_ptr().cast()));
            _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_permutexvar_epi8(order, codes));
        }
        out
    }

    /// 4 x 4 blocks of words inside the 128-bit quarters, then the quarters.
    #[inline(always)]
    unsafe fn transpose(rows: &[*const u8; 16], out: *mut u32) {
        // SAFETY: the caller promises AVX-512F, 64 bytes at each row and 256 words at `out`: 16 words are written at
        // 16 j, 64, 128 and 192 behind, and j is below four.
        unsafe {
            let mut r = [_mm512_setzero_si512(); 16];
            for (r, row) in r.iter_mut().zip(rows) {
                *r = _mm512_loadu_si512(row.cast());
            }
            for i in (0..16).step_by(4) {
                let (a, b) = (_mm512_unpacklo_epi32(r[i], r[i + 1]), _mm512_unpackhi_epi32(r[i], r[i + 1]));
                let (c, d) = (_mm512_unpacklo_epi32(r[i + 2], r[i + 3]), _mm512_unpackhi_epi32(r[i + 2], r[i + 3]));
                r[i] = _mm512_unpacklo_epi64(a, c);
                r[i + 1] = _mm512_unpackhi_epi64(a, c);
                r[i + 2] = _mm512_unpacklo_epi64(b, d);
                r[i + 3] = _mm512_unpackhi_epi64(b, d);
            }
            for j in 0..4 {
                let even =
                    [_mm512_shuffle_i32x4::<0x88>(r[j], r[j + 4]), _mm512_shuffle_i32x4::<0x88>(r[j + 8], r[j + 12])];
                let odd =
                    [_mm512_shuffle_i32x4::<0xdd>(r[j], r[j + 4]), _mm512_shuffle_i32x4::<0xdd>(r[j + 8], r[j + 12])];
                let out = out.add(16 * j);
                _mm512_storeu_si512(out.cast(), _mm512_shuffle_i32x4::<0x88>(even[0], even[1]));
                _mm512_storeu_si512(out.add(128).cast(), _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]));
                _mm512_storeu_si512(out.add(64).cast(), _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]));
                _mm512_storeu_si512(out.add(192).cast(), _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]));
            }
        }
    }

    /// Four tables of bytes, each looked up for 64 indices at once; signs as masks, one bit of the sign bytes each.
    #[inline(always)]
    unsafe fn lattice(a: I, b: I, signs: I) -> [I; 8] {
        const LOW: u64 = 0x5555_5555_5555_5555;
        // SAFETY: the caller promises AVX-512 BW, VBMI and GFNI; a plane has the 256 bytes that are read.
        unsafe {
            // The 7-bit fields in the order of the columns' order, then the parity as bit 7 by a matrix over GF(2).
            let fields = _mm512_set1_epi64(i64::from_le_bytes([0, 14, 7, 21, 32, 46, 39, 53]));
            let parity = _mm512_set1_epi64(i64::from_le_bytes([0x7f, 0x40, 0x20, 0x10, 8, 4, 2, 1]));
            let signs = _mm512_multishift_epi64_epi8(fields, signs);
            let signs = _mm512_gf2p8affine_epi64_epi8::<0>(signs, parity);
            let even = _mm512_mask_blend_epi8(LOW, _mm512_slli_epi16::<8>(b), a);
            let odd = _mm512_mask_blend_epi8(LOW, b, _mm512_srli_epi16::<8>(a));
            let mut out = [a; 8];
            for (h, index) in [even, odd].into_iter().enumerate() {
                let upper = _mm512_movepi8_mask(index);
                for j in 0..4 {
                    let t: *const u8 = PLANES_PLUS_64[j].as_ptr();
                    let (t0, t1) = (_mm512_loadu_si512(t.cast()), _mm512_loadu_si512(t.add(64).cast()));
                    let (t2, t3) = (_mm512_loadu_si512(t.add(128).cast()), _mm512_loadu_si512(t.add(192).cast()));
                    let low = _mm512_permutex2var_epi8(t0, index, t1);
                    let high = _mm512_permutex2var_epi8(t2, index, t3);
                    let plus = _mm512_mask_blend_epi8(upper, low, high);
                    let negative = _mm512_test_epi8_mask(signs, _mm512_set1_epi8((1u8 << (4 * h + j)) as i8));
                    // 64 + G becomes 64 - G.
                    out[4 * h + j] = _mm512_mask_sub_epi8(plus, negative, _mm512_set1_epi8(-128), plus);
                }
            }
            out
        }
    }

    #[inline(always)]
    unsafe fn gather(table: &[u32; 256], a: I) -> I {
        // SAFETY: the caller promises AVX-512F; indices below 256 stay in the table.
        unsafe {
            let index = _mm512_and_si512(a, _mm512_set1_epi32(255));
            _mm512_i32gather_epi32::<4>(index, table.as_ptr().cast())
        }
    }
}
