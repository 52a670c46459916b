//! Norms over the last `n` values. Sums run in f64: they are cheap, and every later value depends on them.

use super::GRAIN;
use super::elementwise::{Gate, gate};
use super::simd::simd;
use rayon::prelude::*;

fn each(x: &[f32], n: usize, out: &mut [f32], f: impl Fn(usize, &[f32], &mut [f32]) + Sync) {
    assert_eq!(x.len(), out.len());
    let pairs = x.par_chunks(n).zip(out.par_chunks_mut(n)).with_min_len((GRAIN / n).max(1));
    pairs.enumerate().for_each(|(i, (x, out))| f(i, x, out));
}

/// `1 / sqrt(mean(x^2) + eps)`.
pub(super) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    (1.0 / ((simd().dot64)(x, x) / x.len() as f64 + f64::from(eps)).sqrt()) as f32
}

/// `y = x / sqrt(mean(x^2) + eps) * w`, over groups of `n` values (models.md C.1 rmsnorm). `x`, `out`: any
/// number of groups; `w`: `[n]`, or none.
pub fn rms_norm(x: &[f32], n: usize, eps: f32, w: Option<&[f32]>, out: &mut [f32]) {
    each(x, n, out, |_, x, out| {
        let inv = inverse_rms(x, eps);
        match w {
            Some(w) => out.iter_mut().zip(x.iter().zip(w)).for_each(|(y, (x, w))| *y = x * inv * w),
            None => out.iter_mut().zip(x).for_each(|(y, x)| *y = x * inv),
        }
    });
}

/// `y = x / sqrt(mean(x^2) + eps) * w * gate(z)` (models.md C.1 rmsnorm_gated). `z`: as `x`; `w`: `[n]`.
pub fn rms_norm_gated(x: &[f32], z: &[f32], n: usize, eps: f32, w: &[f32], kind: Gate, out: &mut [f32]) {
    assert_eq!(x.len(), z.len());
    each(x, n, out, |i, x, out| {
        let inv = inverse_rms(x, eps);
        let z = &z[i * n..][..n];
        out.iter_mut().zip(x.iter().zip(w).zip(z)).for_each(|(y, ((x, w), z))| *y = x * inv * w * gate(kind, *z));
    });
}

/// `y = (x - mean) / sqrt(variance + eps) * w + bias`, population variance (models.md C.1 layernorm).
/// `w`, `bias`: `[n]`.
pub fn layer_norm(x: &[f32], n: usize, eps: f32, w: &[f32], bias: &[f32], out: &mut [f32]) {
    each(x, n, out, |_, x, out| {
        let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / n as f64;
        let variance = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n as f64;
        let inv = 1.0 / (variance + f64::from(eps)).sqrt();
        for (y, (x, (w, b))) in out.iter_mut().zip(x.iter().zip(w.iter().zip(bias))) {
            *y = ((f64::from(*x) - mean) * inv) as f32 * w + b;
        }
    });
}

/// `y = scale * x / sqrt(sum(x^2) + eps)` (models.md C.1 l2norm, B.4).
pub fn l2_norm(x: &[f32], n: usize, eps: f32, scale: f32, out: &mut [f32]) {
    each(x, n, out, |_, x, out| {
        let factor = (f64::from(scale) / ((simd().dot64)(x, x) + f64::from(eps)).sqrt()) as f32;
        out.iter_mut().zip(x).for_each(|(y, x)| *y = x * factor);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{bits, close, noise, on_threads};

    fn reference(x: &[f32], n: usize, f: impl Fn(&[f64], usize) -> f64) -> Vec<f32> {
        let wide = |part: &[f32]| part.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        x.chunks(n).flat_map(|part| (0..n).map(|i| f(&wide(part), i) as f32).collect::<Vec<f32>>()).collect()
    }

    fn mean_square(x: &[f64]) -> f64 {
        x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64
    }

    #[test]
    fn norms_of_odd_widths() {
        for n in [1usize, 7, 63, 65] {
            let (x, z, w, b) = (noise(1, 5 * n), noise(2, 5 * n), noise(3, n), noise(4, n));
            let run = |f: &(dyn Fn(&mut [f32]) + Sync)| {
                on_threads(|| {
                    let mut out = vec![0.0; 5 * n];
                    f(&mut out);
                    out
                })
            };
            let rms = |x: &[f64], i: usize| x[i] / (mean_square(x) + 1e-3).sqrt();
            close(&run(&|o| rms_norm(&x, n, 1e-3, None, o)), &reference(&x, n, rms), 1e-6);
            let weighted = |x: &[f64], i: usize| rms(x, i) * f64::from(w[i]);
            close(&run(&|o| rms_norm(&x, n, 1e-3, Some(&w), o)), &reference(&x, n, weighted), 1e-6);
            let gated = run(&|o| rms_norm_gated(&x, &z, n, 1e-3, &w, Gate::Silu, o));
            let plain = reference(&x, n, weighted);
            let silu = |z: f32| f64::from(z) / (1.0 + (-f64::from(z)).exp());
            let want: Vec<f32> = plain.iter().zip(&z).map(|(y, z)| (f64::from(*y) * silu(*z)) as f32).collect();
            close(&gated, &want, 1e-6);
            let layer = |x: &[f64], i: usize| {
                let mean = x.iter().sum::<f64>() / n as f64;
                let var = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
                (x[i] - mean) / (var + 1e-3).sqrt() * f64::from(w[i]) + f64::from(b[i])
            };
            close(&run(&|o| layer_norm(&x, n, 1e-3, &w, &b, o)), &reference(&x, n, layer), 1e-6);
            let unit = |x: &[f64], i: usize| 0.5 * x[i] / (mean_square(x) * n as f64 + 1e-3).sqrt();
            close(&run(&|o| l2_norm(&x, n, 1e-3, 0.5, o)), &reference(&x, n, unit), 1e-6);
        }
    }

    #[test]
    fn a_row_alone_has_the_bits_it_has_among_others() {
        let (x, w) = (noise(1, 4 * 65), noise(2, 65));
        let run = |x: &[f32]| {
            let mut out = vec![0.0; x.len()];
            rms_norm(x, 65, 1e-6, Some(&w), &mut out);
            out
        };
        assert_eq!(bits(&run(&x)[130..195]), bits(&run(&x[130..195])));
    }
}
