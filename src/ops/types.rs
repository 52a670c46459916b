//! What flows along the edges of a graph, and what persists between steps.

use crate::spec::Span;
use std::fmt;

/// How many rows a tensor has: a parameter of the step, never of the topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowDim {
    /// One per row of the step.
    Tokens,
    /// One per window of `m` positions that closes in this step: floor((pos+R)/m) - floor(pos/m) a slot.
    Emitted(u64),
    /// One per row of the step that wants logits.
    Outputs,
}

impl fmt::Display for RowDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowDim::Tokens => f.write_str("Tokens"),
            RowDim::Emitted(m) => write!(f, "Emitted/{m}"),
            RowDim::Outputs => f.write_str("Outputs"),
        }
    }
}

/// Type of a resource. Numbers are f32, ids and counts u32.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// The row records of the step.
    Tokens,
    /// f32 `[rows, dims...]`.
    Tensor { rows: RowDim, dims: Vec<u64> },
    /// Index scores f32 `[Tokens, Rows / every]`; a row's entries end at what it may see.
    Scores { every: u64 },
    /// Chosen cache rows per row, ascending: u32 `[Tokens, k]` and a count.
    Selection { k: u64, every: u64 },
    /// Chosen experts per row by descending score: ids u32 and weights f32, both `[Tokens, k]`.
    Route { k: u64, experts: u64 },
    /// Hyper-connection coefficients f32 `[Tokens, 2n + n*n]`: pre, post, comb.
    HcMix { streams: u64 },
    /// A state that has been written in this step, as `[Rows / every, width]` of each row's slot.
    Cache { width: u64, every: u64, window: Option<u64> },
    /// A growing list of tensors, f32 `[len][Tokens, width]` in one buffer of `max`.
    Stack { width: u64, len: u64, max: u64 },
}

impl Type {
    pub fn tensor(rows: RowDim, dims: &[u64]) -> Type {
        Type::Tensor { rows, dims: dims.to_vec() }
    }

    /// Bytes per row of the step that the value occupies as a transient; caches and scores count elsewhere.
    pub fn transient_bytes(&self) -> u64 {
        match self {
            Type::Tensor { dims, .. } => 4 * dims.iter().product::<u64>(),
            Type::Selection { k, .. } => 4 * (k + 1),
            Type::Route { k, .. } => 8 * k,
            Type::HcMix { streams } => 4 * (2 * streams + streams * streams),
            Type::Tokens | Type::Scores { .. } | Type::Cache { .. } | Type::Stack { .. } => 0,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tokens => f.write_str("the tokens of the step"),
            Type::Tensor { rows, dims } => {
                write!(f, "[{rows}")?;
                dims.iter().try_for_each(|d| write!(f, ", {d}"))?;
                f.write_str("]")
            }
            Type::Scores { every } => write!(f, "scores [Tokens, {}]", cache_rows(*every)),
            Type::Selection { k, every } => write!(f, "selection [Tokens, {k}] of {}", cache_rows(*every)),
            Type::Route { k, experts } => write!(f, "route [Tokens, {k}] of {experts} experts"),
            Type::HcMix { streams } => write!(f, "hyper-connection weights of {streams} streams"),
            Type::Cache { width, every, window } => {
                write!(f, "cache [{}, {width}]", cache_rows(*every))?;
                window.map_or(Ok(()), |w| write!(f, " of the last {w}"))
            }
            Type::Stack { width, len, max } => write!(f, "stack of {len} (at most {max}) [Tokens, {width}]"),
        }
    }
}

fn cache_rows(every: u64) -> String {
    if every == 1 { "Rows".into() } else { format!("Rows/{every}") }
}

/// What caches hold: a choice of a session, not of a graph. A value is rounded to it once, when it is written, to the nearest and
/// of two to the even one; all sums are of f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kv {
    #[default]
    F32,
    F16,
}

impl Kv {
    pub const ALL: [Kv; 2] = [Kv::F32, Kv::F16];

    pub fn name(self) -> &'static str {
        match self {
            Kv::F32 => "f32",
            Kv::F16 => "f16",
        }
    }

    /// Bytes of a value.
    pub fn bytes(self) -> u64 {
        match self {
            Kv::F32 => 4,
            Kv::F16 => 2,
        }
    }
}

/// Shape of a persistent state of one layer and slot. Caches hold what the session chooses, the others f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// One row of `width` per `every` positions, kept for the whole context.
    Rows { width: u64, every: u64 },
    /// Rows of the last `window` positions.
    Ring { width: u64, window: u64 },
    /// What an op needs of the last `len` positions (convolution taps, an open pooling window).
    Window { len: u64, width: u64 },
    /// A recurrent matrix per head.
    Matrix { heads: u64, k: u64, v: u64 },
}

impl StateKind {
    /// Whether it is a cache: rows that appends write once, and that attention and index scores read. What a recurrence carries on
    /// is none: its rounding errors would add up.
    pub fn is_cache(&self) -> bool {
        match self {
            StateKind::Rows { .. } | StateKind::Ring { .. } => true,
            StateKind::Window { .. } | StateKind::Matrix { .. } => false,
        }
    }

    /// Bytes of one of its values.
    pub fn value_bytes(&self, kv: Kv) -> u64 {
        if self.is_cache() { kv.bytes() } else { Kv::F32.bytes() }
    }

    /// Bytes per `every` positions, for states that grow.
    pub fn bytes_per_token(&self, kv: Kv) -> f64 {
        match self {
            StateKind::Rows { width, every } => (self.value_bytes(kv) * width) as f64 / *every as f64,
            _ => 0.0,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            StateKind::Rows { .. } => "Rows",
            StateKind::Ring { .. } => "Ring",
            StateKind::Window { .. } => "Window",
            StateKind::Matrix { .. } => "Matrix",
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateKind::Rows { width, every: 1 } => write!(f, "Rows(width {width})"),
            StateKind::Rows { width, every } => write!(f, "Rows(width {width}, every {every})"),
            StateKind::Ring { width, window } => write!(f, "Ring(width {width}, window {window})"),
            StateKind::Window { len, width } => write!(f, "Window(len {len}, width {width})"),
            StateKind::Matrix { heads, k, v } => write!(f, "Matrix(heads {heads}, k {k}, v {v})"),
        }
    }
}

/// Index of a resource in `graph::Graph::resources`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(pub u32);

/// What a weight is for: decides what a format option means for it and how many of its bytes a token reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightRole {
    /// `[vocab, d]`, of which a token reads one row.
    Embedding,
    /// A dense matrix, read whole.
    Matrix,
    /// The router's matrix: scores decide, so it is kept in full precision.
    Router,
    /// One of `experts` matrices, of which a token reads `k`.
    Expert,
    /// The output head.
    Head,
    /// Norms, biases, gates: kept in f32.
    Vector,
    /// Integer table, of which a token reads one row.
    Table,
}

/// A weight that an operator asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightNeed {
    /// Alternatives in order of preference, without the implied `.weight`; with `{e}` if there are experts.
    pub names: Vec<String>,
    pub shape: Vec<u64>,
    /// A longer vector is accepted, its first entries are used.
    pub at_least: bool,
    pub experts: Option<u64>,
    pub role: WeightRole,
    /// The name in the graph file.
    pub span: Span,
}

/// A state that an operator reads and writes.
#[derive(Debug, Clone, PartialEq)]
pub struct StateNeed {
    /// Index in the file's `state` section.
    pub decl: usize,
    pub kind: StateKind,
    pub span: Span,
}
