//! Entry points per instruction set, and the choice among them.

use super::floats::{self, Values};
use super::input::{DIGITS, Form, Input, form};
use super::ints::{self, Codes};
use super::isa::Isa;
use super::source::{Rows, Source, Tile};
use crate::formats::activation::Activations;
use crate::formats::layout::TILE;
use crate::formats::{Format, Matrix};
use std::sync::OnceLock;

/// The kernels of one instruction set.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// For reports.
    pub name: &'static str,
    tile: fn(&Matrix, usize, &[&Input], &mut [[f32; TILE]]),
    prepare: fn(&[f32], Form) -> Input,
    read: fn(&[u8]) -> u32,
}

/// The best kernels that this processor can run.
pub fn kernels() -> &'static Kernels {
    static CHOSEN: OnceLock<Kernels> = OnceLock::new();
    CHOSEN.get_or_init(|| available().pop().unwrap_or(portable::KERNELS))
}

/// Kernels that this processor can run, the best last.
pub fn available() -> Vec<Kernels> {
    #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), expect(unused_mut))]
    let mut found = vec![portable::KERNELS];
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! has {
            ($($feature:tt)*) => { $(is_x86_feature_detected!($feature))&&* };
        }
        if has!("avx2" "fma" "f16c") {
            found.push(avx2::KERNELS);
        }
        if has!("avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512vnni" "avx512vbmi" "gfni" "fma" "f16c") {
            found.push(avx512::KERNELS);
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        if has!("neon") {
            found.push(neon::KERNELS);
            if has!("dotprod") {
                found.push(neon_dotprod::KERNELS);
            }
            if has!("i8mm") {
                found.push(neon_i8mm::KERNELS);
            }
        }
    }
    found
}

impl Kernels {
    /// Prepares a row for products with matrices of `format`; `None` where no kernel multiplies it.
    pub fn input(&self, x: &[f32], format: Format, activations: Activations) -> Option<Input> {
        Some((self.prepare)(x, form(format, x.len(), activations)?))
    }

    /// Reads all bytes with the widest loads and does next to nothing with them: what memory gives at most.
    pub fn read(&self, bytes: &[u8]) -> u32 {
        (self.read)(bytes)
    }

    /// 16 outputs from row `first` on for every input row, `out[row][output]`; outputs behind the last row of the
    /// matrix mean nothing.
    ///
    /// # Panics
    /// When `first` lies behind the matrix or, in the engine layout, not at the start of a tile, or an input was
    /// prepared for another width or format.
    pub fn tile(&self, w: &Matrix, first: usize, x: &[&Input], out: &mut [[f32; TILE]]) {
        let (rows, cols) = (w.rows(), w.cols());
        assert!(first < rows && x.len() == out.len(), "row {first} of {rows}, {} inputs", x.len());
        assert!(matches!(w, Matrix::Rows(_)) || first.is_multiple_of(TILE), "row {first} starts no tile");
        let Some(one) = x.first() else { return };
        let known = Activations::ALL.map(|a| form(w.format(), cols, a)).contains(&Some(one.form));
        assert!(known && x.iter().all(|x| x.cols == cols && x.form == one.form), "an input for another matrix");
        (self.tile)(w, first, x, out);
    }
}

/// The words of all whole blocks of 512 bytes, combined.
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn combine<S: Isa>(bytes: &[u8]) -> u32 {
    // SAFETY: the caller's promise; every load lies inside its block.
    unsafe {
        let mut acc = [S::splat(0); 8];
        for block in bytes.chunks_exact(512) {
            for (i, acc) in acc.iter_mut().enumerate() {
                *acc = S::xor(*acc, S::load(block.as_ptr().add(64 * i)));
            }
        }
        let mut words = [0f32; TILE];
        let all = acc.into_iter().fold(S::splat(0), |all, part| S::xor(all, part));
        S::store_f(words.as_mut_ptr(), S::bits(all));
        words.iter().fold(0, |all, w| all ^ w.to_bits())
    }
}

/// A module with the kernels of one instruction set: the bodies of `ints` and `floats`, compiled with its features.
/// Its safe functions are reached through `KERNELS` only, which `available` offers when the processor has them.
macro_rules! entries {
    ($module:ident, $isa:ty, $name:literal $(, $feature:literal)?) => {
        mod $module {
            use super::*;

            /// In `available` only after the features were found.
            pub(super) const KERNELS: Kernels = Kernels { name: $name, tile, prepare, read };

            fn prepare(x: &[f32], form: Form) -> Input {
                /// # Safety
                /// As [`Isa`].
                $(#[target_feature(enable = $feature)])?
                unsafe fn kernel(x: &[f32], form: Form) -> Input {
                    // SAFETY: the caller's promise.
                    unsafe { Input::prepare::<$isa>(x, form) }
                }
                // SAFETY: `available` found the features, see the macro.
                unsafe { kernel(x, form) }
            }

            fn read(bytes: &[u8]) -> u32 {
                /// # Safety
                /// As [`Isa`].
                $(#[target_feature(enable = $feature)])?
                unsafe fn kernel(bytes: &[u8]) -> u32 {
                    // SAFETY: the caller's promise.
                    unsafe { combine::<$isa>(bytes) }
                }
                // SAFETY: `available` found the features, see the macro.
                unsafe { kernel(bytes) }
            }

            fn tile(w: &Matrix, first: usize, x: &[&Input], out: &mut [[f32; TILE]]) {
                // SAFETY: `available` found the features, see the macro. `Kernels::tile` has checked that the inputs
                // were prepared for this format and width, and both sources that the bytes have the matrix's shape.
                unsafe {
                    match w {
                        Matrix::Rows(view) => any(w, &mut Rows::new(*view, first), x, out),
                        Matrix::Tiles(tiles) => any(w, &mut Tile::new(tiles, first / TILE), x, out),
                    }
                }
            }

            /// # Safety
            /// As [`Isa`]; `t` must be a tile of `w`, and the inputs prepared for its format and width.
            unsafe fn any<T: Source>(w: &Matrix, t: &mut T, x: &[&Input], out: &mut [[f32; TILE]]) {
                // SAFETY: the caller's promise: each body gets a source of its own format.
                unsafe {
                    match w.format() {
                        Format::F32 => floats::<T, floats::F32>(t, x, out),
                        Format::F16 => floats::<T, floats::F16>(t, x, out),
                        Format::Bf16 => floats::<T, floats::Bf16>(t, x, out),
                        Format::Fp8Block { .. } => floats::<T, floats::Fp8>(t, x, out),
                        Format::Int8Row => codes(ints::Int8, t, x, out),
                        Format::Int4Row => codes(ints::Int4, t, x, out),
                        Format::Int2Row => codes(ints::Int2, t, x, out),
                        Format::Int3G64 => codes(ints::Int3, t, x, out),
                        Format::E8 => codes(ints::E8, t, x, out),
                        Format::Mxfp4 => codes(ints::Mxfp4, t, x, out),
                        Format::Int4Grouped { group } => match group as usize {
                            g if g.is_multiple_of(64) => codes(ints::Int4Groups::<1>::new(g / 64), t, x, out),
                            g if g.is_multiple_of(32) => codes(ints::Int4Groups::<2>::new(g / 32), t, x, out),
                            g => codes(ints::Int4Groups::<4>::new(g / 16), t, x, out),
                        },
                        // `Kernels::tile` has found a form for the format, so it is none of these.
                        Format::I32 | Format::I64 => unreachable!("a table of integers is no matrix"),
                    }
                }
            }

            /// # Safety
            /// As [`any`], with the codes of its format.
            unsafe fn codes<T: Source, C: Codes>(c: C, t: &mut T, x: &[&Input], out: &mut [[f32; TILE]]) {
                // SAFETY: the caller's promise; the form of the inputs says how many digits they have.
                unsafe {
                    match x[0].form {
                        Form::Bytes(_) if C::ROW => whole(&c, t, x, out),
                        Form::Bytes(_) => groups::<T, C, 1>(&c, t, x, out),
                        _ => groups::<T, C, DIGITS>(&c, t, x, out),
                    }
                }
            }

            /// # Safety
            /// As [`floats::tile`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn floats<T: Source, V: Values>(t: &mut T, x: &[&Input], out: &mut [[f32; TILE]]) {
                // SAFETY: the caller's promise.
                unsafe { floats::tile::<$isa, T, V>(t, x, out) }
            }

            /// # Safety
            /// As [`ints::tile`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn groups<T: Source, C: Codes, const P: usize>(
                c: &C,
                t: &mut T,
                x: &[&Input],
                out: &mut [[f32; TILE]],
            ) {
                // SAFETY: the caller's promise.
                unsafe { ints::tile::<$isa, T, C, P>(c, t, x, out) }
            }

            /// # Safety
            /// As [`ints::whole`].
            $(#[target_feature(enable = $feature)])?
            unsafe fn whole<T: Source, C: Codes>(c: &C, t: &mut T, x: &[&Input], out: &mut [[f32; TILE]]) {
                // SAFETY: the caller's promise.
                unsafe { ints::whole::<$isa, T, C>(c, t, x, out) }
            }
        }
    };
}

entries!(portable, super::super::portable::Portable, "portable");
#[cfg(target_arch = "x86_64")]
entries!(avx2, super::super::avx2::Avx2, "AVX2 + FMA", "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
entries!(
    avx512,
    super::super::avx512::Avx512,
    "AVX-512 VNNI + VBMI",
    "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c"
);
#[cfg(target_arch = "aarch64")]
entries!(neon, super::super::neon::Neon<super::super::neon::Pairs>, "NEON", "neon");
#[cfg(target_arch = "aarch64")]
entries!(neon_dotprod, super::super::neon::Neon<super::super::neon::Signed>, "NEON + dotprod", "neon,dotprod");
#[cfg(target_arch = "aarch64")]
entries!(neon_i8mm, super::super::neon::Neon<super::super::neon::Mixed>, "NEON + i8mm", "neon,i8mm");
