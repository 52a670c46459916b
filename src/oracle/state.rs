//! Ops that keep state between steps.

use super::math::{sigmoid, silu, softmax, softplus};
use super::{Cx, OracleError, row};
use crate::graph::{TooLarge, Value};
use crate::ops::Type;
use crate::ops::op::KdaGate;

/// Writes rows at their positions, or emitted rows at their windows; the cache rounds them.
pub fn append(cx: &mut Cx, width: usize) -> Result<Value, OracleError> {
    let state = cx.state();
    let every = match cx.output {
        Type::Cache { every, .. } => *every as usize,
        _ => 1,
    };
    let places: Vec<(u32, usize)> = if every == 1 {
        cx.step.rows().iter().map(|r| (r.slot, r.position as usize)).collect()
    } else {
        cx.step.emitted(every).iter().map(|e| (e.slot, e.window as usize)).collect()
    };
    let x = cx.tensor(0).to_vec();
    for (row, ((slot, at), values)) in places.into_iter().zip(x.chunks_exact(width)).enumerate() {
        let too_large = |value| TooLarge { node: cx.node.path(), row, value };
        cx.states.append(state, slot, at, values).map_err(too_large)?;
    }
    Ok(Value::Cache(state))
}

/// Depthwise convolution. The input of position p lies at row p of the window, so the oldest is overwritten
/// only after it was used.
pub fn conv(cx: &mut Cx, channels: usize, taps: usize, act: bool) -> Vec<f32> {
    let state = cx.state();
    let weights: Vec<Vec<f32>> = (0..channels).map(|c| row(cx.weight(0), c)).collect();
    let u = cx.tensor(0).to_vec();
    let mut out = vec![0.0; u.len()];
    for (r, rec) in cx.step.rows().iter().enumerate() {
        let p = rec.position as usize;
        let now = &u[r * channels..(r + 1) * channels];
        for c in 0..channels {
            let mut sum = f64::from(weights[c][taps - 1]) * f64::from(now[c]);
            for back in 1..taps.min(p + 1) {
                let past = cx.states.row(state, rec.slot, p - back)[c];
                sum += f64::from(weights[c][taps - 1 - back]) * f64::from(past);
            }
            out[r * channels + c] = if act { silu(sum) as f32 } else { sum as f32 };
        }
        cx.states.row_mut(state, rec.slot, p).copy_from_slice(now);
    }
    out
}

pub fn kda_gate(cx: &Cx, heads: usize, dim: usize, kind: KdaGate) -> Vec<f32> {
    let a = cx.vector(0);
    let value = |i: usize, z: f32| {
        let decay = libm::exp(f64::from(a[i / dim % heads]));
        let z = f64::from(z);
        match kind {
            KdaGate::Bounded { bound } => f64::from(bound) * sigmoid(decay * z),
            KdaGate::Softplus => -decay * softplus(z),
        }
    };
    cx.tensor(0).iter().enumerate().map(|(i, z)| value(i, *z) as f32).collect()
}

/// Row by row: decay, correct, read. The state is f32 and is rounded once per row.
pub fn delta_rule(cx: &mut Cx, heads: usize, dk: usize, dv: usize) -> Vec<f32> {
    let state = cx.state();
    let [q, k, v, g, beta] = [0, 1, 2, 3, 4].map(|i| cx.tensor(i).to_vec());
    let mut out = vec![0.0; cx.rows * heads * dv];
    for (r, rec) in cx.step.rows().iter().enumerate() {
        let memory = cx.states.row_mut(state, rec.slot, 0);
        if rec.position == 0 {
            memory.fill(0.0);
        }
        for h in 0..heads {
            let s = &mut memory[h * dk * dv..(h + 1) * dk * dv];
            let at = (r * heads + h) * dk;
            let (q, k, g) = (&q[at..at + dk], &k[at..at + dk], &g[at..at + dk]);
            let v = &v[(r * heads + h) * dv..][..dv];
            let o = &mut out[(r * heads + h) * dv..][..dv];
            for c in 0..dv {
                delta_column(s, c, dv, [q, k, g], v[c], beta[r * heads + h], &mut o[c]);
            }
        }
    }
    out
}

/// One value channel of one head.
fn delta_column(s: &mut [f32], c: usize, dv: usize, [q, k, g]: [&[f32]; 3], v: f32, beta: f32, o: &mut f32) {
    let decayed: Vec<f64> =
        g.iter().enumerate().map(|(i, g)| libm::exp(f64::from(*g)) * f64::from(s[i * dv + c])).collect();
    let known: f64 = decayed.iter().zip(k).map(|(s, k)| s * f64::from(*k)).sum();
    let delta = f64::from(beta) * (f64::from(v) - known);
    let mut read = 0.0;
    for i in 0..k.len() {
        let new = decayed[i] + f64::from(k[i]) * delta;
        read += new * f64::from(q[i]);
        s[i * dv + c] = new as f32;
    }
    *o = read as f32;
}

/// Each position's [kv | gate + ape] lies at its row of the window; a closing row pools.
pub fn window_pool(cx: &mut Cx, m: usize, d: usize, overlap: bool) -> Vec<f32> {
    let state = cx.state();
    let width = if overlap { 2 * d } else { d };
    let ape: Vec<Vec<f32>> = (0..m).map(|j| row(cx.weight(0), j)).collect();
    let (kv, gate) = (cx.tensor(0).to_vec(), cx.tensor(1).to_vec());
    let mut out = vec![];
    for (r, rec) in cx.step.rows().iter().enumerate() {
        let p = rec.position as usize;
        let memory = cx.states.row_mut(state, rec.slot, p);
        memory[..width].copy_from_slice(&kv[r * width..(r + 1) * width]);
        for c in 0..width {
            memory[width + c] = gate[r * width + c] + ape[p % m][c];
        }
        if (p + 1).is_multiple_of(m) {
            for c in 0..d {
                out.push(pool_channel(cx, state, rec.slot, p / m, m, c, d, overlap));
            }
        }
    }
    out
}

#[allow(clippy::too_many_arguments, reason = "a window of a state, and the channel")]
fn pool_channel(cx: &Cx, state: usize, slot: u32, window: usize, m: usize, c: usize, d: usize, overlap: bool) -> f32 {
    let width = if overlap { 2 * d } else { d };
    let mut entries: Vec<(f32, f32)> = vec![];
    let mut take = |window: usize, c: usize| {
        for p in window * m..(window + 1) * m {
            let memory = cx.states.row(state, slot, p);
            entries.push((memory[width + c], memory[c]));
        }
    };
    if overlap {
        if window > 0 {
            take(window - 1, c);
        }
        take(window, d + c);
    } else {
        take(window, c);
    }
    let gates: Vec<f32> = entries.iter().map(|e| e.0).collect();
    softmax(&gates, None).iter().zip(&entries).map(|(p, e)| p * f64::from(e.1)).sum::<f64>() as f32
}
