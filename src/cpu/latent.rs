//! Into the latent space of latent attention; the way out is a [grouped product](super::matmul::linear_grouped).

use super::simd::simd;
use crate::formats::Matrix;
use rayon::prelude::*;

/// `qa[h,r] = sum_i W[h*stride + i, r] q[h,i]`: the first `nope` of each head's rows, transposed (models.md
/// A.4 absorbed form, C.4 mla_absorb_q). `q` is `[rows][heads][nope]`, `w` is `[heads * stride, rank]`,
/// `out` is `[rows][heads][rank]`.
pub fn absorb_q<'a>(q: &[f32], w: impl Into<Matrix<'a>>, heads: usize, nope: usize, out: &mut [f32]) {
    let w = w.into();
    let (rows, rank, stride) = (q.len() / (heads * nope), w.cols(), w.rows() / heads);
    if rows == 0 {
        return;
    }
    // Head by head, so that a weight row is decoded once for all rows.
    let mut by_head = vec![0.0; out.len()];
    by_head.par_chunks_mut(rows * rank).enumerate().for_each_init(
        || vec![0.0; rank],
        |weights, (h, by_row)| {
            for i in 0..nope {
                w.decode_row(h * stride + i, weights);
                for (r, out) in by_row.chunks_exact_mut(rank).enumerate() {
                    (simd().axpy)(q[(r * heads + h) * nope + i], weights, out);
                }
            }
        },
    );
    out.par_chunks_mut(rank).enumerate().for_each(|(c, out)| {
        let (r, h) = (c / heads, c % heads);
        out.copy_from_slice(&by_head[(h * rows + r) * rank..][..rank]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Stored, bits, close, noise, on_threads};

    #[test]
    fn transposed_product_per_head() {
        let (rows, heads, nope, stride, rank) = (3, 2, 5, 8, 63);
        let (q, w) = (noise(1, rows * heads * nope), noise(2, heads * stride * rank));
        let stored = Stored::new(&w, rank, true);
        let run = |q: &[f32]| {
            let mut out = vec![0.0; q.len() / nope * rank];
            absorb_q(q, stored.view(), heads, nope, &mut out);
            out
        };
        let got = on_threads(|| run(&q));
        for (c, got) in got.chunks(rank).enumerate() {
            let h = c % heads;
            let column = |r: usize| {
                let term = |i: usize| f64::from(w[(h * stride + i) * rank + r]) * f64::from(q[c * nope + i]);
                (0..nope).map(term).sum::<f64>() as f32
            };
            close(got, &(0..rank).map(column).collect::<Vec<f32>>(), 1e-6);
        }
        let alone = run(&q[heads * nope..2 * heads * nope]);
        assert_eq!(bits(&alone), bits(&got[heads * rank..2 * heads * rank]));
        assert!(run(&[]).is_empty());
    }
}
