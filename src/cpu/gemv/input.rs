//! Input rows as the kernels want them: once per row and coding, whatever the number of weight rows.
//!
//! **Integer codes, f32 inputs.** The columns of a group (64, 32 or 16) share a power of two `p` such that the largest
//! magnitude lies in `2^26 p .. 2^27 p`. Each value becomes the nearest integer of `x / p`, written in four digits
//! of base 128 between -64 and 64, and a weight's group is four exact integer sums that are rounded when they are
//! put together. What a value loses lies below `2^-27` of the group's largest magnitude, an eighth of the last place
//! of that value in f32. Elements down to an eighth of the largest are exact, and the sum over a group has no
//! rounding of its own: an f32 sum of the same products loses more (`tests::errors_beside_plain_f32`).
//! Below `2^-100` the power of two stays where it is.
//!
//! **Integer codes, int8 inputs.** [`int8`] of the whole row where a row has one scale, and of each group of 64, 32
//! or 16 columns otherwise (formats.md 11.1, 7.1): codes `q` and a scale `s`, so `x` is about `q s`. The result is
//! defined as
//!
//! ```text
//! row scales:    y = (f32(sum_i q_i n_i) * scale) * s
//! group scales:  y = y + f32(sum_(i in g) q_i n_i) * (scale_g * s_g),  g from 0, y from 0, each operation rounded
//! ```
//!
//! with the integers `n` of formats.md (twice the value for mxfp4 with half the scale; `±G` for e8 with the scale
//! `(2 code + 1) * (d / 8)`). The tests hold the kernels to that in plain code.
//!
//! **Floats.** The values as they are, filled up with zeros.

use super::isa::Isa;
use super::order::{Coding, UNIT, coding, is_float};
use crate::formats::Format;
use crate::formats::activation::{Activations, int8};

/// Digits of an f32 input, and their base as a power of two.
pub(super) const DIGITS: usize = 4;
const BASE: u32 = 7;
/// Largest magnitudes come to lie below this power of two.
const TOP: i32 = 27;
/// Widest row whose integer sum fits, where a row has one scale: 128 * 127 * this < 2^31.
const WIDEST: usize = 1 << 17;

/// Which prepared form a matrix format wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Form {
    Plain,
    Digits(Coding),
    Bytes(Coding),
}

/// The form of inputs that a product with `format` takes; `None` where no kernel multiplies it.
pub(crate) fn form(format: Format, cols: usize, activations: Activations) -> Option<Form> {
    match (coding(format), activations) {
        (Some(c), Activations::F32) => Some(Form::Digits(c)),
        (Some(c), Activations::Int8) if cols <= WIDEST || !c.row_scale => Some(Form::Bytes(c)),
        (None, Activations::F32) if is_float(format) => Some(Form::Plain),
        _ => None,
    }
}

/// An input row, ready.
pub struct Input {
    pub(super) form: Form,
    pub(super) cols: usize,
    /// [`Form::Plain`]: the values. Otherwise the scale of each group.
    pub(super) values: Vec<f32>,
    /// `[group][digit][step]`, four columns in the order of the coding each.
    pub(super) steps: Vec<i32>,
    /// `[group][digit]`: minus the offset times the sum of the group's digits, where an integer sum starts.
    pub(super) starts: Vec<i32>,
}

impl Input {
    /// Inlined into a function per instruction set.
    ///
    /// # Safety
    /// As [`Isa`].
    #[inline(always)]
    pub(super) unsafe fn prepare<S: Isa>(x: &[f32], form: Form) -> Input {
        let width = x.len().next_multiple_of(UNIT);
        let (c, digits) = match form {
            Form::Plain => {
                let mut values = x.to_vec();
                values.resize(width, 0.0);
                return Input { form, cols: x.len(), values, steps: vec![], starts: vec![] };
            }
            Form::Digits(c) => (c, DIGITS),
            Form::Bytes(c) => (c, 1),
        };
        let groups = width / c.group;
        let mut out = Input {
            form,
            cols: x.len(),
            values: vec![0.0; groups],
            steps: vec![0; groups * digits * c.group / 4],
            starts: vec![0; groups * digits],
        };
        // SAFETY: the caller's promise.
        unsafe {
            match form {
                Form::Digits(_) => out.digits::<S>(x, c),
                _ => out.bytes::<S>(x, c),
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn digits<S: Isa>(&mut self, x: &[f32], c: Coding) {
        let mut group = [0.0; UNIT];
        for (g, part) in x.chunks(c.group).enumerate() {
            group[..part.len()].copy_from_slice(part);
            group[part.len()..].fill(0.0);
            let most = group.iter().fold(0, |most: u32, v| most.max(v.to_bits() & 0x7fff_ffff));
            // The biased exponent; infinities and NaN make a NaN of the whole group.
            let exponent = (most >> 23).max(27) as i32;
            let power = |e: i32| f32::from_bits((e as u32) << 23);
            self.values[g] = if most < 0x7f80_0000 { power(exponent - TOP + 1) } else { f32::NAN };
            let scale = power((254 + TOP - 1 - exponent).min(254));
            let mut codes = [[0i8; UNIT]; DIGITS];
            for (i, v) in group.iter().enumerate() {
                let v = (v * scale).round_ties_even() as i32;
                // Shifted by half a base, each digit but the last is never negative and its bits are the digit.
                let shifted = v.wrapping_add(64 + (64 << BASE) + (64 << (2 * BASE)));
                for (d, codes) in codes.iter_mut().enumerate() {
                    let digit = shifted >> (BASE * d as u32);
                    codes[i] = if d + 1 < DIGITS { ((digit & 127) - 64) as i8 } else { digit as i8 };
                }
            }
            for (d, codes) in codes.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { self.put::<S>(g * DIGITS + d, codes, c) };
            }
        }
    }

    #[inline(always)]
    unsafe fn bytes<S: Isa>(&mut self, x: &[f32], c: Coding) {
        let share = if c.row_scale { x.len().max(1) } else { c.group };
        let mut codes = vec![0i8; share.next_multiple_of(c.group)];
        for (s, part) in x.chunks(share).enumerate() {
            codes.fill(0);
            let scale = int8(part, &mut codes[..part.len()]);
            let finite = part.iter().all(|v| v.is_finite());
            for (g, codes) in codes.chunks_exact(c.group).enumerate() {
                let g = s * share / c.group + g;
                self.values[g] = if finite { scale } else { f32::NAN };
                let mut unit = [0; UNIT];
                unit[..c.group].copy_from_slice(codes);
                // SAFETY: the caller's promise.
                unsafe { self.put::<S>(g, &unit, c) };
            }
        }
    }

    /// Stores the bytes of a group in the order of the coding, and where its sum starts.
    #[inline(always)]
    unsafe fn put<S: Isa>(&mut self, at: usize, codes: &[i8; UNIT], c: Coding) {
        let steps = c.group / 4;
        // SAFETY: the caller's promise.
        let all = unsafe { S::arrange(c.order.order(), codes) };
        self.steps[at * steps..][..steps].copy_from_slice(&all[..steps]);
        let sum: i32 = codes.iter().map(|c| i32::from(*c)).sum();
        self.starts[at] = -sum * i32::from(c.offset);
    }
}
