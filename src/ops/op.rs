//! The operators with their attributes resolved to numbers: what a kernel needs besides its operands.

/// Nonlinearity of a gated unit, `g` gate and `u` up (models.md C.1, B.6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GluKind {
    /// silu(g) * u
    Silu,
    /// gelu(g) * u, the tanh form
    Gelu,
    /// beta*tanh(g/beta)*sigmoid(g) * linear_beta*tanh(u/linear_beta)
    Situ { beta: f32, linear_beta: f32 },
    /// silu(min(g, limit)) * clamp(u, -limit, limit)
    SiluClamped { limit: f32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Sigmoid,
    Silu,
}

/// Which channels form a rotated pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeIn {
    /// (2j, 2j+1)
    Interleaved,
    /// (j, j + n/2)
    Half,
}

/// Where the rotated pair is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeOut {
    /// Where it was read.
    Same,
    /// At j and j + n/2.
    Half,
}

/// A rotary embedding of channels `at .. at + dims`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub at: usize,
    pub dims: usize,
    /// One frequency per pair, rounded to f32. Angles are f32(position) * inv_freq rounded to f32.
    pub inv_freq: Vec<f32>,
    pub layout_in: RopeIn,
    pub layout_out: RopeOut,
    /// Rotate by the negative angle.
    pub inverse: bool,
}

/// How a router turns logits into scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Score {
    Sigmoid,
    Softmax,
    SqrtSoftplus,
}

/// How the score of a group of experts is formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupScore {
    Top2Sum,
    Max,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Router {
    pub k: usize,
    pub experts: usize,
    pub score: Score,
    pub groups: usize,
    pub top_groups: usize,
    pub group_score: GroupScore,
    pub renorm: bool,
    pub renorm_eps: f32,
    pub scale: f32,
    /// A bias is added to the scores for the choice only.
    pub bias: bool,
    /// Experts are read from a table by token id instead of being chosen.
    pub table: bool,
}

/// How the decay of a delta rule is formed (models.md C.8, B.10).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KdaGate {
    /// bound * sigmoid(exp(A) * z)
    Bounded { bound: f32 },
    /// -exp(A) * softplus(z)
    Softplus,
}

/// One piece of an attention's keys: a cache, perhaps with its own value cache and a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Position of the key cache among the node's inputs.
    pub k: usize,
    /// The value cache; None if values are the keys.
    pub v: Option<usize>,
    pub select: Option<usize>,
    pub every: usize,
    pub window: Option<usize>,
}

/// An operator of the graph. Operands come in the order of the op's documentation.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    EmbedRow { d: usize, repeat: usize, vocab: usize },
    Linear { inp: usize, out: usize, bias: bool },
    LmHead { inp: usize, out: usize },
    LinearGrouped { groups: usize, inp: usize, out: usize },
    RmsNorm { n: usize, eps: f32, weighted: bool },
    RmsNormGated { n: usize, eps: f32, gate: Gate },
    LayerNorm { n: usize, eps: f32 },
    L2Norm { n: usize, eps: f32, scale: f32 },
    Add,
    MulSigmoid,
    Sigmoid,
    Glu(GluKind),
    Slice { width: usize, at: usize, len: usize },
    Concat { widths: Vec<usize> },
    View,
    Rope { width: usize, rope: Rope },
    CacheAppend { width: usize },
    RingAppend { width: usize },
    CausalConv1d { channels: usize, taps: usize, silu: bool },
    KdaGate { heads: usize, dim: usize, kind: KdaGate },
    DeltaRule { heads: usize, k: usize, v: usize },
    WindowPool { m: usize, d: usize, overlap: bool },
    Attn { heads: usize, kv_heads: usize, dim: usize, v_dim: usize, scale: f32, sink: bool, segments: Vec<Segment> },
    AttnLatent { heads: usize, rank: usize, rope: usize, scale: f32, select: bool },
    MlaAbsorbQ { heads: usize, nope: usize, v_dim: usize, rank: usize },
    MlaExpandV { heads: usize, nope: usize, v_dim: usize, rank: usize },
    IndexScore { heads: usize, dim: usize, scale: f32, every: usize },
    TopkSelect { k: usize },
    RouterLogits { inp: usize, experts: usize },
    RouterTopk(Router),
    MoeExperts { inp: usize, ff: usize, out: usize, experts: usize, k: usize, kind: GluKind },
    AttnResMix { d: usize, len: usize, eps: f32 },
    AttnResPush { d: usize },
    HcWeights { n: usize, d: usize, eps: f32, norm_eps: f32, iters: usize },
    HcCollapse { n: usize, d: usize },
    HcExpand { n: usize, d: usize },
    HcHead { n: usize, d: usize, eps: f32, norm_eps: f32 },
}

impl Op {
    /// Name as written in graph files.
    pub fn name(&self) -> &'static str {
        match self {
            Op::EmbedRow { .. } => "EmbedRow",
            Op::Linear { .. } => "Linear",
            Op::LmHead { .. } => "LmHead",
            Op::LinearGrouped { .. } => "LinearGrouped",
            Op::RmsNorm { .. } => "RmsNorm",
            Op::RmsNormGated { .. } => "RmsNormGated",
            Op::LayerNorm { .. } => "LayerNorm",
            Op::L2Norm { .. } => "L2Norm",
            Op::Add => "Add",
            Op::MulSigmoid => "MulSigmoid",
            Op::Sigmoid => "Sigmoid",
            Op::Glu(_) => "Glu",
            Op::Slice { .. } => "Slice",
            Op::Concat { .. } => "Concat",
            Op::View => "View",
            Op::Rope { .. } => "Rope",
            Op::CacheAppend { .. } => "CacheAppend",
            Op::RingAppend { .. } => "RingAppend",
            Op::CausalConv1d { .. } => "CausalConv1d",
            Op::KdaGate { .. } => "KdaGate",
            Op::DeltaRule { .. } => "DeltaRule",
            Op::WindowPool { .. } => "WindowPool",
            Op::Attn { .. } => "Attn",
            Op::AttnLatent { .. } => "AttnLatent",
            Op::MlaAbsorbQ { .. } => "MlaAbsorbQ",
            Op::MlaExpandV { .. } => "MlaExpandV",
            Op::IndexScore { .. } => "IndexScore",
            Op::TopkSelect { .. } => "TopkSelect",
            Op::RouterLogits { .. } => "RouterLogits",
            Op::RouterTopk(_) => "RouterTopk",
            Op::MoeExperts { .. } => "MoeExperts",
            Op::AttnResMix { .. } => "AttnResMix",
            Op::AttnResPush { .. } => "AttnResPush",
            Op::HcWeights { .. } => "HcWeights",
            Op::HcCollapse { .. } => "HcCollapse",
            Op::HcExpand { .. } => "HcExpand",
            Op::HcHead { .. } => "HcHead",
        }
    }
}
