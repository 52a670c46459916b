//! Elementwise ops, layout and rotation.

use super::Cx;
use super::math::{sigmoid, silu};
use crate::ops::op::{GluKind, Rope, RopeIn, RopeOut};

fn zip(a: &[f32], b: &[f32], f: impl Fn(f64, f64) -> f64) -> Vec<f32> {
    a.iter().zip(b).map(|(x, y)| f(f64::from(*x), f64::from(*y)) as f32).collect()
}

pub fn add(cx: &Cx) -> Vec<f32> {
    zip(cx.tensor(0), cx.tensor(1), |a, b| a + b)
}

pub fn mul_sigmoid(cx: &Cx) -> Vec<f32> {
    zip(cx.tensor(0), cx.tensor(1), |x, z| x * sigmoid(z))
}

pub fn sigmoid_op(cx: &Cx) -> Vec<f32> {
    cx.tensor(0).iter().map(|x| sigmoid(f64::from(*x)) as f32).collect()
}

/// Gated unit of one gate and up value.
pub fn glu_value(kind: GluKind, g: f64, u: f64) -> f64 {
    match kind {
        GluKind::Silu => silu(g) * u,
        GluKind::Gelu => {
            let c = libm::sqrt(2.0 / std::f64::consts::PI);
            0.5 * g * (1.0 + libm::tanh(c * (g + 0.044715 * g * g * g))) * u
        }
        GluKind::Situ { beta, linear_beta } => {
            let (b, l) = (f64::from(beta), f64::from(linear_beta));
            b * libm::tanh(g / b) * sigmoid(g) * (l * libm::tanh(u / l))
        }
        GluKind::SiluClamped { limit } => {
            let limit = f64::from(limit);
            silu(g.min(limit)) * u.clamp(-limit, limit)
        }
    }
}

pub fn glu(cx: &Cx, kind: GluKind) -> Vec<f32> {
    zip(cx.tensor(0), cx.tensor(1), |g, u| glu_value(kind, g, u))
}

pub fn slice(cx: &Cx, width: usize, at: usize, len: usize) -> Vec<f32> {
    cx.tensor(0).chunks_exact(width).flat_map(|x| &x[at..at + len]).copied().collect()
}

pub fn concat(cx: &Cx, widths: &[usize]) -> Vec<f32> {
    let runs = cx.tensor(0).len() / widths[0];
    let mut out = vec![];
    for r in 0..runs {
        for (i, w) in widths.iter().enumerate() {
            out.extend_from_slice(&cx.tensor(i)[r * w..(r + 1) * w]);
        }
    }
    out
}

/// The angle is f32(position) * inv_freq rounded to f32; its sine and cosine are taken in f64 and rounded.
pub fn rope(cx: &Cx, width: usize, rope: &Rope) -> Vec<f32> {
    let x = cx.tensor(0);
    let mut out = x.to_vec();
    if cx.rows == 0 {
        return out;
    }
    let per_row = x.len() / cx.rows;
    for (r, position) in cx.positions.iter().enumerate() {
        for head in 0..per_row / width {
            let at = r * per_row + head * width + rope.at;
            rotate(&x[at..at + rope.dims], &mut out[at..at + rope.dims], *position, rope);
        }
    }
    out
}

fn rotate(x: &[f32], out: &mut [f32], position: u32, rope: &Rope) {
    let half = rope.dims / 2;
    for j in 0..half {
        let angle = f64::from(position as f32 * rope.inv_freq[j]);
        let sign = if rope.inverse { -1.0 } else { 1.0 };
        let (sin, cos) = (f64::from(libm::sin(angle) as f32) * sign, f64::from(libm::cos(angle) as f32));
        let pair = |interleaved: bool| if interleaved { (2 * j, 2 * j + 1) } else { (j, j + half) };
        let read = pair(rope.layout_in == RopeIn::Interleaved);
        let write = match rope.layout_out {
            RopeOut::Same => read,
            RopeOut::Half => pair(false),
        };
        let (a, b) = (f64::from(x[read.0]), f64::from(x[read.1]));
        out[write.0] = (a * cos - b * sin) as f32;
        out[write.1] = (b * cos + a * sin) as f32;
    }
}
