//! The reference: runs a graph node by node. Simple and slow on purpose.
//!
//! f32 values; every reduction is accumulated in f64 and rounded once; transcendental functions come from
//! `libm`, so that results are the same on every machine. No plan, no SIMD, no threads. Other executors are
//! held to what this one computes, and this one to recorded outputs of independent implementations.
//!
//! With int8 activations the products that `docs/formats.md` names are made as it defines them (`int8`).

mod attention;
mod elementwise;
mod int8;
mod linear;
mod math;
mod moe;
mod norm;
mod residual;
mod state;

use crate::formats::activation::Activations;
use crate::graph::{Graph, Limits, Node, States, Step, TooLarge, Value, Watch};
use crate::ops::{Op, RowDim, Type};
use crate::weights::{Bound, Tensor};
use std::sync::Arc;

/// Why a step has no result.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    #[error("the weight `{name}` holds {value} at row {row}, column {column}; the file is damaged")]
    BadWeight { name: String, row: usize, column: usize, value: f32 },
    #[error("`{node}` computed a value that is not finite, from weights that are all finite")]
    NonFinite { node: String },
    #[error("the routing table of `{node}` names expert {id} for token {token}, but there are {experts}")]
    Table { node: String, token: u32, id: i64, experts: usize },
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// A graph with its weights and the state of its sequences.
pub struct Oracle {
    graph: Arc<Graph>,
    weights: Arc<Bound>,
    states: States,
    activations: Activations,
}

/// What a node's function may look at.
struct Cx<'a> {
    node: &'a Node,
    weights: &'a Bound,
    states: &'a mut States,
    activations: Activations,
    step: &'a Step,
    inputs: Vec<&'a Value>,
    /// Type of what it makes.
    output: &'a Type,
    /// Rows of the output.
    rows: usize,
    /// Positions of the output's rows, where they have one.
    positions: Vec<u32>,
}

impl Cx<'_> {
    /// Values of a tensor operand. The shape rule has made sure that it is one.
    fn tensor(&self, input: usize) -> &[f32] {
        match self.inputs[input] {
            Value::Tensor(t) => t,
            other => unreachable!("{}: input {input} is {other:?}", self.node.path()),
        }
    }

    fn weight(&self, i: usize) -> &Tensor {
        self.weights.one(self.node.weights[i].0 as usize)
    }

    /// A vector weight.
    fn vector(&self, i: usize) -> Vec<f32> {
        row(self.weight(i), 0)
    }

    /// Index of the state that the node writes.
    fn state(&self) -> usize {
        self.node.state.map_or(0, |s| s.0 as usize)
    }
}

/// One row of a weight.
fn row(w: &Tensor, r: usize) -> Vec<f32> {
    let mut out = vec![0.0; w.cols()];
    w.matrix().decode_row(r, &mut out);
    out
}

impl Oracle {
    pub fn new(graph: Arc<Graph>, weights: Arc<Bound>, limits: Limits) -> Self {
        let states = States::new(&graph, limits);
        Self { graph, weights, states, activations: Activations::F32 }
    }

    /// Takes the inputs of products with integer-coded weights as asked for; f32 unless told otherwise.
    pub fn with_activations(self, activations: Activations) -> Self {
        Self { activations, ..self }
    }

    pub fn states(&self) -> &States {
        &self.states
    }

    pub fn states_mut(&mut self) -> &mut States {
        &mut self.states
    }

    /// Runs one step; returns the logits `[outputs, vocab]` of the rows that want them, in row order.
    pub fn step(&mut self, step: &Step, watch: &mut Watch) -> Result<Vec<f32>, OracleError> {
        let graph = self.graph.clone();
        let last_use = graph.last_use();
        let mut values: Vec<Option<Value>> = graph.resources.iter().map(start).collect();
        for (index, node) in graph.nodes() {
            let value = self.node(&graph, node, step, &values)?;
            watch(node, &value);
            values[node.output.0 as usize] = Some(value);
            for id in &node.inputs {
                if last_use[id.0 as usize] == Some(index) && *id != graph.logits {
                    values[id.0 as usize] = None;
                }
            }
        }
        self.states.advance(step.rows());
        match values[graph.logits.0 as usize].take() {
            Some(Value::Tensor(t)) => Ok(Arc::unwrap_or_clone(t)),
            other => unreachable!("logits are {other:?}"),
        }
    }

    fn node(
        &mut self,
        graph: &Graph,
        node: &Node,
        step: &Step,
        values: &[Option<Value>],
    ) -> Result<Value, OracleError> {
        let inputs = node.inputs.iter().map(|id| match &values[id.0 as usize] {
            Some(v) => v,
            None => unreachable!("{} reads a value that is not there", node.path()),
        });
        let inputs: Vec<&Value> = inputs.collect();
        let output = &graph.resource(node.output).ty;
        let (rows, positions) = extent(output, step);
        let (weights, states, activations) = (&self.weights, &mut self.states, self.activations);
        let mut cx = Cx { node, weights, states, activations, step, inputs, output, rows, positions };
        let value = run(&mut cx)?;
        match &value {
            Value::Tensor(t) if t.iter().any(|x| !x.is_finite()) => Err(self.not_finite(node)),
            Value::Scores(s) if s.iter().flatten().any(|x| !x.is_finite()) => Err(self.not_finite(node)),
            _ => Ok(value),
        }
    }

    /// Finds the weight to blame.
    fn not_finite(&self, node: &Node) -> OracleError {
        for id in &node.weights {
            for e in 0..self.weights.count(id.0 as usize) {
                let w = self.weights.expert(id.0 as usize, e);
                if let Some((r, column)) = w.find_nan() {
                    let value = row(w, r)[column];
                    return OracleError::BadWeight { name: w.name().into(), row: r, column, value };
                }
            }
        }
        OracleError::NonFinite { node: node.path() }
    }
}

/// Values that are there before the first node.
fn start(r: &crate::graph::Resource) -> Option<Value> {
    match (&r.producer, &r.ty) {
        (None, Type::Tokens) => Some(Value::Tokens),
        (None, Type::Stack { .. }) => Some(Value::Stack(vec![])),
        _ => None,
    }
}

/// Rows of a value and their positions.
fn extent(ty: &Type, step: &Step) -> (usize, Vec<u32>) {
    let positions: Vec<u32> = match ty {
        Type::Tensor { rows: RowDim::Emitted(m), .. } => {
            step.emitted(*m as usize).iter().map(|e| e.window * *m as u32).collect()
        }
        Type::Tensor { rows: RowDim::Outputs, .. } => step.outputs().iter().map(|r| step.rows()[*r].position).collect(),
        _ => step.rows().iter().map(|r| r.position).collect(),
    };
    (positions.len(), positions)
}

fn run(cx: &mut Cx) -> Result<Value, OracleError> {
    let node = cx.node;
    let tensor = match &node.op {
        Op::EmbedRow { d, repeat, .. } => linear::embed_row(cx, *d, *repeat),
        Op::Linear { inp, out, bias } => linear::linear(cx, *inp, *out, *bias),
        Op::RouterLogits { inp, experts } => linear::router_logits(cx, *inp, *experts),
        Op::LmHead { inp, out } => linear::lm_head(cx, *inp, *out),
        Op::LinearGrouped { groups, inp, out } => linear::grouped(cx, *groups, *inp, *out),
        Op::MlaAbsorbQ { heads, nope, v_dim, rank } => linear::absorb_q(cx, *heads, *nope, *v_dim, *rank),
        Op::MlaExpandV { heads, nope, v_dim, rank } => linear::expand_v(cx, *heads, *nope, *v_dim, *rank),
        Op::RmsNorm { n, eps, weighted } => norm::rms_norm(cx, *n, *eps, *weighted),
        Op::RmsNormGated { n, eps, gate } => norm::rms_norm_gated(cx, *n, *eps, *gate),
        Op::LayerNorm { n, eps } => norm::layer_norm(cx, *n, *eps),
        Op::L2Norm { n, eps, scale } => norm::l2_norm(cx, *n, *eps, *scale),
        Op::Add => elementwise::add(cx),
        Op::MulSigmoid => elementwise::mul_sigmoid(cx),
        Op::Sigmoid => elementwise::sigmoid_op(cx),
        Op::Glu(kind) => elementwise::glu(cx, *kind),
        Op::Slice { width, at, len } => elementwise::slice(cx, *width, *at, *len),
        Op::Concat { widths } => elementwise::concat(cx, widths),
        Op::View => return Ok(cx.inputs[0].clone()),
        Op::Rope { width, rope } => elementwise::rope(cx, *width, rope),
        Op::CacheAppend { width } | Op::RingAppend { width } => return state::append(cx, *width),
        Op::CausalConv1d { channels, taps, silu } => state::conv(cx, *channels, *taps, *silu),
        Op::KdaGate { heads, dim, kind } => state::kda_gate(cx, *heads, *dim, *kind),
        Op::DeltaRule { heads, k, v } => state::delta_rule(cx, *heads, *k, *v),
        Op::WindowPool { m, d, overlap } => state::window_pool(cx, *m, *d, *overlap),
        Op::Attn { .. } => attention::attn(cx, &node.op),
        Op::AttnLatent { heads, rank, rope, scale, select } => {
            attention::latent(cx, *heads, *rank, *rope, *scale, *select)
        }
        Op::IndexScore { heads, dim, scale, every } => {
            return Ok(attention::index_score(cx, *heads, *dim, *scale, *every));
        }
        Op::TopkSelect { k } => return Ok(attention::topk_select(cx, *k)),
        Op::RouterTopk(router) => return moe::router_topk(cx, router),
        Op::MoeExperts { inp, ff, k, kind, .. } => moe::experts(cx, *inp, *ff, *k, *kind),
        Op::AttnResMix { d, eps, .. } => residual::mix(cx, *d, *eps),
        Op::AttnResPush { .. } => return Ok(residual::push(cx)),
        Op::HcWeights { n, d, eps, norm_eps, iters } => residual::hc_weights(cx, *n, *d, [*eps, *norm_eps], *iters),
        Op::HcCollapse { n, d } => residual::collapse(cx, *n, *d),
        Op::HcExpand { n, d } => residual::expand(cx, *n, *d),
        Op::HcHead { n, d, eps, norm_eps } => residual::head(cx, *n, *d, [*eps, *norm_eps]),
    };
    Ok(Value::tensor(tensor))
}
