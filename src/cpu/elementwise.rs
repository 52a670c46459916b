//! Elementwise ops, and ops that only move values.

use super::GRAIN;
use rayon::prelude::*;

/// Nonlinearity of a gated unit, `g` gate and `u` up (models.md C.1 glu, B.6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Glu {
    /// `g sigmoid(g) u`
    Silu,
    /// `0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) u`
    Gelu,
    /// `beta tanh(g/beta) sigmoid(g) * linear_beta tanh(u/linear_beta)`
    Situ { beta: f32, linear_beta: f32 },
    /// `silu(min(g, limit)) * clamp(u, -limit, limit)`
    SiluClamped { limit: f32 },
}

/// What a gate does to its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Sigmoid,
    Silu,
}

/// How the logarithm of a delta rule's decay is formed (models.md B.4, B.10).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decay {
    /// `bound sigmoid(exp(A) z)`
    Bounded { bound: f32 },
    /// `-exp(A) log(1 + exp(z))`
    Softplus,
}

/// `1 / (1 + exp(-x))`. Saturates to 0 and 1, never NaN for a number.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `x sigmoid(x)`.
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `log(1 + exp(x))` without overflow.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

pub(super) fn gate(kind: Gate, z: f32) -> f32 {
    match kind {
        Gate::Sigmoid => sigmoid(z),
        Gate::Silu => silu(z),
    }
}

/// The smaller of both, but NaN stays NaN where `f32::min` would hide it.
fn at_most(x: f32, limit: f32) -> f32 {
    if x > limit { limit } else { x }
}

fn unary(x: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    assert_eq!(x.len(), out.len());
    let parts = x.par_chunks(GRAIN).zip(out.par_chunks_mut(GRAIN));
    parts.for_each(|(x, y)| y.iter_mut().zip(x).for_each(|(y, x)| *y = f(*x)));
}

fn binary(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32 + Sync) {
    assert!(a.len() == out.len() && b.len() == out.len());
    let parts = a.par_chunks(GRAIN).zip(b.par_chunks(GRAIN)).zip(out.par_chunks_mut(GRAIN));
    parts.for_each(|((a, b), y)| y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = f(*a, *b)));
}

/// `y = a + b`; all of one length.
pub fn add(a: &[f32], b: &[f32], out: &mut [f32]) {
    binary(a, b, out, |a, b| a + b);
}

/// `y = x sigmoid(z)`; all of one length (models.md C.1 mul_sigmoid, B.5).
pub fn mul_sigmoid(x: &[f32], z: &[f32], out: &mut [f32]) {
    binary(x, z, out, |x, z| x * sigmoid(z));
}

/// `y = sigmoid(x)`.
pub fn sigmoids(x: &[f32], out: &mut [f32]) {
    unary(x, out, sigmoid);
}

/// A gated unit; all of one length (models.md C.1 glu).
pub fn glu(kind: Glu, g: &[f32], u: &[f32], out: &mut [f32]) {
    match kind {
        Glu::Silu => binary(g, u, out, |g, u| silu(g) * u),
        Glu::Gelu => binary(g, u, out, |g, u| {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (g + 0.044715 * g * g * g);
            0.5 * g * (1.0 + inner.tanh()) * u
        }),
        Glu::Situ { beta, linear_beta: linear } => {
            binary(g, u, out, |g, u| beta * (g / beta).tanh() * sigmoid(g) * (linear * (u / linear).tanh()));
        }
        Glu::SiluClamped { limit } => {
            binary(g, u, out, |g, u| silu(at_most(g, limit)) * -at_most(-at_most(u, limit), limit))
        }
    }
}

/// Log decay of a delta rule per channel (models.md C.8 kda_gate). `z`, `out`: `[rows][heads][dim]`,
/// `a_log`: `[heads]`.
pub fn kda_gate(kind: Decay, z: &[f32], a_log: &[f32], dim: usize, out: &mut [f32]) {
    assert_eq!(z.len(), out.len());
    let heads = z.par_chunks(dim).zip(out.par_chunks_mut(dim)).with_min_len((GRAIN / dim).max(1));
    heads.enumerate().for_each(|(i, (z, out))| {
        let rate = f64::from(a_log[i % a_log.len()]).exp();
        for (y, z) in out.iter_mut().zip(z) {
            let z = f64::from(*z);
            *y = match kind {
                Decay::Bounded { bound } => (f64::from(bound) / (1.0 + (-rate * z).exp())) as f32,
                Decay::Softplus => (-rate * softplus(z)) as f32,
            };
        }
    });
}

/// Channels `at .. at + len` of each group of `width` (models.md C.1 slice).
pub fn slice(x: &[f32], width: usize, at: usize, len: usize, out: &mut [f32]) {
    x.chunks_exact(width).zip(out.chunks_exact_mut(len)).for_each(|(x, y)| y.copy_from_slice(&x[at..at + len]));
}

/// Joins one group of each part in turn (models.md C.1 concat): parts are `[groups][widths[i]]`.
pub fn concat(parts: &[&[f32]], widths: &[usize], out: &mut [f32]) {
    for (group, mut y) in out.chunks_exact_mut(widths.iter().sum()).enumerate() {
        for (part, width) in parts.iter().zip(widths) {
            let (head, tail) = y.split_at_mut(*width);
            head.copy_from_slice(&part[group * width..][..*width]);
            y = tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{close, noise, on_threads};

    fn run(n: usize, f: impl Fn(&mut [f32]) + Sync + Send) -> Vec<f32> {
        on_threads(|| {
            let mut out = vec![0.0; n];
            f(&mut out);
            out
        })
    }

    #[test]
    fn units_follow_their_equations() {
        let n = GRAIN + 7;
        let (g, u) = (noise(1, n), noise(2, n));
        let (g, u): (Vec<f32>, Vec<f32>) = (g.iter().map(|v| v * 8.0).collect(), u.iter().map(|v| v * 8.0).collect());
        let sig = |x: f64| 1.0 / (1.0 + (-x).exp());
        let check = |kind, want: &dyn Fn(f64, f64) -> f64| {
            let got = run(n, |out| glu(kind, &g, &u, out));
            let want: Vec<f32> = g.iter().zip(&u).map(|(g, u)| want(f64::from(*g), f64::from(*u)) as f32).collect();
            close(&got, &want, 1e-6);
        };
        check(Glu::Silu, &|g, u| g * sig(g) * u);
        check(Glu::Gelu, &|g, u| {
            0.5 * g * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3))).tanh()) * u
        });
        check(Glu::Situ { beta: 4.0, linear_beta: 25.0 }, &|g, u| {
            4.0 * (g / 4.0).tanh() * sig(g) * 25.0 * (u / 25.0).tanh()
        });
        check(Glu::SiluClamped { limit: 2.5 }, &|g, u| g.min(2.5) * sig(g.min(2.5)) * u.clamp(-2.5, 2.5));
    }

    #[test]
    fn a_clamp_does_not_hide_nan() {
        let mut out = [0.0; 2];
        glu(Glu::SiluClamped { limit: 1.0 }, &[f32::NAN, 1.0], &[1.0, f32::NAN], &mut out);
        assert!(out.iter().all(|v| v.is_nan()));
    }

    #[test]
    fn gates_and_sums() {
        let (x, z) = (noise(1, 65), noise(2, 65));
        let sig = |x: f32| (1.0 / (1.0 + (-f64::from(x)).exp())) as f32;
        close(&run(65, |o| sigmoids(&x, o)), &x.iter().map(|x| sig(*x)).collect::<Vec<f32>>(), 1e-6);
        let want: Vec<f32> = x.iter().zip(&z).map(|(x, z)| x * sig(*z)).collect();
        close(&run(65, |o| mul_sigmoid(&x, &z, o)), &want, 1e-6);
        let want: Vec<f32> = x.iter().zip(&z).map(|(x, z)| x + z).collect();
        assert_eq!(run(65, |o| add(&x, &z, o)), want);
        assert_eq!((sigmoid(-200.0), sigmoid(200.0), silu(-200.0)), (0.0, 1.0, 0.0));
    }

    #[test]
    fn decay_per_head() {
        let (z, a) = (noise(1, 2 * 3 * 7), noise(2, 3));
        let z: Vec<f32> = z.iter().map(|v| v * 30.0).collect();
        let head = |i: usize| f64::from(a[i / 7 % 3]).exp();
        let softplus: Vec<f32> =
            z.iter().enumerate().map(|(i, z)| (-head(i) * (1.0 + f64::from(*z).exp()).ln()) as f32).collect();
        close(&run(z.len(), |o| kda_gate(Decay::Softplus, &z, &a, 7, o)), &softplus, 1e-6);
        let bounded: Vec<f32> =
            z.iter().enumerate().map(|(i, z)| (-5.0 / (1.0 + (-head(i) * f64::from(*z)).exp())) as f32).collect();
        close(&run(z.len(), |o| kda_gate(Decay::Bounded { bound: -5.0 }, &z, &a, 7, o)), &bounded, 1e-6);
    }

    #[test]
    fn slices_and_joins() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut y = [0.0; 4];
        slice(&x, 3, 1, 2, &mut y);
        assert_eq!(y, [2.0, 3.0, 5.0, 6.0]);
        let mut z = [0.0; 6];
        concat(&[&[1.0, 4.0], &y], &[1, 2], &mut z);
        assert_eq!(z, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
}
