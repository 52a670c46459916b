//! Attention, index scores and selection.

use super::Cx;
use super::math::{dot, softmax, top_k};
use crate::graph::{Row, Value};
use crate::ops::Op;
use crate::ops::op::Segment;
use std::borrow::Cow;
use std::sync::Arc;

/// A row of a cache in f32.
type CacheRow<'a> = Cow<'a, [f32]>;

/// Cache rows of a segment that a row looks at.
fn visible(cx: &Cx, r: usize, rec: &Row, seg: &Segment) -> Vec<usize> {
    if let Some(select) = seg.select {
        let Value::Selection(s) = cx.inputs[select] else { unreachable!("a selection") };
        return s[r].iter().map(|t| *t as usize).collect();
    }
    let end = rec.visible_rows(seg.every);
    (end.saturating_sub(seg.window.unwrap_or(end))..end).collect()
}

fn cache(cx: &Cx, input: usize) -> usize {
    match cx.inputs[input] {
        Value::Cache(state) => *state,
        other => unreachable!("a cache, not {other:?}"),
    }
}

pub fn attn(cx: &Cx, op: &Op) -> Vec<f32> {
    let Op::Attn { heads, kv_heads, dim, v_dim, scale, sink, segments } = op else { unreachable!("Attn") };
    let (heads, dim, v_dim) = (*heads, *dim, *v_dim);
    let q = cx.tensor(0);
    let sinks = if *sink { Some(cx.vector(0)) } else { None };
    let mut out = vec![0.0; cx.rows * heads * v_dim];
    for (r, rec) in cx.step.rows().iter().enumerate() {
        // Rows of keys and of values of everything in sight.
        let mut sight: Vec<(CacheRow, CacheRow)> = vec![];
        for seg in segments {
            let k = cache(cx, seg.k);
            let v = seg.v.map_or(k, |v| cache(cx, v));
            let row = |state, t| cx.states.widened(state, rec.slot, t);
            sight.extend(visible(cx, r, rec, seg).into_iter().map(|t| (row(k, t), row(v, t))));
        }
        for h in 0..heads {
            let q = &q[(r * heads + h) * dim..][..dim];
            let group = h / (heads / kv_heads);
            let scores: Vec<f32> =
                sight.iter().map(|(k, _)| (dot(q, &k[group * dim..][..dim]) * f64::from(*scale)) as f32).collect();
            let p = softmax(&scores, sinks.as_ref().map(|s| s[h]));
            let o = &mut out[(r * heads + h) * v_dim..][..v_dim];
            for (c, o) in o.iter_mut().enumerate() {
                let value = |v: &[f32]| f64::from(v[group * v_dim + c]);
                *o = sight.iter().zip(&p).map(|((_, v), p)| p * value(v)).sum::<f64>() as f32;
            }
        }
    }
    out
}

pub fn latent(cx: &Cx, heads: usize, rank: usize, rope: usize, scale: f32, select: bool) -> Vec<f32> {
    let (q, q_rope, state) = (cx.tensor(0), cx.tensor(1), cache(cx, 2));
    let seg = Segment { k: 2, v: None, select: select.then_some(3), every: 1, window: None };
    let mut out = vec![0.0; cx.rows * heads * rank];
    for (r, rec) in cx.step.rows().iter().enumerate() {
        let sight: Vec<CacheRow> =
            visible(cx, r, rec, &seg).into_iter().map(|t| cx.states.widened(state, rec.slot, t)).collect();
        for h in 0..heads {
            let q = &q[(r * heads + h) * rank..][..rank];
            let q_rope = &q_rope[(r * heads + h) * rope..][..rope];
            let score =
                |row: &Cow<[f32]>| ((dot(q, &row[..rank]) + dot(q_rope, &row[rank..])) * f64::from(scale)) as f32;
            let p = softmax(&sight.iter().map(score).collect::<Vec<f32>>(), None);
            let mut sums = vec![0.0f64; rank];
            for (row, p) in sight.iter().zip(&p) {
                sums.iter_mut().zip(row.iter()).for_each(|(s, c)| *s += p * f64::from(*c));
            }
            let out = &mut out[(r * heads + h) * rank..][..rank];
            out.iter_mut().zip(&sums).for_each(|(o, s)| *o = *s as f32);
        }
    }
    out
}

pub fn index_score(cx: &Cx, heads: usize, dim: usize, scale: f32, every: usize) -> Value {
    let (q, state, w) = (cx.tensor(0), cache(cx, 1), cx.tensor(2));
    let mut out = vec![];
    for (r, rec) in cx.step.rows().iter().enumerate() {
        let score = |t: usize| {
            let key = cx.states.widened(state, rec.slot, t);
            let head = |h: usize| {
                let q = &q[(r * heads + h) * dim..][..dim];
                f64::from(w[r * heads + h]) * dot(q, &key).max(0.0)
            };
            ((0..heads).map(head).sum::<f64>() * f64::from(scale)) as f32
        };
        out.push((0..rec.visible_rows(every)).map(score).collect());
    }
    Value::Scores(Arc::new(out))
}

pub fn topk_select(cx: &Cx, k: usize) -> Value {
    let Value::Scores(scores) = cx.inputs[0] else { unreachable!("scores") };
    let pick = |s: &Vec<f32>| {
        let mut best: Vec<u32> = top_k(s, k).into_iter().map(|t| t as u32).collect();
        best.sort_unstable();
        best
    };
    Value::Selection(Arc::new(scores.iter().map(pick).collect()))
}
