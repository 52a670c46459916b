//! Residual streams: attention over a stack of sums, hyper-connections.
//!
//! Both amplify small differences over the layers, so their sums run in f64.

use super::matmul::{Sum, linear};
use super::norm::{inverse_rms, rms_norm};
use super::simd::simd;
use crate::formats::Matrix;
use rayon::prelude::*;

/// `s_e = v_e . (w * proj) / sqrt(mean(v_e^2) + eps); y = sum_e softmax(s)_e v_e` (models.md B.3, C.6
/// attn_res_mix). `entries` are `[rows][d]` each, the oldest first; `w`, `proj`: `[d]`; `out`: `[rows][d]`.
pub fn attn_res_mix(entries: &[&[f32]], w: &[f32], proj: &[f32], eps: f32, out: &mut [f32]) {
    let d = w.len();
    let query: Vec<f32> = w.iter().zip(proj).map(|(w, p)| w * p).collect();
    out.par_chunks_mut(d).enumerate().for_each(|(r, out)| {
        let vectors: Vec<&[f32]> = entries.iter().map(|e| &e[r * d..][..d]).collect();
        let score = |v: &&[f32]| (simd().dot64)(v, &query) * f64::from(inverse_rms(v, eps));
        let scores: Vec<f64> = vectors.iter().map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (c, y) in out.iter_mut().enumerate() {
            let sum: f64 = vectors.iter().zip(&weights).map(|(v, w)| w * f64::from(v[c])).sum();
            *y = (sum / total) as f32;
        }
    });
}

/// Numbers of a hyper-connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hyper {
    /// Streams.
    pub n: usize,
    /// Width of a stream.
    pub d: usize,
    pub eps: f32,
    /// Of the unweighted norm of all streams together.
    pub norm_eps: f32,
}

/// Weights of a hyper-connection: `mix` is `[outs, n*d]`, `base` is `[outs]`, `scale` is `[3]` or, in the head, `[1]`.
#[derive(Debug, Clone, Copy)]
pub struct HyperWeights<'a> {
    pub mix: Matrix<'a>,
    pub base: &'a [f32],
    pub scale: &'a [f32],
}

/// `fn . RMS(vec X)`, `[rows][outs]`.
fn coefficients(x: &[f32], h: Hyper, mix: Matrix) -> Vec<f32> {
    let width = h.n * h.d;
    let mut normed = vec![0.0; x.len()];
    rms_norm(x, width, h.norm_eps, None, &mut normed);
    let mut m = vec![0.0; x.len() / width * mix.rows()];
    linear(normed.chunks_exact(width).collect(), mix, None, Sum::F64, &mut m);
    m
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Coefficients pre `[n]`, post `[n]`, comb `[n][n]` per row (models.md C.6 hc_weights; deepseek-v4.md 1.4
/// HC-pre). `x` is `[rows][n][d]`, `out` is `[rows][2n + n*n]`.
pub fn hc_weights(x: &[f32], h: Hyper, iters: usize, w: HyperWeights, out: &mut [f32]) {
    let (n, eps) = (h.n, f64::from(h.eps));
    let m = coefficients(x, h, w.mix);
    let outs = 2 * n + n * n;
    out.par_chunks_mut(outs).zip(m.par_chunks(outs)).for_each(|(out, m)| {
        let of = |i: usize, part: usize| f64::from(m[i]) * f64::from(w.scale[part]) + f64::from(w.base[i]);
        for i in 0..n {
            out[i] = (sigmoid(of(i, 0)) + eps) as f32;
            out[n + i] = (2.0 * sigmoid(of(n + i, 1))) as f32;
        }
        let mut comb: Vec<f64> = (2 * n..outs).map(|i| of(i, 2)).collect();
        sinkhorn(&mut comb, n, eps, iters);
        out[2 * n..].iter_mut().zip(comb).for_each(|(y, c)| *y = c as f32);
    });
}

/// Softmax over each row plus eps, then columns and rows are divided by their sums in turn, columns `iters` times.
fn sinkhorn(comb: &mut [f64], n: usize, eps: f64, iters: usize) {
    for row in comb.chunks_exact_mut(n) {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.iter_mut().for_each(|c| *c = (*c - top).exp());
        let total: f64 = row.iter().sum();
        row.iter_mut().for_each(|c| *c = *c / total + eps);
    }
    for round in 0..iters {
        if round > 0 {
            for row in comb.chunks_exact_mut(n) {
                let sum = row.iter().sum::<f64>() + eps;
                row.iter_mut().for_each(|c| *c /= sum);
            }
        }
        for column in 0..n {
            let sum = comb.iter().skip(column).step_by(n).sum::<f64>() + eps;
            comb.iter_mut().skip(column).step_by(n).for_each(|c| *c /= sum);
        }
    }
}

/// `u = sum_j pre_j X_j` (models.md C.6 hc_collapse). `x`: `[rows][n][d]`, `mix`: `[rows][stride]` with pre
/// first, `out`: `[rows][d]`.
pub fn hc_collapse(x: &[f32], mix: &[f32], stride: usize, n: usize, d: usize, out: &mut [f32]) {
    let rows = out.par_chunks_mut(d).zip(x.par_chunks(n * d)).zip(mix.par_chunks(stride));
    rows.for_each(|((out, x), mix)| {
        out.fill(0.0);
        x.chunks_exact(d).zip(mix).for_each(|(x, pre)| (simd().axpy)(*pre, x, out));
    });
}

/// `X'_k = post_k y + sum_j comb[j,k] X_j` (models.md C.6 hc_expand; deepseek-v4.md 1.4 HC-post).
/// `y`: `[rows][d]`, `x`, `out`: `[rows][n][d]`, `mix`: `[rows][2n + n*n]`.
pub fn hc_expand(y: &[f32], x: &[f32], mix: &[f32], n: usize, d: usize, out: &mut [f32]) {
    let stride = 2 * n + n * n;
    out.par_chunks_mut(d).enumerate().for_each(|(i, out)| {
        let (r, k) = (i / n, i % n);
        let (mix, x) = (&mix[r * stride..][..stride], &x[r * n * d..][..n * d]);
        out.iter_mut().zip(&y[r * d..][..d]).for_each(|(out, y)| *out = mix[n + k] * y);
        x.chunks_exact(d).enumerate().for_each(|(j, x)| (simd().axpy)(mix[2 * n + j * n + k], x, out));
    });
}

/// `pre = sigmoid(scale (fn . RMS(vec X)) + base) + e; x = sum_j pre_j X_j` (models.md C.6 hc_head).
/// `x`: `[rows][n][d]`, `out`: `[rows][d]`.
pub fn hc_head(x: &[f32], h: Hyper, w: HyperWeights, out: &mut [f32]) {
    let mut pre = coefficients(x, h, w.mix);
    for (i, m) in pre.iter_mut().enumerate() {
        let z = f64::from(*m) * f64::from(w.scale[0]) + f64::from(w.base[i % h.n]);
        *m = (sigmoid(z) + f64::from(h.eps)) as f32;
    }
    hc_collapse(x, &pre, h.n, h.n, h.d, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Stored, bits, close, noise, on_threads};

    fn wide(x: &[f32]) -> Vec<f64> {
        x.iter().map(|x| f64::from(*x)).collect()
    }

    fn mean_square(x: &[f64]) -> f64 {
        x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64
    }

    #[test]
    fn attention_over_entries() {
        let d = 63;
        let (a, b, w, proj) = (noise(1, 2 * d), noise(2, 2 * d), noise(3, d), noise(4, d));
        let run = |entries: &[&[f32]]| {
            let mut out = vec![0.0; entries[0].len()];
            attn_res_mix(entries, &w, &proj, 1e-5, &mut out);
            out
        };
        let got = on_threads(|| run(&[&a, &b]));
        for r in 0..2 {
            let (va, vb) = (wide(&a[r * d..][..d]), wide(&b[r * d..][..d]));
            let score = |v: &[f64]| {
                let dot: f64 = v.iter().zip(w.iter().zip(&proj)).map(|(v, (w, p))| v * f64::from(w * p)).sum();
                (dot / (mean_square(v) + 1e-5).sqrt()).exp()
            };
            let (sa, sb) = (score(&va), score(&vb));
            let want: Vec<f32> = va.iter().zip(&vb).map(|(a, b)| ((sa * a + sb * b) / (sa + sb)) as f32).collect();
            close(&got[r * d..][..d], &want, 1e-6);
        }
        assert_eq!(bits(&run(&[&a])), bits(&a));
        assert_eq!(bits(&run(&[&a[d..], &b[d..]])), bits(&got[d..]));
    }

    const H: Hyper = Hyper { n: 3, d: 7, eps: 1e-3, norm_eps: 1e-6 };

    /// fn . RMS(vec X) of one row, in f64.
    fn products(x: &[f32], weights: &[f32]) -> Vec<f64> {
        let x = wide(x);
        let rms = (mean_square(&x) + 1e-6).sqrt();
        weights.chunks(x.len()).map(|w| w.iter().zip(&x).map(|(w, x)| f64::from(*w) * x / rms).sum()).collect()
    }

    #[test]
    fn weights_of_streams() {
        let (x, mix, base, scale) = (noise(1, 2 * 21), noise(2, 15 * 21), noise(3, 15), [0.5, 0.7, 0.9]);
        let stored = Stored::new(&mix, 21, true);
        let w = HyperWeights { mix: stored.view().into(), base: &base, scale: &scale };
        let got = on_threads(|| {
            let mut out = vec![0.0; 2 * 15];
            hc_weights(&x, H, 3, w, &mut out);
            out
        });
        for r in 0..2 {
            let m = products(&x[r * 21..][..21], &mix);
            let z = |i: usize, s: usize| m[i] * f64::from(scale[s]) + f64::from(base[i]);
            let mut want: Vec<f64> = (0..3).map(|i| sigmoid(z(i, 0)) + 1e-3).collect();
            want.extend((3..6).map(|i| 2.0 * sigmoid(z(i, 1))));
            let mut c: Vec<f64> = (6..15).map(|i| z(i, 2).exp()).collect();
            let rows = |c: &[f64], r: usize| (0..3).map(|k| c[r * 3 + k]).sum::<f64>();
            let columns = |c: &[f64], k: usize| (0..3).map(|r| c[r * 3 + k]).sum::<f64>();
            c = (0..9).map(|i| c[i] / rows(&c, i / 3) + 1e-3).collect();
            c = (0..9).map(|i| c[i] / (columns(&c, i % 3) + 1e-3)).collect();
            for _ in 0..2 {
                c = (0..9).map(|i| c[i] / (rows(&c, i / 3) + 1e-3)).collect();
                c = (0..9).map(|i| c[i] / (columns(&c, i % 3) + 1e-3)).collect();
            }
            want.extend(c);
            let want: Vec<f32> = want.iter().map(|w| *w as f32).collect();
            close(&got[r * 15..][..15], &want, 1e-6);
        }
    }

    #[test]
    fn streams_are_read_and_written() {
        // Two streams of one channel, in one row: X = (2, 3), y = 10.
        let (x, y) = ([2.0, 3.0], [10.0]);
        let mix = [0.5, 0.25, 1.0, 2.0, 0.1, 0.2, 0.3, 0.4];
        let (mut u, mut out) = ([0.0; 1], [0.0; 2]);
        hc_collapse(&x, &mix, 8, 2, 1, &mut u);
        close(&u, &[1.75], 1e-6);
        hc_expand(&y, &x, &mix, 2, 1, &mut out);
        // comb = [[0.1, 0.2], [0.3, 0.4]], summed over its first index.
        close(&out, &[10.0 + 0.2 + 0.9, 20.0 + 0.4 + 1.2], 1e-6);
    }

    #[test]
    fn head_reads_the_streams() {
        let (x, mix, base) = (noise(1, 2 * 21), noise(2, 3 * 21), noise(3, 3));
        let stored = Stored::new(&mix, 21, false);
        let w = HyperWeights { mix: stored.view().into(), base: &base, scale: &[0.8] };
        let got = on_threads(|| {
            let mut out = vec![0.0; 14];
            hc_head(&x, H, w, &mut out);
            out
        });
        for r in 0..2 {
            let row = &x[r * 21..][..21];
            let pre: Vec<f64> = products(row, &mix)
                .iter()
                .zip(&base)
                .map(|(m, b)| sigmoid(m * f64::from(0.8f32) + f64::from(*b)) + f64::from(1e-3f32))
                .collect();
            let want = |c: usize| (0..3).map(|j| pre[j] * f64::from(row[j * 7 + c])).sum::<f64>() as f32;
            close(&got[r * 7..][..7], &(0..7).map(want).collect::<Vec<f32>>(), 1e-6);
        }
    }
}
