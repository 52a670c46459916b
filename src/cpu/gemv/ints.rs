//! Products with integer codes: sums of bytes, put together per group.

use super::input::Input;
use super::isa::Isa;
use super::order::UNIT;
use super::source::{Source, units};

/// How a format's words become bytes, and what its scales are.
pub(super) trait Codes {
    /// Parts of a unit with a scale of their own: 1, 2 or 4.
    const HALVES: usize;
    /// Whether the row has one scale.
    const ROW: bool;
    /// Whether bytes reach 128. Then two products with int8 inputs may leave an i16 (those with digits never do).
    const LARGE: bool = false;
    /// Codes plus the coding's offset, in its order.
    ///
    /// # Safety
    /// As [`Isa`] and [`Source`].
    unsafe fn codes<S: Isa, T: Source>(t: &mut T, unit: usize) -> [S::I; 16];
    /// Scales of group `group` (of 64 / HALVES columns); of the row if `ROW`.
    ///
    /// # Safety
    /// As [`Isa`] and [`Source`].
    unsafe fn scales<S: Isa, T: Source>(&self, t: &mut T, group: usize) -> S::F;
}

/// Bytes as they are.
pub(super) struct Int8;
/// Nibbles with a scale per row.
pub(super) struct Int4;
/// Nibbles with a scale per `64 / HALVES * per` columns.
pub(super) struct Int4Groups<const HALVES: usize> {
    /// `2^32 / per`, rounded up: a division would cost as much as the group.
    inverse: u64,
}

impl<const HALVES: usize> Int4Groups<HALVES> {
    /// Scales that hold for `per` groups of `64 / HALVES` columns.
    pub fn new(per: usize) -> Self {
        Int4Groups { inverse: (1u64 << 32).div_ceil(per as u64) }
    }
}
pub(super) struct Int2;
pub(super) struct Int3;
pub(super) struct Mxfp4;
pub(super) struct E8;

/// The low and the high nibble of every byte of eight words.
///
/// # Safety
/// As [`Isa`] and [`Source`].
#[inline(always)]
unsafe fn nibbles<S: Isa, T: Source>(t: &mut T, unit: usize) -> [S::I; 16] {
    // SAFETY: the caller's promise; of eight words of 16 lanes, each load takes one.
    unsafe {
        let p = t.words::<S>(0, unit, 8);
        let mask = S::splat(0x0f0f_0f0f);
        let mut out = [mask; 16];
        for w in 0..8 {
            let v = S::load(p.add(64 * w));
            out[2 * w] = S::and(v, mask);
            out[2 * w + 1] = S::and(S::shr::<4>(v), mask);
        }
        out
    }
}

/// The four pairs of bits of every byte of four words.
///
/// # Safety
/// As [`Isa`]; there must be 256 bytes at `p`.
#[inline(always)]
unsafe fn pairs<S: Isa>(p: *const u8) -> [S::I; 16] {
    // SAFETY: the caller's promise; each of four loads takes 64 bytes of the 256.
    unsafe {
        let mask = S::splat(0x0303_0303);
        let mut out = [mask; 16];
        for w in 0..4 {
            let v = S::load(p.add(64 * w));
            out[4 * w] = S::and(v, mask);
            out[4 * w + 1] = S::and(S::shr::<2>(v), mask);
            out[4 * w + 2] = S::and(S::shr::<4>(v), mask);
            out[4 * w + 3] = S::and(S::shr::<6>(v), mask);
        }
        out
    }
}

impl Codes for Int8 {
    const HALVES: usize = 1;
    const ROW: bool = true;
    const LARGE: bool = true;
    #[inline(always)]
    unsafe fn codes<S: Isa, T: Source>(t: &mut T, unit: usize) -> [S::I; 16] {
        // SAFETY: the caller's promise; of 16 words of 16 lanes, each load takes one.
        unsafe {
            let p = t.words::<S>(0, unit, 16);
            let flip = S::splat(0x8080_8080);
            let mut out = [flip; 16];
            for (w, out) in out.iter_mut().enumerate() {
                *out = S::xor(S::load(p.add(64 * w)), flip);
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn scales<S: Isa, T: Source>(&self, t: &mut T, _: usize) -> S::F {
        // SAFETY: the caller's promise; a row has one scale.
        unsafe { t.scales::<S>(0) }
    }
}

impl Codes for Int4 {
    const HALVES: usize = 1;
    const ROW: bool = true;
    #[inline(always)]
    unsafe fn codes<S: Isa, T: Source>(t: &mut T, unit: usize) -> [S::I; 16] {
        // SAFETY: the caller's promise.
        unsafe { nibbles::<S, T>(t, unit) }
    }
    #[inline(always)]
    unsafe fn scales<S: Isa, T: Source>(&self, t: &mut T, _: usize) -> S::F {
        // SAFETY: the caller's promise; a row has one scale.
        unsafe { t.scales::<S>(0) }
    }
}

impl<const H: usize> Codes for Int4Groups<H> {
    const HALVES: usize = H;
    const ROW: bool = false;
    #[inline(always)]
    unsafe fn codes<S: Isa, T: Source>(t: &mut T, unit: usize) -> [S::I; 16] {
        // SAFETY: the caller's promise.
        unsafe { nibbles::<S, T>(t, unit) }
    }
    #[inline(always)]
    unsafe fn scales<S: Isa, T: Source>(&self, t: &mut T, group: usize) -> S::F {
        // Exact for all groups below 2^32 / per, more than rows have.
        let group = ((group as u64 * self.inverse) >> 32) as usize;
        // SAFETY: the caller's promise: a group that the matrix has lies in a scale's columns that it has too.
        unsafe { t.scales::<S>(group) }
    }
}

impl Codes for Int2 {
    const HALVES: usize = 1;
    const ROW: bool = true;
    #[inline(always)]
    unsafe fn codes<S: Isa, T: Source>(t: &mut T, unit: usize) -> [S::I; 16] {
        // SAFETY: the caller's promise; four words of 16 lanes are 256 bytes.
        unsafe { pairs::<S>(t.words::<S>(0, unit, 4)) }
    }
    #[inline(always)]
    unsafe fn scales<S: Isa, T: Source>(&self, t: &mut T, _: usize) -> S::F {
        // SAFETY: the caller's promise; a row has one scale.
        unsafe { t.scales::<S>(0) }
    }
}

impl Codes for Int3 {
    const HALVES: usize = 1;
    const ROW: bool = false;
    #[inline(always)]
    unsafe fn codes<S: Isa, T: Source>(t: &mut T, unit: usize) -> [S::I; 16] {
        // SAFETY: the caller's promise; of six words of 16 lanes `pairs` takes four, and each half of the other two
        // is loaded twice.
        unsafe {
            let p = t.words::<S>(0, unit, 6);
            let (mut out, four) = (pairs::<S>(p), S::splat(0x0404_0404));
            for w in 0..4 {
                // Half a word has the high bits of 16 columns: bits 4 (k & 1) + f of byte k / 2.
                let high = S::load(p.add(64 * (4 + w / 2)));
                let high = if w % 2 == 0 { S::twice::<false>(high) } else { S::twice::<true>(high) };
                for f in 0..4 {
                    let bits = S::splat(0x1001_1001 << f);
                    out[4 * w + f] = S::or(out[4 * w + f], S::flag(high, bits, four));
                }
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn scales<S: Isa, T: Source>(&self, t: &mut T, group: usize) -> S::F {
        // SAFETY: the caller's promise: groups are those of the scales.
        unsafe { t.scales::<S>(group) }
    }
}

impl Codes for Mxfp4 {
    const HALVES: usize = 2;
    const ROW: bool = false;
    #[inline(always)]
    unsafe fn codes<S: Isa, T: Source>(t: &mut T, unit: usize) -> [S::I; 16] {
        /// Twice the value plus 12.
        const E2M1: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];
        // SAFETY: the caller's promise; nibbles lie below 16, as `lut` asks.
        unsafe {
            let mut out = nibbles::<S, T>(t, unit);
            for v in &mut out {
                *v = S::lut(&E2M1, *v);
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn scales<S: Isa, T: Source>(&self, t: &mut T, group: usize) -> S::F {
        // SAFETY: the caller's promise: groups are those of the exponents.
        unsafe { S::mul_f(S::bits(S::shl::<23>(t.exponents::<S>(group))), S::splat_f(0.5)) }
    }
}

impl Codes for E8 {
    const HALVES: usize = 2;
    const ROW: bool = false;
    #[inline(always)]
    unsafe fn codes<S: Isa, T: Source>(t: &mut T, unit: usize) -> [S::I; 16] {
        // SAFETY: the caller's promise; of four words of indices and two of signs, each load takes one.
        unsafe {
            let (index, signs) = (t.words::<S>(0, unit, 4), t.words::<S>(1, unit, 2));
            let mut out = [S::splat(0); 16];
            for h in 0..2 {
                let at = index.add(128 * h);
                let part = S::lattice(S::load(at), S::load(at.add(64)), S::load(signs.add(64 * h)));
                out[8 * h..8 * h + 8].copy_from_slice(&part);
            }
            out
        }
    }
    /// `(2 code + 1) (d / 8)`, exact.
    #[inline(always)]
    unsafe fn scales<S: Isa, T: Source>(&self, t: &mut T, group: usize) -> S::F {
        // SAFETY: the caller's promise: `group / 2` is a unit, and `group / 8` the block of 256 columns around it. A
        // unit has two words of signs, of which this loads the group's.
        unsafe {
            let signs = t.words::<S>(1, group / 2, 2).add(64 * (group % 2));
            let code = S::to_f(S::or(S::shl::<1>(S::shr::<28>(S::load(signs))), S::splat(1)));
            S::mul_f(code, S::mul_f(t.halves::<S>(group / 8), S::splat_f(0.125)))
        }
    }
}

/// `acc` plus the products of a step's bytes with those of `P` digits' input, or of an int8 input (`P` = 1).
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn dot<S: Isa, C: Codes, const P: usize>(acc: S::I, codes: S::I, step: i32) -> S::I {
    // SAFETY: the caller's promise. Bytes lie below 128 unless `LARGE` (the largest are 126, of E8). Digits reach 64,
    // and 2 * 255 * 64 is an i16; int8 inputs reach 127, and so is 2 * 126 * 127.
    unsafe {
        match (C::LARGE, P) {
            (true, 1) => S::dot::<true, true>(acc, codes, step),
            (true, _) => S::dot::<true, false>(acc, codes, step),
            (false, _) => S::dot::<false, false>(acc, codes, step),
        }
    }
}

/// `y` of `N` input rows in f32 digits, or in groups of int8 (`P` = 1). `sums` has the rows' sums so far.
///
/// # Safety
/// As [`tile`]; `unit` must be one that the matrix has.
#[inline(always)]
unsafe fn groups<S: Isa, T: Source, C: Codes, const P: usize, const N: usize>(
    c: &C,
    t: &mut T,
    unit: usize,
    codes: &[S::I; 16],
    x: [&Input; N],
    sums: &mut [S::F; N],
) {
    let steps = 16 / C::HALVES;
    for h in 0..C::HALVES {
        let group = unit * C::HALVES + h;
        // SAFETY: the caller's promise. An input has for each group a value, `P` starts and `P` times `steps` steps,
        // since it was prepared with the group size of `C`, for as many columns as the matrix has.
        unsafe {
            let mut acc = [[S::splat(0); P]; N];
            let mut at = [std::ptr::null::<i32>(); N];
            for n in 0..N {
                let starts = x[n].starts.as_ptr().add(group * P);
                for (p, acc) in acc[n].iter_mut().enumerate() {
                    *acc = S::splat(*starts.add(p) as u32);
                }
                at[n] = x[n].steps.as_ptr().add(group * P * steps);
            }
            for s in 0..steps {
                for n in 0..N {
                    for (p, acc) in acc[n].iter_mut().enumerate() {
                        *acc = dot::<S, C, P>(*acc, codes[h * steps + s], *at[n].add(p * steps + s));
                    }
                }
            }
            let scale = if C::ROW { S::splat_f(1.0) } else { c.scales::<S, T>(t, group) };
            for n in 0..N {
                let mut z = S::to_f(acc[n][P - 1]);
                for p in (0..P - 1).rev() {
                    // 128 z is exact, so this rounds once, fused or not.
                    z = S::fma(z, S::splat_f(128.0), S::to_f(acc[n][p]));
                }
                let share = S::splat_f(*x[n].values.as_ptr().add(group));
                let share = if C::ROW { share } else { S::mul_f(scale, share) };
                sums[n] = S::add_f(sums[n], S::mul_f(z, share));
            }
        }
    }
}

/// The 16 outputs of a tile for every input row. `out` has one line an input row.
///
/// # Safety
/// As [`Isa`] and [`Source`]; inputs must be prepared in the form that `C` and `P` take.
#[inline(always)]
pub(super) unsafe fn tile<S: Isa, T: Source, C: Codes, const P: usize>(
    c: &C,
    t: &mut T,
    x: &[&Input],
    out: &mut [[f32; 16]],
) {
    // SAFETY: the caller's promise; units run over those of the matrix.
    unsafe {
        let zero = S::splat_f(0.0);
        if let [one] = x {
            let mut sum = [zero];
            for unit in 0..units(x[0].cols) {
                let codes = C::codes::<S, T>(t, unit);
                groups::<S, T, C, P, 1>(c, t, unit, &codes, [one], &mut sum);
            }
            return finish::<S, T, C>(c, t, sum[0], &mut out[0]);
        }
        let mut sums = vec![zero; x.len()];
        for unit in 0..units(x[0].cols) {
            // Unpacked once for all rows: without the black box the compiler unpacks again for every two.
            let codes = std::hint::black_box(C::codes::<S, T>(t, unit));
            let (blocks, rest) = x.as_chunks::<2>();
            let (sums, last) = sums.as_chunks_mut::<2>();
            for (x, sums) in blocks.iter().zip(sums) {
                groups::<S, T, C, P, 2>(c, t, unit, &codes, *x, sums);
            }
            if let ([x], [sum]) = (rest, last) {
                let mut one = [*sum];
                groups::<S, T, C, P, 1>(c, t, unit, &codes, [x], &mut one);
                *sum = one[0];
            }
        }
        for (sum, out) in sums.into_iter().zip(out) {
            finish::<S, T, C>(c, t, sum, out);
        }
    }
}

/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn finish<S: Isa, T: Source, C: Codes>(c: &C, t: &mut T, sum: S::F, out: &mut [f32; 16]) {
    // SAFETY: the caller's promise; `out` has room for the 16 values.
    unsafe {
        let sum = if C::ROW { S::mul_f(sum, c.scales::<S, T>(t, 0)) } else { sum };
        S::store_f(out.as_mut_ptr(), sum);
    }
}

/// [`tile`] for int8 inputs with one scale a row: one integer sum over the whole row.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
pub(super) unsafe fn whole<S: Isa, T: Source, C: Codes>(c: &C, t: &mut T, x: &[&Input], out: &mut [[f32; 16]]) {
    // SAFETY: the caller's promise; units run over those of the matrix, for each of which an input has 16 steps.
    unsafe {
        for (x, out) in x.chunks(4).zip(out.chunks_mut(4)) {
            let mut sums = [S::splat(0); 4];
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = S::splat(x.starts.iter().fold(0i32, |a, b| a.wrapping_add(*b)) as u32);
            }
            for unit in 0..units(x[0].cols) {
                let codes = C::codes::<S, T>(t, unit);
                for (sum, x) in sums.iter_mut().zip(x) {
                    let steps = x.steps.as_ptr().add(unit * UNIT / 4);
                    let mut acc = [*sum, S::splat(0)];
                    for s in 0..16 {
                        acc[s % 2] = dot::<S, C, 1>(acc[s % 2], codes[s], *steps.add(s));
                    }
                    *sum = S::add32(acc[0], acc[1]);
                }
            }
            let scale = c.scales::<S, T>(t, 0);
            for ((sum, x), out) in sums.into_iter().zip(x).zip(out) {
                let s = S::splat_f(x.values.first().copied().unwrap_or(0.0));
                S::store_f(out.as_mut_ptr(), S::mul_f(S::mul_f(S::to_f(sum), scale), s));
            }
        }
    }
}
