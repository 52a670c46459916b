//! A step being run: its values, and how a node reaches its operands.

use super::error::CpuError;
use crate::cpu::matmul::Sum;
use crate::cpu::{decode, rope};
use crate::formats::Matrix;
use crate::graph::{Graph, Node, Row, States, Step, Value};
use crate::ops::{Op, ResourceId, RowDim, Type};
use crate::weights::{Bound, Tensor};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

type Made = Result<Value, CpuError>;

/// Everything the nodes of one step share.
pub(in crate::run) struct Work<'a> {
    pub graph: &'a Graph,
    pub weights: &'a Bound,
    pub step: &'a Step,
    pub states: &'a mut States,
    /// How products with stored weights are summed, but for those that a choice depends on.
    pub sum: Sum,
    /// The rows of each slot, in order of position.
    pub slots: BTreeMap<u32, Vec<usize>>,
    values: Vec<Option<Value>>,
    tables: &'a [usize],
    /// By frequency table and kind of rows: many nodes rotate by the same angles.
    rotations: HashMap<(usize, RowDim), Arc<Vec<[f32; 2]>>>,
}

/// A new tensor of `len` values that `fill` writes.
pub(in crate::run) fn made(len: usize, fill: impl FnOnce(&mut [f32])) -> Made {
    let mut out = vec![0.0; len];
    fill(&mut out);
    Ok(Value::tensor(out))
}

impl<'a> Work<'a> {
    pub(in crate::run) fn new(
        graph: &'a Graph,
        weights: &'a Bound,
        step: &'a Step,
        states: &'a mut States,
        tables: &'a [usize],
    ) -> Self {
        let start = |ty: &Type| match ty {
            Type::Tokens => Some(Value::Tokens),
            Type::Stack { .. } => Some(Value::Stack(vec![])),
            _ => None,
        };
        let given = graph.resources.iter().map(|r| if r.producer.is_none() { start(&r.ty) } else { None });
        let mut slots: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        step.rows().iter().enumerate().for_each(|(i, r)| slots.entry(r.slot).or_default().push(i));
        Self {
            values: given.collect(),
            graph,
            weights,
            step,
            states,
            sum: Sum::F32,
            slots,
            tables,
            rotations: HashMap::new(),
        }
    }

    pub(in crate::run) fn rows(&self) -> &'a [Row] {
        self.step.rows()
    }

    pub(in crate::run) fn keep(&mut self, id: ResourceId, value: Value) {
        self.values[id.0 as usize] = Some(value);
    }

    pub(in crate::run) fn drop_value(&mut self, id: ResourceId) {
        self.values[id.0 as usize] = None;
    }

    pub(in crate::run) fn take(&mut self, id: ResourceId) -> Option<Value> {
        self.values[id.0 as usize].take()
    }

    pub(in crate::run) fn input(&self, node: &Node, i: usize) -> Option<&Value> {
        self.values[node.inputs.get(i)?.0 as usize].as_ref()
    }

    pub(in crate::run) fn shared(&self, node: &Node, i: usize) -> Result<&Arc<Vec<f32>>, CpuError> {
        match self.input(node, i) {
            Some(Value::Tensor(values)) => Ok(values),
            _ => Err(CpuError::Kind { node: node.path(), want: "a tensor" }),
        }
    }

    pub(in crate::run) fn tensor(&self, node: &Node, i: usize) -> Result<&[f32], CpuError> {
        Ok(self.shared(node, i)?)
    }

    /// Ids and weights of a route, `[rows][k]` each.
    pub(in crate::run) fn route(&self, node: &Node, i: usize) -> Result<(&[u32], &[f32]), CpuError> {
        match self.input(node, i) {
            Some(Value::Route { ids, weights }) => Ok((ids, weights)),
            _ => Err(CpuError::Kind { node: node.path(), want: "a route" }),
        }
    }

    /// Index of the state behind a cache.
    pub(in crate::run) fn cache(&self, node: &Node, i: usize) -> Result<usize, CpuError> {
        match self.input(node, i) {
            Some(Value::Cache(state)) => Ok(*state),
            _ => Err(CpuError::Kind { node: node.path(), want: "a cache" }),
        }
    }

    /// Index of the state that the node writes.
    pub(in crate::run) fn state(&self, node: &Node) -> Result<usize, CpuError> {
        let state = node.state.ok_or_else(|| CpuError::Kind { node: node.path(), want: "a state" })?;
        Ok(state.0 as usize)
    }

    pub(in crate::run) fn weight(&self, node: &Node, i: usize) -> Result<&'a Tensor, CpuError> {
        let id = node.weights.get(i).ok_or_else(|| CpuError::Kind { node: node.path(), want: "a weight" })?;
        Ok(self.weights.one(id.0 as usize))
    }

    pub(in crate::run) fn matrix(&self, node: &Node, i: usize) -> Result<Matrix<'a>, CpuError> {
        Ok(self.weight(node, i)?.matrix())
    }

    /// A weight's values.
    pub(in crate::run) fn vector(&self, node: &Node, i: usize) -> Result<Vec<f32>, CpuError> {
        Ok(decode(self.matrix(node, i)?))
    }

    /// What the rows of an input stand for.
    pub(in crate::run) fn row_dim(&self, node: &Node, i: usize) -> RowDim {
        match node.inputs.get(i).map(|id| &self.graph.resource(*id).ty) {
            Some(Type::Tensor { rows, .. }) => *rows,
            _ => RowDim::Tokens,
        }
    }

    /// Angles of the rows of the node's input, as cosines and sines.
    pub(in crate::run) fn rotations(&mut self, at: usize, node: &Node, inv_freq: &[f32]) -> Arc<Vec<[f32; 2]>> {
        let (dim, step) = (self.row_dim(node, 0), self.step);
        let made = self.rotations.entry((self.tables[at], dim)).or_insert_with(|| {
            let positions: Vec<u32> = match dim {
                RowDim::Emitted(m) => step.emitted(m as usize).iter().map(|e| e.window * m as u32).collect(),
                _ => step.rows().iter().map(|r| r.position).collect(),
            };
            Arc::new(rope::rotations(&positions, inv_freq))
        });
        Arc::clone(made)
    }

    /// Computes a node, number `at` in execution order. The operators in the order of [`Op`].
    pub(in crate::run) fn run(&mut self, at: usize, n: &Node) -> Made {
        match &n.op {
            Op::EmbedRow { d, repeat, .. } => self.embed(n, *d, *repeat),
            Op::Linear { inp, out, bias } => self.linear(n, *inp, *out, *bias),
            Op::LmHead { inp, out } => self.head(n, *inp, *out),
            Op::LinearGrouped { groups, out, .. } => self.grouped(n, *groups, 0..*out),
            Op::RmsNorm { n: width, eps, weighted } => self.rms_norm(n, *width, *eps, *weighted),
            Op::RmsNormGated { n: width, eps, gate } => self.rms_norm_gated(n, *width, *eps, *gate),
            Op::LayerNorm { n: width, eps } => self.layer_norm(n, *width, *eps),
            Op::L2Norm { n: width, eps, scale } => self.l2_norm(n, *width, *eps, *scale),
            Op::Add => self.add(n),
            Op::MulSigmoid => self.mul_sigmoid(n),
            Op::Sigmoid => self.sigmoid(n),
            Op::Glu(kind) => self.glu(n, *kind),
            Op::Slice { width, at, len } => self.slice(n, *width, *at, *len),
            Op::Concat { widths } => self.concat(n, widths),
            Op::View => Ok(Value::Tensor(Arc::clone(self.shared(n, 0)?))),
            Op::Rope { width, rope } => self.rope(at, n, *width, rope),
            Op::CacheAppend { width } | Op::RingAppend { width } => self.append(n, *width),
            Op::CausalConv1d { channels, taps, silu } => self.conv(n, *channels, *taps, *silu),
            Op::KdaGate { dim, kind, .. } => self.kda_gate(n, *dim, *kind),
            Op::DeltaRule { heads, k, v } => self.delta_rule(n, *heads, *k, *v),
            Op::WindowPool { m, d, overlap } => self.window_pool(n, *m, *d, *overlap),
            Op::Attn { .. } => self.attn(n),
            Op::AttnLatent { rank, rope, select, .. } => self.attn_latent(n, *rank, *rope, *select),
            Op::MlaAbsorbQ { heads, nope, rank, .. } => self.absorb_q(n, *heads, *nope, *rank),
            Op::MlaExpandV { heads, nope, v_dim, .. } => self.grouped(n, *heads, *nope..nope + v_dim),
            Op::IndexScore { heads, dim, scale, every } => self.index_score(n, *heads, *dim, *scale, *every),
            Op::TopkSelect { k } => self.topk_select(n, *k),
            Op::RouterLogits { inp, experts } => self.router_logits(n, *inp, *experts),
            Op::RouterTopk(router) => self.router_topk(n, router),
            Op::MoeExperts { inp, out, k, kind, .. } => self.moe_experts(n, *inp, *out, *k, *kind),
            Op::AttnResMix { d, eps, .. } => self.attn_res_mix(n, *d, *eps),
            Op::AttnResPush { .. } => self.attn_res_push(n),
            Op::HcWeights { n: streams, d, eps, norm_eps, iters } => {
                self.hc_weights(n, residual(*streams, *d, *eps, *norm_eps), *iters)
            }
            Op::HcCollapse { n: streams, d } => self.hc_collapse(n, *streams, *d),
            Op::HcExpand { n: streams, d } => self.hc_expand(n, *streams, *d),
            Op::HcHead { n: streams, d, eps, norm_eps } => self.hc_head(n, residual(*streams, *d, *eps, *norm_eps)),
        }
    }
}

fn residual(n: usize, d: usize, eps: f32, norm_eps: f32) -> crate::cpu::residual::Hyper {
    crate::cpu::residual::Hyper { n, d, eps, norm_eps }
}
