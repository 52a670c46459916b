//! Softmax attention over segments of cache, and what is left of split attention.

use super::super::pass::{Bind, Buf, Count, Dispatch, Push};
use super::attention::{QUERIES, Tile};
use super::pending::{Parts, Pending, Repr, Sight, Split, View};
use super::{ATTN_SPLIT, LOCAL, Lower, PART_ROWS, PARTS, groups, unused};
use crate::graph::{Node, Role};
use crate::ops::op::Segment;
use crate::ops::{Op, ResourceId, Type};
use petgraph::graph::NodeIndex;

/// Segments of an attention at most: kernels have bindings for so many.
pub const SEGMENTS: usize = 2;

/// The caches of a segment, and what rows see of them.
struct Seen {
    keys: Buf,
    values: Buf,
    /// Rows that a slot has.
    cap: u32,
    sight: Sight,
}

/// Sizes of an attention.
#[derive(Clone, Copy)]
struct Sizes {
    heads: u32,
    kv_heads: u32,
    dim: u32,
    v_dim: u32,
    scale: f32,
}

impl Lower<'_> {
    /// What rows see of a cache, or of a selection of its rows.
    pub fn sight(&mut self, cache: ResourceId, select: Option<ResourceId>) -> Sight {
        let Type::Cache { every, window, .. } = *self.ty(cache) else { unreachable!("a cache") };
        let sel = select.map(|s| self.force(s));
        Sight {
            sel: sel.map_or(unused(), |s| Bind::read(s.buf)),
            sel_k: sel.map_or(0, |s| s.stride - 1),
            window: window.unwrap_or(0) as u32,
            every: every as u32,
        }
    }

    /// Rows of a cache that a row of the step looks at, at most.
    pub fn most(&self, sight: &Sight) -> u32 {
        let bounds = [sight.sel_k, sight.window].into_iter().filter(|n| *n > 0);
        bounds.fold(self.shape.ctx / sight.every, u32::min)
    }

    /// Where the parts of a segment go, of `width` values a head.
    pub fn split(
        &mut self,
        index: NodeIndex,
        which: &str,
        sight: Sight,
        parts: u32,
        [heads, width]: [u32; 2],
    ) -> Split {
        let path = self.node(index).path();
        let sums = self.transient(format!("{path}{which} sums"), parts * heads * width);
        let weights = self.transient(format!("{path}{which} weights"), parts * heads * 2);
        Split { sums, weights, parts, sight }
    }

    /// The pass that merges the parts of an attention.
    pub fn emit_merge(&mut self, parts: Parts) -> View {
        let node = self.node(parts.node);
        let (heads, width) = match &node.op {
            Op::AttnLatent { heads, rank, .. } => (*heads, *rank),
            Op::Attn { heads, v_dim, .. } => (*heads, *v_dim),
            other => unreachable!("{} has no parts", other.name()),
        };
        let (sink, sinks) = sink(node);
        let y = self.dense(node.output);
        let (first, second) = (parts.first.sight, parts.second.map(|s| s.sight));
        let bind = |buf: fn(&Split) -> Buf| parts.second.as_ref().map_or(unused(), |s| Bind::read(buf(s)));
        let sights = [first.spec(), second.map_or(Sight::NONE, |s| s.spec())].concat();
        let dispatch = Dispatch {
            kernel: "latent_merge",
            variant: None,
            spec: [&[LOCAL], &sights[..], &[sink]].concat(),
            push: vec![
                sinks,
                Push::U32(heads as u32),
                Push::U32(width as u32),
                Push::U32(first.sel_k),
                Push::U32(second.map_or(0, |s| s.sel_k)),
                Push::U32(parts.first.parts),
                Push::U32(parts.second.map_or(0, |s| s.parts)),
            ],
            set0: vec![
                Bind::read(parts.first.sums),
                Bind::read(parts.first.weights),
                Bind::write(y.buf),
                first.sel,
                bind(|s| s.sums),
                bind(|s| s.weights),
                second.map_or(unused(), |s| s.sel),
            ],
            set1: vec![],
            groups: (groups((heads * width) as u32, 4 * LOCAL), Count::Rows(1)),
            bytes: 0,
        };
        self.emit(parts.node, &[], dispatch);
        y
    }

    pub fn attn(&mut self, index: NodeIndex) -> Repr {
        let node = self.node(index);
        let Op::Attn { heads, kv_heads, dim, v_dim, scale, segments, .. } = &node.op else { unreachable!("Attn") };
        let [heads, kv_heads, dim, v_dim] = [heads, kv_heads, dim, v_dim].map(|n| *n as u32);
        let sizes = Sizes { heads, kv_heads, dim, v_dim, scale: *scale };
        let q = self.dense_rows(node.inputs[0]).buf;
        let seen: Vec<Seen> = segments.iter().map(|s| self.seen(node, s)).collect();
        // As for latent attention: many rows fill a device by themselves.
        if self.role == Role::Prompt {
            return Repr::View(self.attn_tile(index, q, &seen, sizes));
        }
        let first = self.attn_split(index, "", q, &seen[0], sizes);
        let second = seen.get(1).map(|s| self.attn_split(index, " second", q, s, sizes));
        Repr::Pending(Pending::Parts(Parts { node: index, first, second }))
    }

    fn seen(&mut self, node: &Node, segment: &Segment) -> Seen {
        let input = |at: usize| node.inputs[at];
        let keys = self.state(input(segment.k));
        let values = segment.v.map_or(keys, |v| self.state(input(v)));
        let cap = self.rows_of(input(segment.k));
        Seen { keys, values, cap, sight: self.sight(input(segment.k), segment.select.map(input)) }
    }

    /// Bytes of a segment's caches that one row of the step looks at.
    fn seen_bytes(&self, seen: &Seen, sizes: Sizes) -> u64 {
        let values = if seen.values == seen.keys { 0 } else { sizes.v_dim };
        self.cached(self.most(&seen.sight), (sizes.kv_heads * (sizes.dim + values)) as usize)
    }

    /// One segment for few rows, split over what they see.
    fn attn_split(&mut self, index: NodeIndex, which: &str, q: Buf, seen: &Seen, sizes: Sizes) -> Split {
        let Sizes { heads, kv_heads, dim, v_dim, scale } = sizes;
        // Heads of a workgroup: those that share a key, in fours.
        let shared_by = heads / kv_heads;
        let together = if shared_by > 4 { 8 } else { 4 };
        // Parts have 64 rows at least: a window has few.
        let parts = self.most(&seen.sight).div_ceil(PART_ROWS).clamp(1, PARTS);
        let split = self.split(index, which, seen.sight, parts, [heads, v_dim]);
        let numbers = [dim, seen.cap, seen.sight.sel_k, parts].map(Push::U32);
        let groups_x = Count::Fixed(kv_heads * shared_by.div_ceil(together) * parts);
        let dispatch = Dispatch {
            kernel: "attn_split",
            variant: self.caches(),
            spec: [&[ATTN_SPLIT, together, v_dim], &seen.sight.spec()[..], &[kv_heads, shared_by]].concat(),
            push: [&numbers[..], &[Push::F32(scale)]].concat(),
            set0: vec![Bind::read(q), Bind::write(split.sums), Bind::write(split.weights), seen.sight.sel],
            set1: vec![Bind::read(seen.keys), Bind::read(seen.values)],
            groups: (groups_x, Count::Rows(1)),
            bytes: self.seen_bytes(seen, sizes),
        };
        self.emit_part(index, &format!("parts{which}"), dispatch);
        split
    }

    /// All segments for many rows.
    fn attn_tile(&mut self, index: NodeIndex, q: Buf, seen: &[Seen], sizes: Sizes) -> View {
        let node = self.node(index);
        let Sizes { heads, kv_heads, dim, v_dim, scale } = sizes;
        let shared_by = heads / kv_heads;
        // Rows with selections of their own share nothing, so that a workgroup has one of them.
        let chosen = seen.iter().any(|s| s.sight.sel_k > 0);
        let tile = Tile::of(if chosen { shared_by } else { QUERIES }, v_dim);
        let together = if chosen { tile.queries } else { shared_by.min(tile.queries) };
        let y = self.dense(node.output);
        let (sink, sinks) = sink(node);
        let (first, second) = (&seen[0], seen.get(1));
        let sights = [first.sight.spec(), second.map_or(Sight::NONE, |s| s.sight.spec())].concat();
        let caps = [first.cap, second.map_or(0, |s| s.cap), first.sight.sel_k, second.map_or(0, |s| s.sight.sel_k)];
        let numbers = [heads, kv_heads, dim].into_iter().chain(caps).map(Push::U32);
        let second_of = |bind: fn(&Seen) -> Bind| second.map_or(unused(), bind);
        let dispatch = Dispatch {
            kernel: "attn_tile",
            variant: self.caches(),
            spec: [&[tile.local, together, v_dim, tile.queries], &sights[..], &[sink]].concat(),
            push: [sinks].into_iter().chain(numbers).chain([Push::F32(scale)]).collect(),
            set0: vec![Bind::read(q), Bind::write(y.buf), first.sight.sel, second_of(|s| s.sight.sel)],
            set1: vec![
                Bind::read(first.keys),
                Bind::read(first.values),
                second_of(|s| Bind::read(s.keys)),
                second_of(|s| Bind::read(s.values)),
            ],
            groups: (Count::Fixed(kv_heads * shared_by.div_ceil(together)), Count::Rows(tile.queries / together)),
            bytes: seen.iter().map(|s| self.seen_bytes(s, sizes)).sum(),
        };
        self.emit(index, &[], dispatch);
        y
    }
}

/// The specialisation constant SINK, and where the sinks lie.
fn sink(node: &Node) -> (u32, Push) {
    match node.op {
        Op::Attn { sink: true, .. } => (1, Push::Vector(node.weights[0])),
        _ => (0, Push::NoAddress),
    }
}
