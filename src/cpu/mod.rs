//! Kernels on slices: the arithmetic of every operator on a processor, without any idea of a graph.
//!
//! Values are f32, `[rows][width]` without padding. Invariants of every kernel:
//! - **Bits**: each output value comes from one fixed sequence of operations on its own row's inputs. What
//!   else is in the call, how it is cut into tasks and how many threads run them changes nothing.
//! - Choices (routing, index scores) rest on sums in f64 that are rounded once; see [`simd`] for the others.
//! - Lengths are checked and a mismatch panics: callers take them from a graph whose shapes agree.
//!
//! [`simd`] is the one place that depends on the processor; [`matmul`] holds every product with a stored
//! matrix. Equations: `ops` states them, models.md C and deepseek-v4.md 1.4 derive them.

pub mod attention;
pub mod conv;
pub mod delta;
pub mod elementwise;
pub mod experts;
pub mod gemv;
pub mod index;
pub mod latent;
pub mod matmul;
pub mod norm;
pub mod pool;
pub mod residual;
pub mod rope;
pub mod route;
pub mod simd;
#[cfg(test)]
mod testing;

use crate::formats::Matrix;

/// Values per task of cheap loops: below this, handing work to another thread costs more than it saves.
const GRAIN: usize = 8192;

/// All values of a stored vector or small matrix, row by row.
pub fn decode<'a>(w: impl Into<Matrix<'a>>) -> Vec<f32> {
    let w = w.into();
    let mut out = vec![0.0; w.rows() * w.cols()];
    if w.cols() > 0 {
        out.chunks_exact_mut(w.cols()).enumerate().for_each(|(row, out)| w.decode_row(row, out));
    }
    out
}

/// Position of the first NaN or infinity.
pub fn first_non_finite(values: &[f32]) -> Option<usize> {
    const EXPONENT: u32 = 0x7f80_0000;
    // Without an early exit the inner loop is vectorised.
    let bad = |part: &[f32]| part.iter().fold(false, |bad, v| bad | (v.to_bits() & EXPONENT == EXPONENT));
    let part = values.chunks(1024).position(bad)?;
    let within = values[part * 1024..].iter().position(|v| !v.is_finite())?;
    Some(part * 1024 + within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_bad_value() {
        let mut values = vec![f32::MAX; 3000];
        assert_eq!(first_non_finite(&values), None);
        values[2999] = f32::NAN;
        assert_eq!(first_non_finite(&values), Some(2999));
        values[1024] = f32::NEG_INFINITY;
        assert_eq!(first_non_finite(&values), Some(1024));
        assert_eq!(first_non_finite(&[]), None);
    }
}
