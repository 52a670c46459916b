//! Attention, selection.

use super::super::pass::{Bind, Buf, Count, Dispatch, Push};
use super::pending::{Parts, Pending, Repr, View};
use super::stripes::{Stripes, chunk};
use super::{ABSORB, ABSORBED, ATTN_SPLIT, LOCAL, Lower, PARTS, SPLIT, SPLIT_HEADS, TOPK, groups, unused};
use crate::graph::Role;
use crate::ops::Op;
use petgraph::graph::NodeIndex;

/// A workgroup of `attend.glsl`: so many queries meet the same positions.
struct Tile {
    /// Threads.
    local: u32,
    queries: u32,
}

/// Queries and threads of a workgroup at most.
const QUERIES: u32 = 32;
const THREADS: u32 = 512;

impl Tile {
    /// For queries of which up to `heads` can be together, with `width` value channels.
    fn of(heads: u32, width: u32) -> Tile {
        // The more queries, the less is loaded for each.
        let queries = if width > 512 { QUERIES / 2 } else { heads.min(QUERIES).next_power_of_two().max(8) };
        // A thread keeps sums of eight queries in four channels; with more of them it has too few registers for the rest.
        let threads = (queries / 8 * width.div_ceil(4)).next_power_of_two();
        // Scores of eight queries are made by 16 to 128 threads.
        Tile { local: threads.clamp(64, (16 * queries).min(THREADS)), queries }
    }
}

impl Lower<'_> {
    /// Bytes of the rows of a cache that one row of the step looks at, `width` values each.
    pub fn cached(&self, positions: u32, width: usize) -> u64 {
        self.shape.kv.bytes() * u64::from(positions.min(self.shape.ctx)) * width as u64
    }

    pub fn absorb(&mut self, index: NodeIndex, [heads, nope, v_dim, rank]: [usize; 4]) -> Repr {
        let node = self.node(index);
        let (q, y, w) = (self.force(node.inputs[0]), self.dense(node.output), node.weights[0]);
        let dispatch = Dispatch {
            kernel: "absorb",
            variant: Some(self.variant(w)),
            spec: vec![ABSORB],
            push: vec![
                Push::Codes(w),
                Push::Scales(w),
                Push::U32(heads as u32),
                Push::U32(nope as u32),
                Push::U32(v_dim as u32),
                Push::U32(rank as u32),
                Push::U32(q.stride),
                Push::U32(q.off),
                Push::U32(q.head),
                Push::U32(self.group(w)),
            ],
            set0: vec![Bind::read(q.buf), Bind::write(y.buf)],
            set1: vec![],
            groups: (groups((rank as u32).div_ceil(chunk(self.format(w))) * heads as u32, ABSORBED), Count::Rows(1)),
            bytes: self.bytes(w) * nope as u64 / (nope + v_dim) as u64,
        };
        self.emit(index, &[], dispatch);
        Repr::View(y)
    }

    pub fn expand(&mut self, index: NodeIndex, [heads, nope, v_dim, rank]: [usize; 4]) -> Repr {
        let node = self.node(index);
        let w = node.weights[0];
        let lie = Stripes::of_heads(self.format(w), rank as u32, self.many() == 1);
        // A workgroup inside one head can merge the head's parts itself, if that is all it does for one row.
        let alone = self.many() == 0 && (v_dim as u32).is_multiple_of(lie.outs());
        let parts = match self.take_if(node.inputs[0], |p| alone && matches!(p, Pending::Parts(_))) {
            Some(Pending::Parts(parts)) => Some(parts),
            _ => None,
        };
        let l = match parts {
            Some(parts) => parts.sums,
            None => self.dense_rows(node.inputs[0]).buf,
        };
        let y = self.dense(node.output);
        let dispatch = Dispatch {
            kernel: "expand",
            variant: Some(self.variant(w)),
            spec: vec![
                lie.local,
                u32::from(parts.is_some()),
                u32::from(parts.is_some_and(|p| p.sel_k > 0)),
                lie.quads,
                lie.depth,
                self.many(),
            ],
            push: vec![
                Push::Codes(w),
                Push::Scales(w),
                Push::U32(heads as u32),
                Push::U32(nope as u32),
                Push::U32(v_dim as u32),
                Push::U32(rank as u32),
                Push::U32(self.group(w)),
                Push::U32(parts.map_or(0, |p| p.sel_k)),
            ],
            set0: vec![
                Bind::read(l),
                Bind::write(y.buf),
                parts.map_or(unused(), |p| Bind::read(p.weights)),
                parts.map_or(unused(), |p| p.sel),
            ],
            set1: vec![],
            groups: (groups((heads * v_dim) as u32, lie.outs()), Count::Rows(8)),
            bytes: self.bytes(w) * v_dim as u64 / (nope + v_dim) as u64,
        };
        let fused: Vec<NodeIndex> = parts.map(|p| p.node).into_iter().collect();
        self.emit(index, &fused, dispatch);
        Repr::View(y)
    }

    pub fn latent(&mut self, index: NodeIndex) -> Repr {
        let node = self.node(index);
        let Op::AttnLatent { heads, rank, rope, scale, select } = node.op else { unreachable!("AttnLatent") };
        let (q, q_rope) = (self.dense_rows(node.inputs[0]), self.fours(node.inputs[1]));
        let cache = self.state(node.inputs[2]);
        let sel = if select { Some(self.force(node.inputs[3])) } else { None };
        let (sel_k, sel) = (sel.map_or(0, |s| s.stride - 1), sel.map_or(unused(), |s| Bind::read(s.buf)));
        let push = vec![
            Push::U32(heads as u32),
            Push::U32(rope as u32),
            Push::U32(q_rope.stride),
            Push::U32(q_rope.off),
            Push::U32(q_rope.head),
            Push::U32(self.shape.ctx),
            Push::U32(sel_k),
            Push::F32(scale),
        ];
        let bytes = self.cached(if select { sel_k } else { self.shape.ctx }, rank + rope);
        let variant = self.caches();
        let dispatch = |kernel, spec, set0, groups_x| Dispatch {
            kernel,
            variant,
            spec,
            push,
            set0,
            set1: vec![Bind::read(cache)],
            groups: (Count::Fixed(groups_x), Count::Rows(1)),
            bytes,
        };
        let inputs = [Bind::read(q.buf), Bind::read(q_rope.buf)];
        let (heads, rank, select) = (heads as u32, rank as u32, u32::from(select));
        // Many rows fill a device by themselves; few are split over positions.
        if self.role == Role::Prompt {
            let y = self.dense(node.output);
            let set0 = [&inputs[..], &[Bind::write(y.buf), sel]].concat();
            let tile = Tile::of(heads, rank);
            let spec = vec![tile.local, select, rank, tile.queries];
            self.emit(index, &[], dispatch("latent_tile", spec, set0, heads.div_ceil(tile.queries)));
            return Repr::View(y);
        }
        let (sums, weights) = self.parts(index, heads, rank);
        let set0 = [&inputs[..], &[Bind::write(sums), Bind::write(weights), sel]].concat();
        let groups_x = heads.div_ceil(SPLIT_HEADS) * PARTS;
        self.emit_part(index, "parts", dispatch("latent_split", vec![SPLIT, select, rank], set0, groups_x));
        Repr::Pending(Pending::Parts(Parts { node: index, sums, weights, sel, sel_k }))
    }

    /// The pass that merges the parts of an attention.
    pub fn emit_merge(&mut self, parts: Parts) -> View {
        let node = self.node(parts.node);
        let (heads, width) = match &node.op {
            Op::AttnLatent { heads, rank, .. } => (*heads, *rank),
            Op::Attn { heads, v_dim, .. } => (*heads, *v_dim),
            other => unreachable!("{} has no parts", other.name()),
        };
        let y = self.dense(node.output);
        let dispatch = Dispatch {
            kernel: "latent_merge",
            variant: None,
            spec: vec![LOCAL, u32::from(parts.sel_k > 0)],
            push: vec![Push::U32(heads as u32), Push::U32(width as u32), Push::U32(parts.sel_k)],
            set0: vec![Bind::read(parts.sums), Bind::read(parts.weights), Bind::write(y.buf), parts.sel],
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
        let seg = segments[0];
        let (q, keys) = (self.dense_rows(node.inputs[0]), self.state(node.inputs[seg.k]));
        let values = seg.v.map_or(keys, |v| self.state(node.inputs[v]));
        let (heads, kv_heads, dim, v_dim) = (*heads as u32, *kv_heads as u32, *dim as u32, *v_dim as u32);
        let numbers = [heads, kv_heads, dim, self.shape.ctx].map(Push::U32);
        let push = [&numbers[..], &[Push::F32(*scale)]].concat();
        let set1 = vec![Bind::read(keys), Bind::read(values)];
        let bytes = self.cached(self.shape.ctx, (kv_heads * (dim + v_dim)) as usize);
        let variant = self.caches();
        let dispatch = |kernel, spec, set0, groups| Dispatch { kernel, variant, spec, push, set0, set1, groups, bytes };
        let shared_by = heads / kv_heads;
        // As for latent attention: many rows fill a device by themselves.
        if self.role == Role::Prompt {
            let y = self.dense(node.output);
            let tile = Tile::of(QUERIES, v_dim);
            let together = shared_by.min(tile.queries);
            let spec = vec![tile.local, together, v_dim, tile.queries];
            let groups_x = Count::Fixed(kv_heads * shared_by.div_ceil(together));
            let groups = (groups_x, Count::Rows(tile.queries / together));
            self.emit(index, &[], dispatch("attn_tile", spec, vec![Bind::read(q.buf), Bind::write(y.buf)], groups));
            return Repr::View(y);
        }
        // Heads of a workgroup: those that share a key, in fours.
        let together = if shared_by > 4 { 8 } else { 4 };
        let (sums, weights) = self.parts(index, heads, v_dim);
        let set0 = vec![Bind::read(q.buf), Bind::write(sums), Bind::write(weights)];
        let groups_x = Count::Fixed(kv_heads * shared_by.div_ceil(together) * PARTS);
        let spec = vec![ATTN_SPLIT, together, v_dim];
        self.emit_part(index, "parts", dispatch("attn_split", spec, set0, (groups_x, Count::Rows(1))));
        Repr::Pending(Pending::Parts(Parts { node: index, sums, weights, sel: unused(), sel_k: 0 }))
    }

    /// Where the parts of a split attention go, of `width` values a head.
    fn parts(&mut self, index: NodeIndex, heads: u32, width: u32) -> (Buf, Buf) {
        let path = self.node(index).path();
        let sums = self.transient(format!("{path} sums"), PARTS * heads * width);
        (sums, self.transient(format!("{path} weights"), PARTS * heads * 2))
    }

    pub fn topk(&mut self, index: NodeIndex, k: usize) -> Repr {
        let node = self.node(index);
        let (scores, y): (View, View) = (self.force(node.inputs[0]), self.dense(node.output));
        let dispatch = Dispatch {
            kernel: "topk",
            variant: None,
            spec: vec![TOPK],
            push: vec![Push::U32(k as u32), Push::U32(scores.stride)],
            set0: vec![Bind::read(scores.buf), Bind::write(y.buf)],
            set1: vec![],
            groups: (Count::Fixed(1), Count::Rows(1)),
            // A score for each position.
            bytes: 4 * u64::from(self.shape.ctx),
        };
        self.emit(index, &[], dispatch);
        Repr::View(y)
    }
}
