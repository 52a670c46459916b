//! What a resource is while passes are made.

use super::super::pass::{Bind, Buf, Push};
use super::Lower;
use crate::graph::{StateId, WeightId};
use crate::ops::op::{GluKind, Rope};
use crate::ops::{Op, ResourceId};
use petgraph::graph::NodeIndex;

/// Rows of a transient: row r begins at `r * stride + off` values, heads lie `head` values apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    pub buf: Buf,
    pub stride: u32,
    pub off: u32,
    pub head: u32,
}

impl View {
    /// Whether every row begins at a multiple of four values.
    pub fn in_fours(&self) -> bool {
        self.stride.is_multiple_of(4) && self.off.is_multiple_of(4)
    }
}

/// What is done to a run of channels per row and head, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector {
    pub src: View,
    pub heads: u32,
    pub d: u32,
    pub norm: Option<Norm>,
    pub rope: Option<Rope>,
    pub nodes: Vec<NodeIndex>,
}

/// A norm of channels `at .. at + n`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norm {
    /// As the kernels number them: 1 rms, 2 weighted rms, 3 layer norm, 4 l2.
    pub kind: u32,
    pub at: u32,
    pub n: u32,
    pub w: Option<WeightId>,
    pub bias: Option<WeightId>,
    pub eps: f32,
    pub scale: f32,
}

/// How much of a cache rows see.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sight {
    /// The selected rows and how many there can be, or an unused binding and 0.
    pub sel: Bind,
    pub sel_k: u32,
    /// The last so many rows; 0: all.
    pub window: u32,
    /// Positions that a row of the cache stands for.
    pub every: u32,
}

impl Sight {
    /// Specialisation constants of kernels that have no second segment.
    pub const NONE: [u32; 3] = [0; 3];

    /// Specialisation constants SELECT, WINDOW, EVERY.
    pub fn spec(&self) -> [u32; 3] {
        [u32::from(self.sel_k > 0), self.window, self.every]
    }
}

/// What a split attention leaves of one segment: of each part and head sums of values, and (largest score, sum of weights).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    pub sums: Buf,
    pub weights: Buf,
    /// Parts of a row that they have room for.
    pub parts: u32,
    pub sight: Sight,
}

/// A node's attention in parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parts {
    pub node: NodeIndex,
    pub first: Split,
    pub second: Option<Split>,
}

/// What the experts' first pass leaves: `[R][k][ff]`, and in prompts how the second groups it by expert.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hidden {
    pub buf: Buf,
    pub tiles: Option<Tiles>,
}

/// What `group.comp` makes of a step's routes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tiles {
    /// Numbers of the items, row * k + rank, sorted by expert.
    pub items: Buf,
    /// How many tiles there are, then of each its expert and its items.
    pub list: Buf,
}

/// A computation whose pass is not made yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Pending {
    /// Linear, RouterLogits or LmHead.
    Linear {
        node: NodeIndex,
    },
    /// A choice of experts.
    Route {
        node: NodeIndex,
    },
    /// The experts' first pass is made; this is the second, with what is to be added.
    Experts {
        node: NodeIndex,
        hidden: Hidden,
        adds: Vec<ResourceId>,
        nodes: Vec<NodeIndex>,
    },
    /// Attention over stretches of positions is made; what is left is to merge its parts.
    Parts(Parts),
    Vector(Vector),
    Concat {
        node: NodeIndex,
    },
}

/// What a resource is on the device.
#[derive(Debug, Clone, PartialEq)]
pub enum Repr {
    /// Not on the device (yet).
    Nothing,
    View(View),
    Pending(Pending),
    State(StateId),
}

/// Input of a kernel that can norm what it loads.
pub struct Load {
    pub view: View,
    /// As the kernels number it: 0 none, 1 rms, 2 weighted rms.
    pub kind: u32,
    pub norm: Push,
    pub eps: f32,
    pub nodes: Vec<NodeIndex>,
}

impl Lower<'_> {
    /// The resource as a transient; makes its pass, or brings it from the host, if need be.
    pub fn force(&mut self, id: ResourceId) -> View {
        let repr = std::mem::replace(&mut self.reprs[id.0 as usize], Repr::Nothing);
        let view = match repr {
            Repr::View(v) => v,
            Repr::Pending(p) => self.make(id, p),
            Repr::State(_) => unreachable!("a state is not read as a tensor"),
            Repr::Nothing => self.upload(id),
        };
        self.reprs[id.0 as usize] = Repr::View(view);
        view
    }

    fn make(&mut self, id: ResourceId, pending: Pending) -> View {
        match pending {
            Pending::Linear { node } => self.emit_linear(node, None),
            Pending::Route { node } => self.emit_route(node),
            Pending::Experts { node, hidden, adds, nodes } => self.emit_down(node, id, hidden, &adds, &nodes),
            Pending::Parts(parts) => self.emit_merge(parts),
            Pending::Vector(v) => self.emit_vector(id, v, None),
            Pending::Concat { node } => self.emit_concat(node),
        }
    }

    /// The state behind a cache resource.
    pub fn state(&self, id: ResourceId) -> Buf {
        match &self.reprs[id.0 as usize] {
            Repr::State(s) => Buf::State(*s),
            other => unreachable!("a cache that is {other:?}"),
        }
    }

    /// Rows that a slot has in the state behind a cache resource.
    pub fn rows_of(&self, id: ResourceId) -> u32 {
        match self.state(id) {
            Buf::State(s) => self.capacity(s),
            other => unreachable!("a cache in {other:?}"),
        }
    }

    /// Whether nothing else reads the resource, so that its reader may absorb it.
    pub fn sole(&self, id: ResourceId) -> bool {
        self.reads[id.0 as usize] == 1 && id != self.graph.logits
    }

    /// Takes a pending computation that only this reader wants.
    pub fn take_if(&mut self, id: ResourceId, want: impl Fn(&Pending) -> bool) -> Option<Pending> {
        let sole = self.sole(id);
        match std::mem::replace(&mut self.reprs[id.0 as usize], Repr::Nothing) {
            Repr::Pending(p) if sole && want(&p) => Some(p),
            other => {
                self.reprs[id.0 as usize] = other;
                None
            }
        }
    }

    /// The operand of a kernel with a norm prologue: a pending norm over whole rows is not computed but handed on.
    /// Every reader loads and norms the row itself, which costs less than a dependent stage.
    pub fn load(&mut self, id: ResourceId) -> Load {
        if let Repr::Pending(Pending::Vector(Vector { src, heads: 1, d, norm: Some(n), rope: None, nodes })) =
            &self.reprs[id.0 as usize]
            && (n.kind == 1 || n.kind == 2)
            && (n.at, n.n) == (0, *d)
            && src.in_fours()
            && self.role == crate::graph::Role::Decode
        {
            let norm = n.w.map_or(Push::NoAddress, Push::Vector);
            return Load { view: *src, kind: n.kind, norm, eps: n.eps, nodes: nodes.clone() };
        }
        self.flat(id);
        Load { view: self.fours(id), kind: 0, norm: Push::NoAddress, eps: 0.0, nodes: vec![] }
    }

    /// For kernels that load four values at a time: rows, and heads if there are several, that begin at multiples of four.
    pub fn fours(&mut self, id: ResourceId) -> View {
        let v = self.force(id);
        let heads_fit = self.heads(id).0 == 1 || v.head.is_multiple_of(4);
        if v.in_fours() && heads_fit { v } else { self.dense_rows(id) }
    }

    pub fn op(&self, index: NodeIndex) -> &Op {
        &self.graph.dag[index].op
    }
}

/// Kind and numbers of a gated unit, as the kernels take them.
pub fn glu_numbers(kind: GluKind) -> (u32, [f32; 2]) {
    match kind {
        GluKind::Silu => (0, [0.0; 2]),
        GluKind::Gelu => (1, [0.0; 2]),
        GluKind::Situ { beta, linear_beta } => (2, [beta, linear_beta]),
        GluKind::SiluClamped { limit } => (3, [limit, 0.0]),
    }
}
