//! Products with floating-point weights: fused multiply-adds in four sums, column `i` in sum `i mod 4`.

use super::input::Input;
use super::isa::Isa;
use super::source::{Source, units};

/// How a format's words become f32.
pub(super) trait Values {
    /// Columns `16 part..` of a unit.
    ///
    /// # Safety
    /// As [`Isa`] and [`Source`]; `part` below four.
    unsafe fn values<S: Isa, T: Source>(t: &mut T, unit: usize, part: usize) -> [S::F; 16];
    /// Ones in the lanes of rows whose product is not a number whatever the input; 0 elsewhere.
    ///
    /// # Safety
    /// As [`Isa`] and [`Source`].
    #[inline(always)]
    unsafe fn poison<S: Isa, T: Source>(_: &mut T, _: usize) -> Option<S::I> {
        None
    }
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;
pub(super) struct Fp8;

impl Values for F32 {
    #[inline(always)]
    unsafe fn values<S: Isa, T: Source>(t: &mut T, unit: usize, part: usize) -> [S::F; 16] {
        // SAFETY: the caller's promise: quarters of units lie in the matrix. Of 16 words, each load takes one.
        unsafe {
            let p = t.words::<S>(0, unit * 4 + part, 16);
            let mut out = [S::splat_f(0.0); 16];
            for (w, out) in out.iter_mut().enumerate() {
                *out = S::bits(S::load(p.add(64 * w)));
            }
            out
        }
    }
}

impl Values for F16 {
    #[inline(always)]
    unsafe fn values<S: Isa, T: Source>(t: &mut T, unit: usize, part: usize) -> [S::F; 16] {
        // SAFETY: the caller's promise: quarters of units lie in the matrix. Of eight words, each load takes one.
        unsafe {
            let p = t.words::<S>(0, unit * 4 + part, 8);
            let mut out = [S::splat_f(0.0); 16];
            for w in 0..8 {
                [out[2 * w], out[2 * w + 1]] = S::halves(S::load(p.add(64 * w)));
            }
            out
        }
    }
}

impl Values for Bf16 {
    #[inline(always)]
    unsafe fn values<S: Isa, T: Source>(t: &mut T, unit: usize, part: usize) -> [S::F; 16] {
        // SAFETY: the caller's promise: quarters of units lie in the matrix. Of eight words, each load takes one.
        unsafe {
            let p = t.words::<S>(0, unit * 4 + part, 8);
            let (mut out, high) = ([S::splat_f(0.0); 16], S::splat(0xffff_0000));
            for w in 0..8 {
                let v = S::load(p.add(64 * w));
                out[2 * w] = S::bits(S::shl::<16>(v));
                out[2 * w + 1] = S::bits(S::and(v, high));
            }
            out
        }
    }
}

/// The bits of byte `K` of every word, as an f32 that is 2^-120 of the e4m3 value: sign, the exponent's four low
/// bits, the mantissa's three high ones.
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn e4m3<S: Isa, const UP: u32>(v: S::I) -> S::F {
    // SAFETY: the caller's promise: operations on values.
    unsafe {
        let top = if UP == 0 { v } else { S::shl::<UP>(v) };
        S::bits(S::and(S::sar::<4>(top), S::splat(0x87f0_0000)))
    }
}

impl Values for Fp8 {
    #[inline(always)]
    unsafe fn values<S: Isa, T: Source>(t: &mut T, unit: usize, part: usize) -> [S::F; 16] {
        /// Half the way from the bits to the value.
        const HALF: f32 = f32::from_bits((127 + 60) << 23);
        // SAFETY: the caller's promise: quarters of units lie in the matrix, and two units in a block of scales. Of
        // four words, each load takes one.
        unsafe {
            let p = t.words::<S>(0, unit * 4 + part, 4);
            let half = S::splat_f(HALF);
            // Exact, so that the value times the scale is rounded once, as the decoder does.
            let scale = S::mul_f(t.blocks::<S>(unit / 2), half);
            let mut out = [half; 16];
            for w in 0..4 {
                let v = S::load(p.add(64 * w));
                let raw = [e4m3::<S, 24>(v), e4m3::<S, 16>(v), e4m3::<S, 8>(v), e4m3::<S, 0>(v)];
                for (k, raw) in raw.into_iter().enumerate() {
                    out[4 * w + k] = S::mul_f(S::mul_f(raw, half), scale);
                }
            }
            out
        }
    }
    /// The two NaN codes have no bits that an f32 would take for NaN.
    #[inline(always)]
    unsafe fn poison<S: Isa, T: Source>(t: &mut T, unit: usize) -> Option<S::I> {
        // SAFETY: the caller's promise; of 16 words, each load takes one.
        unsafe {
            let p = t.words::<S>(0, unit, 16);
            let (mut any, low, one) = (S::splat(0), S::splat(0x7f7f_7f7f), S::splat(0x0101_0101));
            for w in 0..16 {
                // 0x7f plus one is the only magnitude to reach bit 7.
                any = S::or(any, S::add8(S::and(S::load(p.add(64 * w)), low), one));
            }
            Some(S::and(any, S::splat(0x8080_8080)))
        }
    }
}

/// `N` input rows meet 16 columns.
///
/// # Safety
/// As [`Isa`]; there must be 16 values at each of `x`.
#[inline(always)]
unsafe fn meet<S: Isa, const N: usize>(w: &[S::F; 16], x: [*const f32; N], acc: &mut [[S::F; 4]; N]) {
    // SAFETY: the caller's promise; `k` counts the 16 columns.
    unsafe {
        for (k, w) in w.iter().enumerate() {
            for n in 0..N {
                acc[n][k % 4] = S::fma(*w, S::splat_f(*x[n].add(k)), acc[n][k % 4]);
            }
        }
    }
}

/// The 16 outputs of a tile for every input row. `out` has one line an input row.
///
/// # Safety
/// As [`Isa`] and [`Source`]; inputs must be plain.
#[inline(always)]
pub(super) unsafe fn tile<S: Isa, T: Source, V: Values>(t: &mut T, x: &[&Input], out: &mut [[f32; 16]]) {
    // SAFETY: the caller's promise is that of `some`.
    unsafe {
        let (blocks, rest) = x.as_chunks::<4>();
        let (four, one) = out.split_at_mut(4 * blocks.len());
        for (x, out) in blocks.iter().zip(four.as_chunks_mut::<4>().0) {
            some::<S, T, V, 4>(t, x, out);
        }
        for (x, out) in rest.iter().zip(one) {
            some::<S, T, V, 1>(t, &[*x], std::array::from_mut(out));
        }
    }
}

/// [`tile`] for `N` input rows, whose sums stay in registers.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn some<S: Isa, T: Source, V: Values, const N: usize>(t: &mut T, x: &[&Input; N], out: &mut [[f32; 16]; N]) {
    // SAFETY: the caller's promise; units run over those of the matrix, and plain inputs have 64 values for each, four
    // times 16, since they are filled up to whole units.
    unsafe {
        let (mut acc, mut poison) = ([[S::splat_f(0.0); 4]; N], S::splat(0));
        for unit in 0..units(x[0].cols) {
            if let Some(p) = V::poison::<S, T>(t, unit) {
                poison = S::or(poison, p);
            }
            for part in 0..4 {
                let w = V::values::<S, T>(t, unit, part);
                let mut at = [std::ptr::null(); N];
                for (at, x) in at.iter_mut().zip(x) {
                    *at = x.values.as_ptr().add(unit * 64 + part * 16);
                }
                meet::<S, N>(&w, at, &mut acc);
            }
        }
        for (acc, out) in acc.iter().zip(out) {
            finish::<S>(acc, poison, out);
        }
    }
}

/// Adds the sums up; NaN for the lanes where `poison` is not zero.
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn finish<S: Isa>(sums: &[S::F; 4], poison: S::I, out: &mut [f32; 16]) {
    // SAFETY: the caller's promise; `out` and `lanes` have room for 16 values each.
    unsafe {
        let y = S::add_f(S::add_f(sums[0], sums[2]), S::add_f(sums[1], sums[3]));
        S::store_f(out.as_mut_ptr(), y);
        let mut lanes = [0.0; 16];
        S::store_f(lanes.as_mut_ptr(), S::bits(poison));
        out.iter_mut().zip(lanes).filter(|(_, p)| p.to_bits() != 0).for_each(|(y, _)| *y = f32::NAN);
    }
}
