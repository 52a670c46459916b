//! Counts of a graph.

use super::lower::Shape;
use super::memory::{ALIGN, Life, place};
use crate::formats::Format;
use crate::graph::{Graph, Node, capacity};
use crate::ops::{Op, StateKind, WeightRole};
use petgraph::graph::NodeIndex;
use serde::Serialize;
use std::collections::BTreeMap;

/// What `coli plan` prints; `schema` counts incompatible changes.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub schema: u32,
    pub graph: String,
    pub program: String,
    pub parameters: u64,
    /// Parameters that one token meets: k of the experts, one row of the embedding.
    pub active_parameters: u64,
    pub layers: u32,
    pub nodes: usize,
    /// Longest chain of dependent nodes in the whole program.
    pub levels: u32,
    pub kinds: Vec<Kind>,
    pub states: Vec<StateLine>,
    /// What caches hold; other states are f32.
    pub kv: &'static str,
    /// Bytes that a sequence grows by per token, and bytes that it holds from the start: rings have room for a chunk.
    pub state_bytes_per_token: f64,
    pub state_bytes_fixed: u64,
    pub bytes_per_token: Vec<Reading>,
}

/// Layers that share one plan.
#[derive(Debug, Clone, Serialize)]
pub struct Kind {
    pub layers: Vec<u32>,
    pub blocks: Vec<String>,
    pub nodes: usize,
    pub levels: u32,
    pub parameters: u64,
    /// Bytes of transients per row of the step: a buffer each, and shared by lifetime.
    pub transient_separate: u64,
    pub transient_aliased: u64,
}

/// A declared state over the layers that have it.
#[derive(Debug, Clone, Serialize)]
pub struct StateLine {
    pub name: String,
    pub kind: String,
    pub layers: usize,
    pub bytes_per_token: f64,
    pub bytes_fixed: u64,
}

/// Bytes of weights that one decoded token reads, by part.
#[derive(Debug, Clone, Serialize)]
pub struct Reading {
    pub format: String,
    pub experts: u64,
    pub dense: u64,
    pub head: u64,
    /// Routers, norms, biases: f32 whatever the format.
    pub fixed: u64,
    pub total: u64,
}

/// Formats that the table of bytes per token compares.
const FORMATS: [Format; 7] = [
    Format::F32,
    Format::Bf16,
    Format::Fp8Block { scale: crate::formats::BlockScale::F32 },
    Format::Int8Row,
    Format::Int4Grouped { group: 64 },
    Format::Mxfp4,
    Format::Int4Row,
];

/// How much of a weight a token reads.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Whole,
    OneRow,
    Experts(u64),
}

/// Bytes of a weight's matrix of so many rows and columns; of its experts' mean, where it is one per expert.
pub type Bytes<'a> = &'a dyn Fn(usize, u64, u64) -> u64;

/// Counts a graph. `stored` gives the size of each weight where a model is at hand; `shape` is that of the steps, which
/// decides about states.
pub fn summarize(graph: &Graph, stored: Option<Bytes>, shape: &Shape) -> Summary {
    let parts = parts(graph);
    let levels = graph.levels();
    let active = |(i, w): (usize, &crate::graph::Weight)| match parts[i] {
        Part::Whole => w.parameters(),
        Part::OneRow => w.need.shape.last().copied().unwrap_or(0),
        Part::Experts(k) => w.need.shape.iter().product::<u64>() * k,
    };
    let mut readings: Vec<Reading> = vec![];
    if let Some(stored) = stored {
        readings.push(reading(graph, &parts, "as stored".into(), stored));
    }
    let fixed =
        |i: usize| matches!(graph.weights[i].need.role, WeightRole::Router | WeightRole::Vector | WeightRole::Table);
    readings.extend(FORMATS.map(|f| {
        let bytes = |i, rows, cols| if fixed(i) { Format::F32 } else { f }.bytes(rows, cols);
        reading(graph, &parts, f.name().into_owned(), &bytes)
    }));
    let states = states(graph, shape);
    Summary {
        schema: 1,
        graph: graph.source.name.clone(),
        program: graph.program.clone(),
        parameters: graph.weights.iter().map(|w| w.parameters()).sum(),
        active_parameters: graph.weights.iter().enumerate().map(active).sum(),
        layers: graph.layers,
        nodes: graph.dag.node_count(),
        levels: levels.iter().max().map_or(0, |l| l + 1),
        kinds: graph.kinds.iter().map(|k| kind(graph, k)).collect(),
        state_bytes_per_token: states.iter().map(|s| s.bytes_per_token).sum(),
        state_bytes_fixed: states.iter().map(|s| s.bytes_fixed).sum(),
        states,
        kv: shape.kv.name(),
        bytes_per_token: readings,
    }
}

/// By the nodes that read them: a matrix that is both embedding and head is read whole.
fn parts(graph: &Graph) -> Vec<Part> {
    let mut parts: Vec<Option<Part>> = vec![None; graph.weights.len()];
    for (_, node) in graph.nodes() {
        for (at, id) in node.weights.iter().enumerate() {
            let part = match &node.op {
                Op::EmbedRow { .. } => Part::OneRow,
                Op::RouterTopk(r) if r.table && at == 0 => Part::OneRow,
                Op::MoeExperts { k, .. } => Part::Experts(*k as u64),
                _ => Part::Whole,
            };
            let slot = &mut parts[id.0 as usize];
            *slot = Some(if *slot == Some(Part::Whole) { Part::Whole } else { part });
        }
    }
    parts.into_iter().map(|p| p.unwrap_or(Part::Whole)).collect()
}

fn reading(graph: &Graph, parts: &[Part], name: String, bytes: Bytes) -> Reading {
    let mut r = Reading { format: name, experts: 0, dense: 0, head: 0, fixed: 0, total: 0 };
    for (i, w) in graph.weights.iter().enumerate() {
        let cols = w.need.shape.last().copied().unwrap_or(1);
        let rows = w.need.shape.iter().product::<u64>() / cols.max(1);
        let bytes = match parts[i] {
            Part::Whole => bytes(i, rows, cols),
            Part::OneRow => bytes(i, 1, cols),
            Part::Experts(k) => k * bytes(i, rows, cols),
        };
        *match w.need.role {
            WeightRole::Expert => &mut r.experts,
            WeightRole::Head => &mut r.head,
            WeightRole::Matrix => &mut r.dense,
            WeightRole::Embedding if parts[i] == Part::Whole => &mut r.head,
            WeightRole::Embedding => &mut r.dense,
            _ => &mut r.fixed,
        } += bytes;
    }
    r.total = r.experts + r.dense + r.head + r.fixed;
    r
}

fn states(graph: &Graph, shape: &Shape) -> Vec<StateLine> {
    let mut by_kind: BTreeMap<(String, String), (usize, StateKind)> = BTreeMap::new();
    for s in &graph.states {
        by_kind.entry((s.name.clone(), s.kind.to_string())).or_insert((0, s.kind)).0 += 1;
    }
    let line = |((name, text), (layers, kind)): ((String, String), (usize, StateKind))| StateLine {
        name,
        kind: text,
        layers,
        bytes_per_token: kind.bytes_per_token(shape.kv) * layers as f64,
        bytes_fixed: fixed_bytes(&kind, shape) * layers as u64,
    };
    by_kind.into_iter().map(line).collect()
}

/// Bytes that a state holds from the start, as they are allocated.
fn fixed_bytes(kind: &StateKind, shape: &Shape) -> u64 {
    if matches!(kind, StateKind::Rows { .. }) {
        return 0;
    }
    let (rows, width) = capacity(kind, shape.ctx, shape.chunk);
    kind.value_bytes(shape.kv) * (rows * width) as u64
}

/// Levels count the longest chain inside the layer; what crosses its border lives to its end.
fn kind(graph: &Graph, k: &crate::graph::LayerKind) -> Kind {
    let first = k.layers[0];
    let inside: Vec<(NodeIndex, &Node)> = graph.nodes().filter(|(_, n)| n.layer == Some(first)).collect();
    let mut level: BTreeMap<NodeIndex, u32> = BTreeMap::new();
    for (i, _) in &inside {
        let before = graph.dag.neighbors_directed(*i, petgraph::Incoming).filter_map(|p| level.get(&p));
        let l = before.max().map_or(0, |l| l + 1);
        level.insert(*i, l);
    }
    let levels = level.values().max().map_or(0, |l| l + 1);
    let life = |(i, n): &(NodeIndex, &Node)| {
        let readers: Vec<NodeIndex> = graph.dag.neighbors(*i).collect();
        let last = readers.iter().map(|r| level.get(r).copied().unwrap_or(levels)).max().unwrap_or(levels);
        Life { first: level[i], last, bytes: graph.resource(n.output).ty.transient_bytes() }
    };
    let lives: Vec<Life> = inside.iter().map(life).filter(|l| l.bytes > 0).collect();
    let mut weights: Vec<_> = inside.iter().flat_map(|(_, n)| &n.weights).collect();
    weights.sort_unstable();
    weights.dedup();
    Kind {
        layers: k.layers.clone(),
        blocks: k.blocks.clone(),
        nodes: inside.len(),
        levels,
        parameters: weights.iter().map(|w| graph.weight(**w).parameters()).sum(),
        transient_separate: lives.iter().map(|l| l.bytes.next_multiple_of(ALIGN)).sum(),
        transient_aliased: place(&lives).bytes,
    }
}
