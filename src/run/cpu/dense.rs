//! Linear maps, norms, elementwise ops, rotation.

use super::error::CpuError;
use super::work::{Work, made};
use crate::cpu::elementwise::{self, Decay, Glu};
use crate::cpu::matmul::{self, Sum};
use crate::cpu::{latent, norm, rope};
use crate::graph::{Node, Value};
use crate::ops::op::{Gate, GluKind, KdaGate, Rope, RopeIn, RopeOut};
use std::ops::Range;

type Made = Result<Value, CpuError>;

/// The kernel's word for a gated unit.
pub(super) fn glu_of(kind: GluKind) -> Glu {
    match kind {
        GluKind::Silu => Glu::Silu,
        GluKind::Gelu => Glu::Gelu,
        GluKind::Situ { beta, linear_beta } => Glu::Situ { beta, linear_beta },
        GluKind::SiluClamped { limit } => Glu::SiluClamped { limit },
    }
}

impl Work<'_> {
    pub(super) fn embed(&self, n: &Node, d: usize, repeat: usize) -> Made {
        let w = self.matrix(n, 0)?;
        made(self.rows().len() * repeat * d, |out| {
            for (row, out) in self.rows().iter().zip(out.chunks_exact_mut(repeat * d)) {
                out.chunks_exact_mut(d).for_each(|copy| w.decode_row(row.token as usize, copy));
            }
        })
    }

    pub(super) fn linear(&self, n: &Node, inp: usize, out: usize, bias: bool) -> Made {
        let (x, w) = (self.tensor(n, 0)?, self.matrix(n, 0)?);
        let bias = if bias { Some(self.vector(n, 1)?) } else { None };
        let x: Vec<&[f32]> = x.chunks_exact(inp).collect();
        made(x.len() * out, |y| matmul::linear(x, w, bias.as_deref(), self.sum, y))
    }

    pub(super) fn router_logits(&self, n: &Node, inp: usize, experts: usize) -> Made {
        let (x, w) = (self.tensor(n, 0)?, self.matrix(n, 0)?);
        let x: Vec<&[f32]> = x.chunks_exact(inp).collect();
        made(x.len() * experts, |y| matmul::linear(x, w, None, Sum::F64, y))
    }

    pub(super) fn head(&self, n: &Node, inp: usize, out: usize) -> Made {
        let (x, w) = (self.tensor(n, 0)?, self.matrix(n, 0)?);
        let x: Vec<&[f32]> = self.step.outputs().iter().map(|r| &x[r * inp..][..inp]).collect();
        made(x.len() * out, |y| matmul::linear(x, w, None, self.sum, y))
    }

    /// `rows` of each group's rows: all of LinearGrouped, the value rows of MlaExpandV.
    pub(super) fn grouped(&self, n: &Node, groups: usize, rows: Range<usize>) -> Made {
        let (x, w) = (self.tensor(n, 0)?, self.matrix(n, 0)?);
        made(x.len() / w.cols() * rows.len(), |y| matmul::linear_grouped(x, w, groups, rows, self.sum, y))
    }

    pub(super) fn absorb_q(&self, n: &Node, heads: usize, nope: usize, rank: usize) -> Made {
        let (q, w) = (self.tensor(n, 0)?, self.matrix(n, 0)?);
        made(q.len() / nope * rank, |y| latent::absorb_q(q, w, heads, nope, y))
    }

    pub(super) fn rms_norm(&self, n: &Node, width: usize, eps: f32, weighted: bool) -> Made {
        let x = self.tensor(n, 0)?;
        let w = if weighted { Some(self.vector(n, 0)?) } else { None };
        made(x.len(), |y| norm::rms_norm(x, width, eps, w.as_deref(), y))
    }

    pub(super) fn rms_norm_gated(&self, n: &Node, width: usize, eps: f32, gate: Gate) -> Made {
        let (x, z, w) = (self.tensor(n, 0)?, self.tensor(n, 1)?, self.vector(n, 0)?);
        let gate = match gate {
            Gate::Sigmoid => elementwise::Gate::Sigmoid,
            Gate::Silu => elementwise::Gate::Silu,
        };
        made(x.len(), |y| norm::rms_norm_gated(x, z, width, eps, &w, gate, y))
    }

    pub(super) fn layer_norm(&self, n: &Node, width: usize, eps: f32) -> Made {
        let (x, w, bias) = (self.tensor(n, 0)?, self.vector(n, 0)?, self.vector(n, 1)?);
        made(x.len(), |y| norm::layer_norm(x, width, eps, &w, &bias, y))
    }

    pub(super) fn l2_norm(&self, n: &Node, width: usize, eps: f32, scale: f32) -> Made {
        let x = self.tensor(n, 0)?;
        made(x.len(), |y| norm::l2_norm(x, width, eps, scale, y))
    }

    pub(super) fn add(&self, n: &Node) -> Made {
        let (a, b) = (self.tensor(n, 0)?, self.tensor(n, 1)?);
        made(a.len(), |y| elementwise::add(a, b, y))
    }

    pub(super) fn mul_sigmoid(&self, n: &Node) -> Made {
        let (x, z) = (self.tensor(n, 0)?, self.tensor(n, 1)?);
        made(x.len(), |y| elementwise::mul_sigmoid(x, z, y))
    }

    pub(super) fn sigmoid(&self, n: &Node) -> Made {
        let x = self.tensor(n, 0)?;
        made(x.len(), |y| elementwise::sigmoids(x, y))
    }

    pub(super) fn glu(&self, n: &Node, kind: GluKind) -> Made {
        let (g, u) = (self.tensor(n, 0)?, self.tensor(n, 1)?);
        made(g.len(), |y| elementwise::glu(glu_of(kind), g, u, y))
    }

    pub(super) fn kda_gate(&self, n: &Node, dim: usize, kind: KdaGate) -> Made {
        let (z, a_log) = (self.tensor(n, 0)?, self.vector(n, 0)?);
        let kind = match kind {
            KdaGate::Bounded { bound } => Decay::Bounded { bound },
            KdaGate::Softplus => Decay::Softplus,
        };
        made(z.len(), |y| elementwise::kda_gate(kind, z, &a_log, dim, y))
    }

    pub(super) fn slice(&self, n: &Node, width: usize, at: usize, len: usize) -> Made {
        let x = self.tensor(n, 0)?;
        made(x.len() / width * len, |y| elementwise::slice(x, width, at, len, y))
    }

    pub(super) fn concat(&self, n: &Node, widths: &[usize]) -> Made {
        let parts = (0..widths.len()).map(|i| self.tensor(n, i)).collect::<Result<Vec<_>, _>>()?;
        made(parts.iter().map(|p| p.len()).sum(), |y| elementwise::concat(&parts, widths, y))
    }

    pub(super) fn rope(&mut self, at: usize, n: &Node, width: usize, r: &Rope) -> Made {
        let rotations = self.rotations(at, n, &r.inv_freq);
        let pairs = rope::Pairs {
            at: r.at,
            dims: r.dims,
            interleaved: r.layout_in == RopeIn::Interleaved,
            halves: r.layout_out == RopeOut::Half,
            inverse: r.inverse,
        };
        let x = self.tensor(n, 0)?;
        made(x.len(), |y| rope::rope(x, width, &pairs, &rotations, y))
    }
}
