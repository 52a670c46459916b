//! Embedding and linear maps.

use super::math::dot;
use super::{Cx, row};
use crate::weights::Tensor;

pub fn embed_row(cx: &Cx, d: usize, repeat: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(cx.rows * repeat * d);
    for r in cx.step.rows() {
        let embedding = row(cx.weight(0), r.token as usize);
        (0..repeat).for_each(|_| out.extend_from_slice(&embedding));
    }
    out
}

/// `out[r][o] = W[first + o] . x[r]`, for `o` in `0..n`.
pub fn times(w: &Tensor, first: usize, n: usize, x: &[f32], inp: usize) -> Vec<f32> {
    let rows = x.len() / inp;
    let mut out = vec![0.0; rows * n];
    for o in 0..n {
        let weights = row(w, first + o);
        for r in 0..rows {
            out[r * n + o] = dot(&weights, &x[r * inp..(r + 1) * inp]) as f32;
        }
    }
    out
}

pub fn linear(cx: &Cx, inp: usize, out: usize, bias: bool) -> Vec<f32> {
    let x = cx.tensor(0);
    if !bias {
        return times(cx.weight(0), 0, out, x, inp);
    }
    let bias = cx.vector(1);
    let mut y = vec![0.0; cx.rows * out];
    for o in 0..out {
        let weights = row(cx.weight(0), o);
        for r in 0..cx.rows {
            y[r * out + o] = (dot(&weights, &x[r * inp..(r + 1) * inp]) + f64::from(bias[o])) as f32;
        }
    }
    y
}

pub fn lm_head(cx: &Cx, inp: usize, out: usize) -> Vec<f32> {
    let x = cx.tensor(0);
    let wanted = cx.step.outputs().iter().flat_map(|r| &x[r * inp..(r + 1) * inp]);
    times(cx.weight(0), 0, out, &wanted.copied().collect::<Vec<f32>>(), inp)
}

pub fn grouped(cx: &Cx, groups: usize, inp: usize, out: usize) -> Vec<f32> {
    let x = cx.tensor(0);
    let mut y = vec![0.0; cx.rows * groups * out];
    for g in 0..groups {
        for o in 0..out {
            let weights = row(cx.weight(0), g * out + o);
            for r in 0..cx.rows {
                let at = (r * groups + g) * inp;
                y[(r * groups + g) * out + o] = dot(&weights, &x[at..at + inp]) as f32;
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
            let value = row(cx.weight(0), h * (nope + v_dim) + nope + o);
            for r in 0..cx.rows {
                let at = (r * heads + h) * rank;
                y[(r * heads + h) * v_dim + o] = dot(&value, &l[at..at + rank]) as f32;
            }
        }
    }
    y
}
