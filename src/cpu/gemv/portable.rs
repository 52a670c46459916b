//! Lanes as arrays: what every processor can do. The compiler makes vector code of the loops where it can.

use super::isa::Isa;
use half::f16;

#[derive(Clone, Copy)]
pub(super) struct Portable;

/// Whether to fuse: where the processor has no such instruction it is a slow call.
const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

type I = [u32; 16];
type F = [f32; 16];

#[inline(always)]
fn each(a: I, b: I, f: impl Fn(u32, u32) -> u32) -> I {
    std::array::from_fn(|l| f(a[l], b[l]))
}

#[inline(always)]
fn bytes(a: I, b: I, f: impl Fn(u8, u8) -> u8) -> I {
    each(a, b, |a, b| {
        let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
        u32::from_le_bytes(std::array::from_fn(|k| f(a[k], b[k])))
    })
}

impl Isa for Portable {
    type I = I;
    type F = F;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> I {
        // SAFETY: the caller's promise: 64 bytes at `p`.
        let raw = unsafe { p.cast::<[[u8; 4]; 16]>().read_unaligned() };
        raw.map(u32::from_le_bytes)
    }
    #[inline(always)]
    unsafe fn splat(v: u32) -> I {
        [v; 16]
    }
    #[inline(always)]
    unsafe fn and(a: I, b: I) -> I {
        each(a, b, |a, b| a & b)
    }
    #[inline(always)]
    unsafe fn or(a: I, b: I) -> I {
        each(a, b, |a, b| a | b)
    }
    #[inline(always)]
    unsafe fn xor(a: I, b: I) -> I {
        each(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    unsafe fn shl<const N: u32>(a: I) -> I {
        a.map(|a| a << N)
    }
    #[inline(always)]
    unsafe fn shr<const N: u32>(a: I) -> I {
        a.map(|a| a >> N)
    }
    #[inline(always)]
    unsafe fn sar<const N: u32>(a: I) -> I {
        a.map(|a| (a as i32 >> N) as u32)
    }
    #[inline(always)]
    unsafe fn add32(a: I, b: I) -> I {
        each(a, b, u32::wrapping_add)
    }
    #[inline(always)]
    unsafe fn add8(a: I, b: I) -> I {
        bytes(a, b, u8::wrapping_add)
    }
    #[inline(always)]
    unsafe fn lut(table: &[u8; 16], a: I) -> I {
        a.map(|a| u32::from_le_bytes(a.to_le_bytes().map(|b| table[usize::from(b & 15)])))
    }
    #[inline(always)]
    unsafe fn flag(a: I, bits: I, value: I) -> I {
        let hit = bytes(a, bits, |a, b| if a & b != 0 { 0xff } else { 0 });
        each(hit, value, |hit, value| hit & value)
    }
    #[inline(always)]
    unsafe fn twice<const HIGH: bool>(a: I) -> I {
        a.map(|a| {
            let [b0, b1, b2, b3] = a.to_le_bytes();
            u32::from_le_bytes(if HIGH { [b2, b2, b3, b3] } else { [b0, b0, b1, b1] })
        })
    }
    #[inline(always)]
    unsafe fn dot<const LARGE: bool, const WIDE: bool>(acc: I, u: I, s: i32) -> I {
        let s = s.to_le_bytes().map(|s| i32::from(s as i8));
        each(acc, u, |acc, u| {
            let u = u.to_le_bytes().map(i32::from);
            acc.wrapping_add((u[0] * s[0] + u[1] * s[1] + u[2] * s[2] + u[3] * s[3]) as u32)
        })
    }
    #[inline(always)]
    unsafe fn to_f(a: I) -> F {
        a.map(|a| a as i32 as f32)
    }
    #[inline(always)]
    unsafe fn bits(a: I) -> F {
        a.map(f32::from_bits)
    }
    #[inline(always)]
    unsafe fn splat_f(v: f32) -> F {
        [v; 16]
    }
    #[inline(always)]
    unsafe fn load_f(p: *const f32) -> F {
        // SAFETY: the caller's promise: 16 values at `p`. Stored numbers are little-endian.
        unsafe { Self::load(p.cast()) }.map(f32::from_bits)
    }
    #[inline(always)]
    unsafe fn store_f(p: *mut f32, a: F) {
        // SAFETY: the caller's promise: room for 16 values at `p`.
        unsafe { p.cast::<F>().write_unaligned(a) }
    }
    #[inline(always)]
    unsafe fn add_f(a: F, b: F) -> F {
        std::array::from_fn(|l| a[l] + b[l])
    }
    #[inline(always)]
    unsafe fn mul_f(a: F, b: F) -> F {
        std::array::from_fn(|l| a[l] * b[l])
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        std::array::from_fn(|l| if FUSED { a[l].mul_add(b[l], c[l]) } else { a[l] * b[l] + c[l] })
    }
    #[inline(always)]
    unsafe fn halves(a: I) -> [F; 2] {
        let of = |v: u32| f16::from_bits(v as u16).to_f32();
        [a.map(of), a.map(|a| of(a >> 16))]
    }
    #[inline(always)]
    unsafe fn load_halves(p: *const u8) -> F {
        // SAFETY: the caller's promise: 32 bytes at `p`.
        let raw = unsafe { p.cast::<[[u8; 2]; 16]>().read_unaligned() };
        raw.map(|h| f16::from_le_bytes(h).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> I {
        // SAFETY: the caller's promise: 16 bytes at `p`.
        unsafe { p.cast::<[u8; 16]>().read_unaligned() }.map(u32::from)
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    #[inline(always)]
    unsafe fn gather(table: &[u32; 256], a: I) -> I {
        a.map(|a| table[a as usize & 255])
    }
}
