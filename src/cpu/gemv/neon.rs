//! NEON: four vectors of four lanes. What differs between processors is [`Dot`].

use super::isa::{Isa, registers};
use std::arch::aarch64::*;
use std::arch::asm;
use std::marker::PhantomData;

/// NEON, with the sums of products of `D`.
#[derive(Clone, Copy)]
pub(super) struct Neon<D>(PhantomData<D>);

type I = [uint32x4_t; 4];
type F = [float32x4_t; 4];

/// The part of [`Isa`] that extensions make faster.
pub(super) trait Dot: Copy {
    /// # Safety
    /// As [`Isa::dot`].
    unsafe fn dot<const LARGE: bool, const WIDE: bool>(acc: I, u: I, s: i32) -> I;
}

/// What every aarch64 processor has: products of two bytes as i16, added up in pairs.
#[derive(Clone, Copy)]
pub(super) struct Pairs;
/// The extension `dotprod`: four products and their sum at once, of bytes that are both signed.
#[derive(Clone, Copy)]
pub(super) struct Signed;
/// The extension `i8mm`: the same with one side unsigned, which is [`Isa::dot`] itself.
#[derive(Clone, Copy)]
pub(super) struct Mixed;

/// `acc` plus the products of four bytes for every word. The intrinsic of this instruction is unstable.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut out = acc;
    // SAFETY: one instruction on registers, of an extension that this function is compiled with.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) out, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// [`sdot`] with `a` unsigned, unstable as well.
#[inline]
#[target_feature(enable = "neon,i8mm")]
fn usdot(acc: int32x4_t, a: uint8x16_t, b: int8x16_t) -> int32x4_t {
    let mut out = acc;
    // SAFETY: one instruction on registers, of an extension that this function is compiled with.
    unsafe {
        asm!("usdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) out, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    out
}

impl Dot for Pairs {
    registers! { "neon";
        fn dot<const LARGE: bool, const WIDE: bool>(acc: I, u: I, s: i32) -> I {
            let (s, mut acc) = (vreinterpretq_s8_s32(vdupq_n_s32(s)), acc);
            for (acc, u) in acc.iter_mut().zip(u) {
                let (sum, u) = (vreinterpretq_s32_u32(*acc), vreinterpretq_u8_u32(u));
                // One product fits into an i16 in any case.
                let (low, high) = if LARGE {
                    let low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(u)));
                    let high = vreinterpretq_s16_u16(vmovl_high_u8(u));
                    (vmulq_s16(low, vmovl_s8(vget_low_s8(s))), vmulq_s16(high, vmovl_high_s8(s)))
                } else {
                    let u = vreinterpretq_s8_u8(u);
                    (vmull_s8(vget_low_s8(u), vget_low_s8(s)), vmull_high_s8(u, s))
                };
                *acc = vreinterpretq_u32_s32(if WIDE {
                    vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))
                } else {
                    vpadalq_s16(sum, vpaddq_s16(low, high))
                });
            }
            acc
        }
    }
}

impl Dot for Signed {
    registers! { "neon,dotprod";
        fn dot<const LARGE: bool, const WIDE: bool>(acc: I, u: I, s: i32) -> I {
            let (s, mut acc) = (vreinterpretq_s8_s32(vdupq_n_s32(s)), acc);
            // Large bytes become signed by taking 128 off: what that takes off the sum is the same in all lanes.
            let missing = sdot(vdupq_n_s32(0), s, vdupq_n_s8(-128));
            for (acc, u) in acc.iter_mut().zip(u) {
                let (sum, u) = (vreinterpretq_s32_u32(*acc), vreinterpretq_u8_u32(u));
                *acc = vreinterpretq_u32_s32(if LARGE {
                    let u = vreinterpretq_s8_u8(veorq_u8(u, vdupq_n_u8(128)));
                    sdot(vsubq_s32(sum, missing), u, s)
                } else {
                    sdot(sum, vreinterpretq_s8_u8(u), s)
                });
            }
            acc
        }
    }
}

impl Dot for Mixed {
    registers! { "neon,i8mm";
        fn dot<const LARGE: bool, const WIDE: bool>(acc: I, u: I, s: i32) -> I {
            let (s, mut acc) = (vreinterpretq_s8_s32(vdupq_n_s32(s)), acc);
            for (acc, u) in acc.iter_mut().zip(u) {
                *acc = vreinterpretq_u32_s32(usdot(vreinterpretq_s32_u32(*acc), vreinterpretq_u8_u32(u), s));
            }
            acc
        }
    }
}

/// An operation on the vectors of one operand, and of two.
#[inline(always)]
fn each<A: Copy, B>(a: [A; 4], f: impl Fn(A) -> B) -> [B; 4] {
    std::array::from_fn(|k| f(a[k]))
}

#[inline(always)]
fn pairs<A: Copy, B>(a: [A; 4], b: [A; 4], f: impl Fn(A, A) -> B) -> [B; 4] {
    std::array::from_fn(|k| f(a[k], b[k]))
}

impl<D: Dot> Isa for Neon<D> {
    type I = I;
    type F = F;

    registers! { "neon";
        fn splat(v: u32) -> I { [vdupq_n_u32(v); 4] }
        fn and(a: I, b: I) -> I { pairs(a, b, |a, b| vandq_u32(a, b)) }
        fn or(a: I, b: I) -> I { pairs(a, b, |a, b| vorrq_u32(a, b)) }
        fn xor(a: I, b: I) -> I { pairs(a, b, |a, b| veorq_u32(a, b)) }
        // Counts in a register: the immediates of these instructions have another type than that of AVX-512.
        fn shl<const N: u32>(a: I) -> I { each(a, |a| vshlq_u32(a, vdupq_n_s32(N as i32))) }
        fn shr<const N: u32>(a: I) -> I { each(a, |a| vshlq_u32(a, vdupq_n_s32(-(N as i32)))) }
        fn sar<const N: u32>(a: I) -> I {
            each(a, |a| vreinterpretq_u32_s32(vshlq_s32(vreinterpretq_s32_u32(a), vdupq_n_s32(-(N as i32)))))
        }
        fn add32(a: I, b: I) -> I { pairs(a, b, |a, b| vaddq_u32(a, b)) }
        fn add8(a: I, b: I) -> I {
            pairs(a, b, |a, b| vreinterpretq_u32_u8(vaddq_u8(vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(b))))
        }
        fn flag(a: I, bits: I, value: I) -> I {
            let set = pairs(a, bits, |a, b| vtstq_u8(vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(b)));
            std::array::from_fn(|k| vandq_u32(vreinterpretq_u32_u8(set[k]), value[k]))
        }
        fn twice<const HIGH: bool>(a: I) -> I {
            let low = u64::from_le_bytes([0, 0, 1, 1, 4, 4, 5, 5]) + u64::from_le_bytes([2; 8]) * u64::from(HIGH);
            let high = low + u64::from_le_bytes([8; 8]);
            let places = vcombine_u8(vcreate_u8(low), vcreate_u8(high));
            each(a, |a| vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(a), places)))
        }
        fn to_f(a: I) -> F { each(a, |a| vcvtq_f32_s32(vreinterpretq_s32_u32(a))) }
        fn bits(a: I) -> F { each(a, |a| vreinterpretq_f32_u32(a)) }
        fn splat_f(v: f32) -> F { [vdupq_n_f32(v); 4] }
        fn add_f(a: F, b: F) -> F { pairs(a, b, |a, b| vaddq_f32(a, b)) }
        fn mul_f(a: F, b: F) -> F { pairs(a, b, |a, b| vmulq_f32(a, b)) }
        fn fma(a: F, b: F, c: F) -> F { std::array::from_fn(|k| vfmaq_f32(c[k], a[k], b[k])) }
        fn halves(a: I) -> [F; 2] {
            let low = each(a, |a| vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(a))));
            [low, each(a, |a| vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32::<16>(a))))]
        }
    }

    #[inline(always)]
    unsafe fn dot<const LARGE: bool, const WIDE: bool>(acc: I, u: I, s: i32) -> I {
        // SAFETY: the caller's promise holds for the instruction set that `D` stands for.
        unsafe { D::dot::<LARGE, WIDE>(acc, u, s) }
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> I {
        // SAFETY: the caller promises 64 bytes at `p`: four times 16.
        std::array::from_fn(|k| unsafe { vreinterpretq_u32_u8(vld1q_u8(p.add(16 * k))) })
    }
    #[inline(always)]
    unsafe fn load_f(p: *const f32) -> F {
        // SAFETY: the caller promises 16 values at `p`: four times four.
        std::array::from_fn(|k| unsafe { vld1q_f32(p.add(4 * k)) })
    }
    #[inline(always)]
    unsafe fn store_f(p: *mut f32, a: F) {
        for (k, a) in a.into_iter().enumerate() {
            // SAFETY: the caller promises room for 16 values at `p`: four times four.
            unsafe { vst1q_f32(p.add(4 * k), a) };
        }
    }
    #[inline(always)]
    unsafe fn lut(table: &[u8; 16], a: I) -> I {
        // SAFETY: the caller promises NEON; the table has the 16 bytes that are read.
        unsafe {
            let table = vld1q_u8(table.as_ptr());
            each(a, |a| vreinterpretq_u32_u8(vqtbl1q_u8(table, vreinterpretq_u8_u32(a))))
        }
    }
    #[inline(always)]
    unsafe fn load_halves(p: *const u8) -> F {
        // SAFETY: the caller promises 32 bytes at `p`: four times eight.
        std::array::from_fn(|k| unsafe { vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p.add(8 * k)))) })
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> I {
        // SAFETY: the caller promises 16 bytes at `p`; the rest works on values.
        unsafe {
            let bytes = vld1q_u8(p);
            let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
            let parts = [vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low)];
            [parts[0], parts[1], vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)]
        }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SAFETY: a hint, which reads nothing that a program can see and faults at no address.
        unsafe { asm!("prfm pldl1keep, [{0}]", in(reg) p, options(nostack, readonly, preserves_flags)) }
    }

    /// One table of 64 bytes, looked up 16 times at once.
    #[inline(always)]
    unsafe fn arrange(order: &[u8; 64], codes: &[i8; 64]) -> [i32; 16] {
        let mut out = [0i32; 16];
        // SAFETY: `order`, `codes` and `out` have the 64 bytes that are read and written, 16 at a time.
        unsafe {
            let codes = vld1q_u8_x4(codes.as_ptr().cast());
            for k in 0..4 {
                let part = vqtbl4q_u8(codes, vld1q_u8(order.as_ptr().add(16 * k)));
                vst1q_s32(out.as_mut_ptr().add(4 * k), vreinterpretq_s32_u8(part));
            }
        }
        out
    }

    /// Blocks of 4 x 4 words: pairs of words, then pairs of pairs.
    #[inline(always)]
    unsafe fn transpose(rows: &[*const u8; 16], out: *mut u32) {
        for (r, rows) in rows.as_chunks::<4>().0.iter().enumerate() {
            for w in 0..4 {
                // SAFETY: the caller promises 64 bytes at each row, of which these are 16 from `16 w` on, and 256
                // words at `out`: the last four written here start at 15 * 16 + 12.
                unsafe {
                    let [a, b, c, d] = rows.map(|row| vreinterpretq_u32_u8(vld1q_u8(row.add(16 * w))));
                    let even = [vtrn1q_u32(a, b), vtrn1q_u32(c, d)].map(|v| vreinterpretq_u64_u32(v));
                    let odd = [vtrn2q_u32(a, b), vtrn2q_u32(c, d)].map(|v| vreinterpretq_u64_u32(v));
                    let words = [
                        vtrn1q_u64(even[0], even[1]),
                        vtrn1q_u64(odd[0], odd[1]),
                        vtrn2q_u64(even[0], even[1]),
                        vtrn2q_u64(odd[0], odd[1]),
                    ];
                    for (k, word) in words.into_iter().enumerate() {
                        vst1q_u32(out.add((4 * w + k) * 16 + 4 * r), vreinterpretq_u32_u64(word));
                    }
                }
            }
        }
    }

    /// No instruction gathers: lane by lane, through memory.
    #[inline(always)]
    unsafe fn gather(table: &[u32; 256], a: I) -> I {
        let mut words = [0u32; 16];
        for (words, a) in words.as_chunks_mut::<4>().0.iter_mut().zip(a) {
            // SAFETY: room for the four words.
            unsafe { vst1q_u32(words.as_mut_ptr(), a) };
        }
        let words = words.map(|at| table[at as usize & 255]);
        // SAFETY: 16 words are 64 bytes.
        unsafe { Self::load(words.as_ptr().cast()) }
    }
}
