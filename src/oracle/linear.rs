//! Embedding and linear maps.

use super::int8::Codes;
use super::math::dot;
use super::{Cx, row};
use crate::formats::activation::Activations;
use crate::weights::Tensor;

pub fn embed_row(cx: &Cx, d: usize, repeat: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(cx.rows * repeat * d);
    for r in cx.step.rows() {
        let embedding = row(cx.weight(0), r.token as usize);
        (0..repeat).for_each(|_| out.extend_from_slice(&embedding));
    }
    out
}

/// A row of a matrix, ready to be multiplied.
pub enum Weights {
    Values(Vec<f32>),
    /// For inputs taken as int8.
    Codes(Codes),
}

impl Weights {
    pub fn read(w: &Tensor, r: usize, activations: Activations) -> Self {
        let codes = match activations {
            Activations::F32 => None,
            Activations::Int8 => Codes::read(&w.matrix(), r),
        };
        codes.map_or_else(|| Weights::Values(row(w, r)), Weights::Codes)
    }

    /// The inner product with an input, to be rounded by the caller.
    pub fn dot(&self, x: &[f32]) -> f64 {
        match self {
            Weights::Values(w) => dot(w, x),
            Weights::Codes(w) => f64::from(w.dot(x)),
        }
    }
}

/// `out[r][o] = W[o] . x[r]` for the first `n` rows of W.
pub fn times(w: &Tensor, n: usize, x: &[f32], inp: usize, activations: Activations) -> Vec<f32> {
    let rows = x.len() / inp;
    let mut out = vec![0.0; rows * n];
    for o in 0..n {
        let weights = Weights::read(w, o, activations);
        for r in 0..rows {
            out[r * n + o] = weights.dot(&x[r * inp..(r + 1) * inp]) as f32;
        }
    }
    out
}

pub fn linear(cx: &Cx, inp: usize, out: usize, bias: bool) -> Vec<f32> {
    let x = cx.tensor(0);
    if !bias {
        return times(cx.weight(0), out, x, inp, cx.activations);
    }
    let bias = cx.vector(1);
    let mut y = vec![0.0; cx.rows * out];
    for o in 0..out {
        let weights = Weights::read(cx.weight(0), o, cx.activations);
        for r in 0..cx.rows {
            y[r * out + o] = (weights.dot(&x[r * inp..(r + 1) * inp]) + f64::from(bias[o])) as f32;
        }
    }
    y
}

/// Exact whatever the activations: experts are chosen by it.
pub fn router_logits(cx: &Cx, inp: usize, experts: usize) -> Vec<f32> {
    times(cx.weight(0), experts, cx.tensor(0), inp, Activations::F32)
}

pub fn lm_head(cx: &Cx, inp: usize, out: usize) -> Vec<f32> {
    let x = cx.tensor(0);
    let wanted = cx.step.outputs().iter().flat_map(|r| &x[r * inp..(r + 1) * inp]);
    times(cx.weight(0), out, &wanted.copied().collect::<Vec<f32>>(), inp, cx.activations)
}

pub fn grouped(cx: &Cx, groups: usize, inp: usize, out: usize) -> Vec<f32> {
    let x = cx.tensor(0);
    let mut y = vec![0.0; cx.rows * groups * out];
    for g in 0..groups {
        for o in 0..out {
            let weights = Weights::read(cx.weight(0), g * out + o, cx.activations);
            for r in 0..cx.rows {
                let at = (r * groups + g) * inp;
                y[(r * groups + g) * out + o] = weights.dot(&x[at..at + inp]) as f32;
            }
        }
    }
    y
}

pub fn absorb_q(cx: &Cx, heads: usize, nope: usize, v_dim: usize, rank: usize) -> Vec<f32> {
    let q = cx.tensor(0);
    let mut sums = vec![0.0f64; cx.rows * heads * rank];
    for h in 0..heads {
        for i in 0..nope {
            let key = row(cx.weight(0), h * (nope + v_dim) + i);
            for r in 0..cx.rows {
                let q = f64::from(q[(r * heads + h) * nope + i]);
                let sums = &mut sums[(r * heads + h) * rank..][..rank];
                sums.iter_mut().zip(&key).for_each(|(s, k)| *s += q * f64::from(*k));
            }
        }
    }
    sums.into_iter().map(|s| s as f32).collect()
}

pub fn expand_v(cx: &Cx, heads: usize, nope: usize, v_dim: usize, rank: usize) -> Vec<f32> {
    let l = cx.tensor(0);
    let mut y = vec![0.0; cx.rows * heads * v_dim];
    for h in 0..heads {
        for o in 0..v_dim {
            let value = Weights::read(cx.weight(0), h * (nope + v_dim) + nope + o, cx.activations);
            for r in 0..cx.rows {
                let at = (r * heads + h) * rank;
                y[(r * heads + h) * v_dim + o] = value.dot(&l[at..at + rank]) as f32;
            }
        }
    }
    y
}
