//! Residual streams that are more than a sum.

use super::error::CpuError;
use super::work::{Work, made};
use crate::cpu::residual::{self, Hyper, HyperWeights};
use crate::graph::{Node, Value};
use std::sync::Arc;

type Made = Result<Value, CpuError>;

impl Work<'_> {
    fn stack(&self, n: &Node, i: usize) -> Result<&[Arc<Vec<f32>>], CpuError> {
        match self.input(n, i) {
            Some(Value::Stack(entries)) => Ok(entries),
            _ => Err(CpuError::Kind { node: n.path(), want: "a stack" }),
        }
    }

    pub(super) fn attn_res_mix(&self, n: &Node, d: usize, eps: f32) -> Made {
        let (x, stack) = (self.shared(n, 0)?, self.stack(n, 1)?);
        if stack.is_empty() {
            return Ok(Value::Tensor(Arc::clone(x)));
        }
        let (w, proj) = (self.vector(n, 0)?, self.vector(n, 1)?);
        let entries: Vec<&[f32]> = stack.iter().chain([x]).map(|e| e.as_slice()).collect();
        made(self.rows().len() * d, |y| residual::attn_res_mix(&entries, &w, &proj, eps, y))
    }

    pub(super) fn attn_res_push(&self, n: &Node) -> Made {
        let (x, stack) = (self.shared(n, 0)?, self.stack(n, 1)?);
        Ok(Value::Stack(stack.iter().chain([x]).cloned().collect()))
    }

    pub(super) fn hc_weights(&self, n: &Node, h: Hyper, iters: usize) -> Made {
        let (x, mix, base, scale) = (self.tensor(n, 0)?, self.matrix(n, 0)?, self.vector(n, 1)?, self.vector(n, 2)?);
        let w = HyperWeights { mix, base: &base, scale: &scale };
        let outs = 2 * h.n + h.n * h.n;
        made(self.rows().len() * outs, |y| residual::hc_weights(x, h, iters, w, y))
    }

    pub(super) fn hc_collapse(&self, n: &Node, streams: usize, d: usize) -> Made {
        let (x, mix) = (self.tensor(n, 0)?, self.tensor(n, 1)?);
        let stride = 2 * streams + streams * streams;
        made(self.rows().len() * d, |y| residual::hc_collapse(x, mix, stride, streams, d, y))
    }

    pub(super) fn hc_expand(&self, n: &Node, streams: usize, d: usize) -> Made {
        let (y, x, mix) = (self.tensor(n, 0)?, self.tensor(n, 1)?, self.tensor(n, 2)?);
        made(x.len(), |out| residual::hc_expand(y, x, mix, streams, d, out))
    }

    pub(super) fn hc_head(&self, n: &Node, h: Hyper) -> Made {
        let (x, mix, base, scale) = (self.tensor(n, 0)?, self.matrix(n, 0)?, self.vector(n, 1)?, self.vector(n, 2)?);
        let w = HyperWeights { mix, base: &base, scale: &scale };
        made(self.rows().len() * h.d, |y| residual::hc_head(x, h, w, y))
    }
}
