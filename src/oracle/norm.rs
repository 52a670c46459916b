//! Norms over runs of `n` values.

use super::Cx;
use super::math::{sigmoid, silu, sum_squares};
use crate::ops::op::Gate;

pub fn rms_norm(cx: &Cx, n: usize, eps: f32, weighted: bool) -> Vec<f32> {
    let w = if weighted { cx.vector(0) } else { vec![1.0; n] };
    let mut out = Vec::with_capacity(cx.tensor(0).len());
    for x in cx.tensor(0).chunks_exact(n) {
        let inv = inverse_rms(x, eps);
        out.extend(x.iter().zip(&w).map(|(x, w)| (f64::from(*x) * inv * f64::from(*w)) as f32));
    }
    out
}

/// 1 / sqrt(mean(x^2) + eps)
pub fn inverse_rms(x: &[f32], eps: f32) -> f64 {
    1.0 / libm::sqrt(sum_squares(x) / x.len() as f64 + f64::from(eps))
}

pub fn rms_norm_gated(cx: &Cx, n: usize, eps: f32, gate: Gate) -> Vec<f32> {
    let w = cx.vector(0);
    let act = match gate {
        Gate::Sigmoid => sigmoid,
        Gate::Silu => silu,
    };
    let mut out = Vec::with_capacity(cx.tensor(0).len());
    for (x, z) in cx.tensor(0).chunks_exact(n).zip(cx.tensor(1).chunks_exact(n)) {
        let inv = inverse_rms(x, eps);
        for i in 0..n {
            out.push((f64::from(x[i]) * inv * f64::from(w[i]) * act(f64::from(z[i]))) as f32);
        }
    }
    out
}

pub fn layer_norm(cx: &Cx, n: usize, eps: f32) -> Vec<f32> {
    let (w, b) = (cx.vector(0), cx.vector(1));
    let mut out = Vec::with_capacity(cx.tensor(0).len());
    for x in cx.tensor(0).chunks_exact(n) {
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n as f64;
        let var = x.iter().map(|x| (f64::from(*x) - mean) * (f64::from(*x) - mean)).sum::<f64>() / n as f64;
        let inv = 1.0 / libm::sqrt(var + f64::from(eps));
        for i in 0..n {
            out.push(((f64::from(x[i]) - mean) * inv * f64::from(w[i]) + f64::from(b[i])) as f32);
        }
    }
    out
}

pub fn l2_norm(cx: &Cx, n: usize, eps: f32, scale: f32) -> Vec<f32> {
    let mut out = Vec::with_capacity(cx.tensor(0).len());
    for x in cx.tensor(0).chunks_exact(n) {
        let inv = f64::from(scale) / libm::sqrt(sum_squares(x) + f64::from(eps));
        out.extend(x.iter().map(|x| (f64::from(*x) * inv) as f32));
    }
    out
}
