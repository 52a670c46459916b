//! Routing and experts.

use super::elementwise::glu_value;
use super::linear::times;
use super::math::{sigmoid, softmax, softplus, top_k};
use super::{Cx, OracleError};
use crate::formats::rotation::Rotation;
use crate::graph::Value;
use crate::ops::op::{GluKind, GroupScore, Router, Score};
use crate::weights::Tensor;
use std::borrow::Cow;
use std::sync::Arc;

fn scores(z: &[f32], score: Score) -> Vec<f32> {
    match score {
        Score::Sigmoid => z.iter().map(|z| sigmoid(f64::from(*z)) as f32).collect(),
        Score::SqrtSoftplus => z.iter().map(|z| libm::sqrt(softplus(f64::from(*z))) as f32).collect(),
        Score::Softmax => softmax(z, None).into_iter().map(|p| p as f32).collect(),
    }
}

/// Experts outside the best groups cannot be chosen.
fn mask_groups(biased: &mut [f32], router: &Router) {
    if router.groups == 1 {
        return;
    }
    let size = router.experts / router.groups;
    let group = |g: &[f32]| match router.group_score {
        GroupScore::Max => g.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        GroupScore::Top2Sum => top_k(g, 2).iter().map(|i| f64::from(g[*i])).sum::<f64>() as f32,
    };
    let groups: Vec<f32> = biased.chunks_exact(size).map(group).collect();
    let kept = top_k(&groups, router.top_groups);
    for (g, chunk) in biased.chunks_exact_mut(size).enumerate() {
        if !kept.contains(&g) {
            chunk.fill(f32::NEG_INFINITY);
        }
    }
}

fn choose(cx: &Cx, r: usize, s: &[f32], bias: Option<&[f32]>, router: &Router) -> Result<Vec<usize>, OracleError> {
    if router.table {
        let token = cx.step.rows()[r].token;
        let mut ids = vec![0i64; router.k];
        cx.weight(0).matrix().int_row(token as usize, &mut ids);
        let bad = ids.iter().find(|id| !(0..router.experts as i64).contains(*id));
        return match bad {
            Some(id) => Err(OracleError::Table { node: cx.node.path(), token, id: *id, experts: router.experts }),
            None => Ok(ids.into_iter().map(|id| id as usize).collect()),
        };
    }
    let mut biased: Vec<f32> = match bias {
        Some(b) => s.iter().zip(b).map(|(s, b)| s + b).collect(),
        None => s.to_vec(),
    };
    mask_groups(&mut biased, router);
    Ok(top_k(&biased, router.k))
}

pub fn router_topk(cx: &Cx, router: &Router) -> Result<Value, OracleError> {
    let bias = router.bias.then(|| cx.vector(0));
    let (mut ids, mut weights) = (vec![], vec![]);
    for (r, z) in cx.tensor(0).chunks_exact(router.experts).enumerate() {
        let s = scores(z, router.score);
        let chosen = choose(cx, r, &s, bias.as_deref(), router)?;
        let sum: f64 = chosen.iter().map(|e| f64::from(s[*e])).sum::<f64>() + f64::from(router.renorm_eps);
        for e in chosen {
            let w = if router.renorm { f64::from(s[e]) / sum } else { f64::from(s[e]) };
            ids.push(e as u32);
            weights.push((w * f64::from(router.scale)) as f32);
        }
    }
    Ok(Value::Route { ids: Arc::new(ids), weights: Arc::new(weights) })
}

/// `x` as the stored weight has to meet it: rotated if the weight is (formats.md 6.5). Sums in f64, rounded once;
/// the engine that the format comes from rotates in f32.
fn facing<'x>(w: &Tensor, x: &'x [f32]) -> Cow<'x, [f32]> {
    if !w.format().rotates() {
        return Cow::Borrowed(x);
    }
    let mut wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    Rotation::new(x.len()).forward_f64(&mut wide);
    wide.into_iter().map(|x| x as f32).collect()
}

/// `W x` of an expert's matrix with `outs` rows.
fn product(cx: &Cx, w: &Tensor, outs: usize, x: &[f32]) -> Vec<f32> {
    times(w, outs, &facing(w, x), x.len(), cx.activations)
}

/// Each expert's output is reduced fully and rounded, then summed in rank order.
pub fn experts(cx: &Cx, inp: usize, ff: usize, k: usize, kind: GluKind) -> Vec<f32> {
    let Value::Route { ids, weights } = cx.inputs[1] else { unreachable!("a route") };
    let part = |i: usize, e: u32| cx.weights.expert(cx.node.weights[i].0 as usize, e as usize);
    let mut out = Vec::with_capacity(cx.rows * inp);
    for (r, x) in cx.tensor(0).chunks_exact(inp).enumerate() {
        let mut acc = vec![0.0f32; inp];
        for j in r * k..(r + 1) * k {
            let g = product(cx, part(0, ids[j]), ff, x);
            let u = product(cx, part(1, ids[j]), ff, x);
            let a: Vec<f32> =
                g.iter().zip(&u).map(|(g, u)| glu_value(kind, f64::from(*g), f64::from(*u)) as f32).collect();
            let y = product(cx, part(2, ids[j]), inp, &a);
            acc.iter_mut().zip(&y).for_each(|(acc, y)| *acc += weights[j] * y);
        }
        out.extend(acc);
    }
    out
}
