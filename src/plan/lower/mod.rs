//! Nodes to passes, with fusion.
//!
//! Nodes are taken in execution order, but a pass is made as late as possible: a node first becomes a
//! [`Pending`] computation, and its reader decides. A linear map that meets a residual sum takes the sum as its
//! epilogue; a norm that meets linear maps becomes their prologue; slices are views; rows that go to a cache are
//! written there by whoever made them. What no reader can absorb is forced into a pass of its own.
//!
//! The rules, in order: norm into the load of its readers; gate + up + activation; norm, rotation and append in one
//! pass; a query's rotation into its index scores; for one row, the choice of experts into their first pass; router weights,
//! shared expert and residual as epilogues of the experts' second pass; residual as epilogue of a linear map. Never across a
//! change of place.

mod attention;
mod coop;
mod cross;
mod dense;
mod ending;
mod grouped;
mod index;
mod moe;
mod pending;
mod route;
mod segments;
mod stripes;
mod vector;

use super::pass::{Bind, Buf, Count, Dispatch, Ending, Pass, Variant, Work};
use super::place::{Formats, Place, Placed, variant};
use super::tuning::Tuning;
use crate::formats::Format;
use crate::graph::{Graph, Node, Role, StateId, WeightId, capacity};
use crate::ops::op::Rope;
use crate::ops::{Kv, ResourceId, Type};
pub use ending::Results;
use pending::{Pending, Repr, View};
use petgraph::graph::NodeIndex;
pub use segments::SEGMENTS;
pub use stripes::Stripes;

/// The largest step that a plan serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub rows: u32,
    pub ctx: u32,
    /// What caches hold.
    pub kv: Kv,
    /// Rows of a slot in a step at most, of any plan that shares the states: rings have room for them.
    pub chunk: u32,
    /// Bring every value that a pass makes to the host, for checks.
    pub observe: bool,
    /// Shuffles the passes inside each level by this seed; 0 keeps them in order. Results must not change.
    pub shuffle: u64,
    /// The cooperative matrices of the device; None where it has none that kernels use.
    pub matrices: Option<Matrices>,
    /// How the device likes products shared out.
    pub tuning: Tuning,
}

impl Shape {
    /// For up to `rows` rows, all of them in a slot, on no device in particular.
    pub fn new(rows: u32, ctx: u32) -> Self {
        let (kv, tuning) = (Kv::F32, Tuning::default());
        Self { rows, ctx, kv, chunk: rows, observe: false, shuffle: 0, matrices: None, tuning }
    }
}

/// Matrices of f16 that a subgroup multiplies together, with sums in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrices {
    /// Invocations of the subgroup.
    pub subgroup: u32,
    /// Rows, columns and inner dimension, all the same: 8 or 16, for which tiles fit into 32 KiB of shared memory.
    pub side: u32,
}

/// A transient and its size for the largest step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transient {
    pub name: String,
    pub bytes: u64,
}

/// Passes in an order of execution, and what they share.
#[derive(Debug, Clone, PartialEq)]
pub struct Lowered {
    pub passes: Vec<Pass>,
    pub transients: Vec<Transient>,
    /// Sets of rotation frequencies: one table per step each.
    pub ropes: Vec<Vec<f32>>,
    /// Sizes of upload and readback buffers, by number.
    pub uploads: Vec<u64>,
    pub readbacks: Vec<u64>,
    /// The resource behind each upload and readback; a readback of tokens comes last, and has none.
    pub upload_of: Vec<ResourceId>,
    pub readback_of: Vec<ResourceId>,
    /// None where a CPU node makes the logits: then the host has them.
    pub results: Option<Results>,
}

/// Threads per workgroup.
const LOCAL: u32 = 64;
/// Threads of `vec.comp` for as many channels and more, which would otherwise be a long loop.
const WIDE: u32 = 256;
/// Threads of `route.comp`: one for most experts, so that few score several one after another.
const ROUTE: u32 = 256;
/// Threads of `linear_tile.comp`: one for each four outputs of four rows.
const TILE: u32 = 256;
/// Threads of `topk.comp`: a workgroup has a row to itself.
const TOPK: u32 = 512;

/// Threads of `latent_split.comp`, heads that they share, and parts of a row's positions at most.
const SPLIT: u32 = 512;
const SPLIT_HEADS: u32 = 8;
/// Threads of `attn_split.comp`.
const ATTN_SPLIT: u32 = 256;
const PARTS: u32 = 32;
/// Rows of a cache that a part has at least.
const PART_ROWS: u32 = 64;

/// Threads of `absorb.comp`, and the chunks of channels that they share.
const ABSORB: u32 = 512;
const ABSORBED: u32 = 32;

/// Makes passes of a placed graph.
pub fn lower(graph: &Graph, placed: &[Placed], formats: Formats, role: Role, shape: Shape) -> Lowered {
    let mut l = Lower {
        graph,
        placed,
        formats,
        role,
        shape,
        reads: readers(graph),
        reprs: vec![Repr::Nothing; graph.resources.len()],
        on_host: vec![None; graph.resources.len()],
        out: Lowered {
            passes: vec![],
            transients: vec![],
            ropes: vec![],
            uploads: vec![],
            readbacks: vec![],
            upload_of: vec![],
            readback_of: vec![],
            results: None,
        },
        ending: None,
        halves: vec![],
    };
    for (i, node) in graph.nodes() {
        match placed[i.index()].place {
            Place::Gpu => l.gpu(i, node),
            Place::Cpu => l.cpu(i, node),
        }
    }
    let logits = l.logits();
    if shape.observe {
        l.download_all();
    }
    l.out.results = logits.map(|logits| Results { logits, tokens: l.tokens() });
    l.out
}

/// How many nodes read each resource.
fn readers(graph: &Graph) -> Vec<u32> {
    let mut reads = vec![0; graph.resources.len()];
    graph.nodes().flat_map(|(_, n)| &n.inputs).for_each(|id| reads[id.0 as usize] += 1);
    reads
}

struct Lower<'a> {
    graph: &'a Graph,
    placed: &'a [Placed],
    formats: Formats<'a>,
    role: Role,
    shape: Shape,
    reads: Vec<u32>,
    /// What each resource is on the device.
    reprs: Vec<Repr>,
    /// The readback buffer that holds a resource's value for the host, once there is one.
    on_host: Vec<Option<u32>>,
    out: Lowered,
    /// What the passes being made are for.
    ending: Option<Ending>,
    /// Inputs that lie in halves, for matrices, their width and how many a row has, and where: codes and scales.
    halves: Vec<(View, [u32; 2], [Buf; 2])>,
}

impl<'a> Lower<'a> {
    fn gpu(&mut self, index: NodeIndex, node: &'a Node) {
        use crate::ops::Op;
        let repr = match &node.op {
            Op::EmbedRow { d, repeat, .. } => self.embed(index, *d, *repeat),
            Op::Linear { .. } | Op::RouterLogits { .. } | Op::LmHead { .. } => self.linear(index),
            Op::Add => self.add(index),
            Op::Glu(kind) => self.glu(index, *kind),
            Op::MulSigmoid => self.binary(index, 1, [0.0; 2]),
            Op::Sigmoid => self.binary(index, 6, [0.0; 2]),
            Op::Slice { .. } | Op::View => self.view_of(index),
            Op::Concat { .. } => Repr::Pending(Pending::Concat { node: index }),
            Op::RmsNorm { .. } | Op::LayerNorm { .. } | Op::L2Norm { .. } | Op::Rope { .. } => self.vector(index),
            Op::CacheAppend { .. } | Op::RingAppend { .. } => self.append(index),
            Op::MlaAbsorbQ { heads, nope, v_dim, rank } => self.absorb(index, [*heads, *nope, *v_dim, *rank]),
            Op::MlaExpandV { heads, nope, v_dim, rank } => self.expand(index, [*heads, *nope, *v_dim, *rank]),
            Op::AttnLatent { .. } => self.latent(index),
            Op::Attn { .. } => self.attn(index),
            Op::IndexScore { .. } => self.index_score(index),
            Op::TopkSelect { k } => self.topk(index, *k),
            Op::RouterTopk(_) => self.route(index),
            Op::MoeExperts { .. } => self.experts(index),
            other => unreachable!("{} was placed on the GPU without a kernel", other.name()),
        };
        self.reprs[node.output.0 as usize] = repr;
    }

    fn node(&self, index: NodeIndex) -> &'a Node {
        &self.graph.dag[index]
    }

    fn input(&self, index: NodeIndex, at: usize) -> ResourceId {
        self.node(index).inputs[at]
    }

    fn ty(&self, id: ResourceId) -> &'a Type {
        &self.graph.resource(id).ty
    }

    /// Values per row.
    fn width(&self, id: ResourceId) -> u32 {
        match self.ty(id) {
            Type::Tensor { dims, .. } => dims.iter().product::<u64>() as u32,
            Type::Route { k, .. } => 2 * *k as u32,
            Type::Selection { k, .. } => *k as u32 + 1,
            Type::HcMix { streams } => (2 * streams + streams * streams) as u32,
            Type::Scores { every } => self.shape.ctx.div_ceil(*every as u32),
            Type::Tokens | Type::Cache { .. } | Type::Stack { .. } => 0,
        }
    }

    /// Rows that a slot of a state has.
    fn capacity(&self, state: StateId) -> u32 {
        capacity(&self.graph.state(state).kind, self.shape.ctx, self.shape.chunk).0 as u32
    }

    /// A new transient of `width` values per row.
    fn transient(&mut self, name: String, width: u32) -> Buf {
        self.transient_of(name, 4 * u64::from(width) * u64::from(self.shape.rows))
    }

    fn transient_of(&mut self, name: String, bytes: u64) -> Buf {
        self.out.transients.push(Transient { name, bytes });
        Buf::Transient(self.out.transients.len() as u32 - 1)
    }

    /// Bytes for a binding that a kernel could write, but not with these constants: each pass has its own, since to
    /// a validation layer the binding is written.
    fn scratch(&mut self) -> Buf {
        self.transient_of(UNUSED.into(), 16)
    }

    /// A dense transient for a resource.
    fn dense(&mut self, id: ResourceId) -> View {
        let node = self.graph.resource(id).producer.map_or_else(String::new, |p| self.node(p).path());
        let width = self.width(id);
        View { buf: self.transient(node, width), stride: width, off: 0, head: self.head(id) }
    }

    /// Channels of the last dimension, of a tensor with heads.
    fn head(&self, id: ResourceId) -> u32 {
        match self.ty(id) {
            Type::Tensor { dims, .. } => dims.last().map_or(1, |d| *d as u32),
            _ => self.width(id),
        }
    }

    /// Heads (the product of all dimensions but the last) and channels of a tensor.
    fn heads(&self, id: ResourceId) -> (u32, u32) {
        let d = self.head(id);
        (self.width(id) / d.max(1), d)
    }

    fn format(&self, w: WeightId) -> Format {
        match (self.formats)(w) {
            Some(format) => format,
            None => unreachable!("placed on the GPU with experts in different formats"),
        }
    }

    fn variant(&self, w: WeightId) -> Variant {
        match variant(self.format(w)) {
            Some(v) => v,
            None => unreachable!("placed on the GPU with a format that has no kernel"),
        }
    }

    /// The kernels for what caches hold.
    fn caches(&self) -> Option<Variant> {
        match self.shape.kv {
            Kv::F32 => None,
            Kv::F16 => Some(Variant::F16),
        }
    }

    /// What kernels divide a column by its group's size with: 2^32 / group, rounded up. The other grouped formats
    /// have groups of one size only.
    fn group(&self, w: WeightId) -> u32 {
        match self.format(w) {
            Format::Int4Grouped { group } => u32::MAX / group + 1,
            _ => 0,
        }
    }

    /// The constant FINE of kernels that take inputs in digits, which is 0 where it is not given: whether factors may change within a
    /// block of columns.
    fn fine(&self, w: WeightId) -> Option<u32> {
        match self.format(w) {
            Format::Int4Grouped { group } if group % stripes::BLOCK != 0 => Some(1),
            _ => None,
        }
    }

    /// Whether kernels have a part for several rows, which costs registers in that for one.
    fn many(&self) -> u32 {
        u32::from(self.shape.rows > 1)
    }

    /// How workgroups lie over a matrix of `rows` by `cols`.
    fn stripes(&self, w: WeightId, rows: u32, cols: u32) -> Stripes {
        Stripes::of(&self.shape.tuning, self.format(w), rows, cols)
    }

    fn bytes(&self, w: WeightId) -> u64 {
        let shape = &self.graph.weight(w).need.shape;
        let cols = shape.last().copied().unwrap_or(1);
        self.format(w).bytes(shape.iter().product::<u64>() / cols.max(1), cols)
    }

    /// Number of the table for a rotation.
    fn rope_table(&mut self, rope: &Rope) -> Buf {
        let at = self.out.ropes.iter().position(|r| *r == rope.inv_freq).unwrap_or_else(|| {
            self.out.ropes.push(rope.inv_freq.clone());
            self.out.ropes.len() - 1
        });
        Buf::Rope(at as u32)
    }

    /// A pass on the way to a node's result.
    fn emit_part(&mut self, index: NodeIndex, what: &str, dispatch: Dispatch) {
        let node = self.node(index);
        let (name, layer) = (format!("{} {what}", node.path()), node.layer);
        self.out.passes.push(Pass { name, layer, nodes: vec![], work: Work::Dispatch(dispatch), ending: self.ending });
    }

    fn emit(&mut self, index: NodeIndex, fused: &[NodeIndex], dispatch: Dispatch) {
        let node = self.node(index);
        let mut nodes = fused.to_vec();
        nodes.push(index);
        self.out.passes.push(Pass {
            name: node.path(),
            layer: node.layer,
            nodes,
            work: Work::Dispatch(dispatch),
            ending: self.ending,
        });
    }
}

/// Groups that cover `n` with `per` each.
fn groups(n: u32, per: u32) -> Count {
    Count::Fixed(n.div_ceil(per))
}

/// Name of a transient that only stands in for a binding.
pub const UNUSED: &str = "unused binding";

/// A binding that is only read, and that this specialisation does not use.
fn unused() -> Bind {
    Bind::read(Buf::Dummy)
}
