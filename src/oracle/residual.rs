//! Attention residuals and hyper-connections.

use super::math::{dot, sigmoid, softmax};
use super::norm::inverse_rms;
use super::{Cx, row};
use crate::graph::Value;
use std::sync::Arc;

pub fn mix(cx: &Cx, d: usize, eps: f32) -> Vec<f32> {
    let Value::Stack(entries) = cx.inputs[1] else { unreachable!("a stack") };
    let (w, proj) = (cx.vector(0), cx.vector(1));
    let mut out = vec![];
    for r in 0..cx.rows {
        let at = r * d..(r + 1) * d;
        let mut all: Vec<&[f32]> = entries.iter().map(|e| &e[at.clone()]).collect();
        all.push(&cx.tensor(0)[at]);
        let score = |v: &&[f32]| {
            let sum: f64 = (0..d).map(|i| f64::from(v[i]) * f64::from(w[i]) * f64::from(proj[i])).sum();
            (sum * inverse_rms(v, eps)) as f32
        };
        let p = softmax(&all.iter().map(score).collect::<Vec<f32>>(), None);
        out.extend((0..d).map(|i| all.iter().zip(&p).map(|(v, p)| p * f64::from(v[i])).sum::<f64>() as f32));
    }
    out
}

pub fn push(cx: &Cx) -> Value {
    let (Value::Tensor(x), Value::Stack(entries)) = (cx.inputs[0], cx.inputs[1]) else { unreachable!("a stack") };
    let mut entries = entries.clone();
    entries.push(Arc::clone(x));
    Value::Stack(entries)
}

/// `fn . RMS(vec X)` of one row, in f64.
fn projected(cx: &Cx, x: &[f32], out: usize, norm_eps: f32) -> Vec<f64> {
    let inv = inverse_rms(x, norm_eps);
    (0..out).map(|o| dot(&row(cx.weight(0), o), x) * inv).collect()
}

pub fn hc_weights(cx: &Cx, n: usize, d: usize, [eps, norm_eps]: [f32; 2], iters: usize) -> Vec<f32> {
    let (base, scale) = (cx.vector(1), cx.vector(2));
    let eps = f64::from(eps);
    let mut out = vec![];
    for x in cx.tensor(0).chunks_exact(n * d) {
        let m = projected(cx, x, (2 + n) * n, norm_eps);
        let logit = |i: usize, s: usize| m[i] * f64::from(scale[s]) + f64::from(base[i]);
        out.extend((0..n).map(|i| (sigmoid(logit(i, 0)) + eps) as f32));
        out.extend((0..n).map(|i| (2.0 * sigmoid(logit(n + i, 1))) as f32));
        let logits: Vec<f64> = (0..n * n).map(|i| logit(2 * n + i, 2)).collect();
        out.extend(sinkhorn(&logits, n, eps, iters).iter().map(|c| *c as f32));
    }
    out
}

/// Softmax of each row, then alternately columns and rows brought to sum one.
fn sinkhorn(logits: &[f64], n: usize, eps: f64, iters: usize) -> Vec<f64> {
    let mut c = vec![0.0; n * n];
    for r in 0..n {
        let line = &logits[r * n..(r + 1) * n];
        let max = line.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let e: Vec<f64> = line.iter().map(|x| libm::exp(x - max)).collect();
        let sum: f64 = e.iter().sum();
        (0..n).for_each(|j| c[r * n + j] = e[j] / sum + eps);
    }
    let columns = |c: &mut [f64]| {
        for j in 0..n {
            let sum: f64 = (0..n).map(|r| c[r * n + j]).sum::<f64>() + eps;
            (0..n).for_each(|r| c[r * n + j] /= sum);
        }
    };
    columns(&mut c);
    for _ in 1..iters {
        for line in c.chunks_exact_mut(n) {
            let sum: f64 = line.iter().sum::<f64>() + eps;
            line.iter_mut().for_each(|x| *x /= sum);
        }
        columns(&mut c);
    }
    c
}

/// `sum_j pre_j X_j` of one row.
fn read(x: &[f32], pre: &[f64], d: usize) -> Vec<f32> {
    let channel = |i: usize| pre.iter().enumerate().map(|(j, p)| p * f64::from(x[j * d + i])).sum::<f64>() as f32;
    (0..d).map(channel).collect()
}

pub fn collapse(cx: &Cx, n: usize, d: usize) -> Vec<f32> {
    let rows = cx.tensor(0).chunks_exact(n * d).zip(cx.tensor(1).chunks_exact(2 * n + n * n));
    rows.flat_map(|(x, mix)| read(x, &mix[..n].iter().map(|p| f64::from(*p)).collect::<Vec<f64>>(), d)).collect()
}

pub fn expand(cx: &Cx, n: usize, d: usize) -> Vec<f32> {
    let mut out = vec![0.0; cx.rows * n * d];
    for r in 0..cx.rows {
        let y = &cx.tensor(0)[r * d..(r + 1) * d];
        let x = &cx.tensor(1)[r * n * d..(r + 1) * n * d];
        let mix = &cx.tensor(2)[r * (2 * n + n * n)..][..2 * n + n * n];
        let (post, comb) = (&mix[n..2 * n], &mix[2 * n..]);
        for k in 0..n {
            for i in 0..d {
                let carried: f64 = (0..n).map(|j| f64::from(comb[j * n + k]) * f64::from(x[j * d + i])).sum();
                out[(r * n + k) * d + i] = (f64::from(post[k]) * f64::from(y[i]) + carried) as f32;
            }
        }
    }
    out
}

pub fn head(cx: &Cx, n: usize, d: usize, [eps, norm_eps]: [f32; 2]) -> Vec<f32> {
    let (base, scale) = (cx.vector(1), cx.vector(2)[0]);
    let mut out = vec![];
    for x in cx.tensor(0).chunks_exact(n * d) {
        let m = projected(cx, x, n, norm_eps);
        let pre = (0..n).map(|i| sigmoid(m[i] * f64::from(scale) + f64::from(base[i])) + f64::from(eps));
        out.extend(read(x, &pre.collect::<Vec<f64>>(), d));
    }
    out
}
