//! AVX-512 as processors have it since Ice Lake and Zen 4: F, BW, VL, DQ, VNNI, VBMI, GFNI.
//!
//! SAFETY of every block here: the type is used only by the entry points of `table`, which are compiled with these
//! features and offered when the processor has them; pointers are the caller's promise (`Isa`).

use super::isa::Isa;
use super::lattice::PLANES_PLUS_64;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(super) struct Avx512;

impl Isa for Avx512 {
    type I = __m512i;
    type F = __m512;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn splat(v: u32) -> __m512i {
        unsafe { _mm512_set1_epi32(v as i32) }
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn shl<const N: u32>(a: __m512i) -> __m512i {
        unsafe { _mm512_slli_epi32::<N>(a) }
    }
    #[inline(always)]
    unsafe fn shr<const N: u32>(a: __m512i) -> __m512i {
        unsafe { _mm512_srli_epi32::<N>(a) }
    }
    #[inline(always)]
    unsafe fn sar<const N: u32>(a: __m512i) -> __m512i {
        unsafe { _mm512_srai_epi32::<N>(a) }
    }
    #[inline(always)]
    unsafe fn add32(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn add8(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi8(a, b) }
    }
    #[inline(always)]
    unsafe fn lut(table: &[u8; 16], a: __m512i) -> __m512i {
        unsafe { _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), a) }
    }
    #[inline(always)]
    unsafe fn flag(a: __m512i, bits: __m512i, value: __m512i) -> __m512i {
        unsafe { _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(a, bits), value) }
    }
    #[inline(always)]
    unsafe fn twice<const HIGH: bool>(a: __m512i) -> __m512i {
        let low = i64::from_le_bytes([0, 0, 1, 1, 4, 4, 5, 5]);
        let step = i64::from_le_bytes([2; 8]) * HIGH as i64;
        let (low, high) = (low + step, low + step + i64::from_le_bytes([8; 8]));
        unsafe { _mm512_shuffle_epi8(a, _mm512_set_epi64(high, low, high, low, high, low, high, low)) }
    }
    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(acc: __m512i, u: __m512i, s: i32) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(acc, u, _mm512_set1_epi32(s)) }
    }
    #[inline(always)]
    unsafe fn to_f(a: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    unsafe fn bits(a: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(a) }
    }
    #[inline(always)]
    unsafe fn splat_f(v: f32) -> __m512 {
        unsafe { _mm512_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn load_f(p: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store_f(p: *mut f32, a: __m512) {
        unsafe { _mm512_storeu_ps(p, a) }
    }
    #[inline(always)]
    unsafe fn add_f(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_f(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn halves(a: __m512i) -> [__m512; 2] {
        unsafe {
            let high = _mm512_srli_epi32::<16>(a);
            [_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)), _mm512_cvtph_ps(_mm512_cvtepi32_epi16(high))]
        }
    }
    #[inline(always)]
    unsafe fn load_halves(p: *const u8) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> __m512i {
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[inline(always)]
    unsafe fn arrange(order: &[u8; 64], codes: &[i8; 64]) -> [i32; 16] {
        let mut out = [0i32; 16];
        unsafe {
            let (order, codes) = (Self::load(order.as_ptr()), Self::load(codes.as_ptr().cast()));
            _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_permutexvar_epi8(order, codes));
        }
        out
    }

    /// 4 x 4 blocks of words inside the 128-bit quarters, then the quarters.
    #[inline(always)]
    unsafe fn transpose(rows: &[*const u8; 16], out: *mut u32) {
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
    unsafe fn lattice(a: __m512i, b: __m512i, signs: __m512i) -> [__m512i; 8] {
        const LOW: u64 = 0x5555_5555_5555_5555;
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
    unsafe fn gather(table: &[u32; 256], a: __m512i) -> __m512i {
        unsafe {
            let index = _mm512_and_si512(a, _mm512_set1_epi32(255));
            _mm512_i32gather_epi32::<4>(index, table.as_ptr().cast())
        }
    }
}
