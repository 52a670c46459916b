//! Latent attention, selection.

use super::super::pass::{Bind, Count, Dispatch, Push};
use super::pending::{Parts, Pending, Repr, Sight, View};
use super::stripes::{Stripes, chunk};
use super::{ABSORB, ABSORBED, Lower, PARTS, SPLIT, SPLIT_HEADS, TOPK, groups, unused};
use crate::graph::{Node, Role};
use crate::ops::{Op, Type};
use petgraph::graph::NodeIndex;

/// A workgroup of `attend.glsl`: so many queries meet the same positions.
pub struct Tile {
    /// Threads.
    pub local: u32,
    pub queries: u32,
}

/// Queries and threads of a workgroup at most.
pub const QUERIES: u32 = 32;
const THREADS: u32 = 512;

impl Tile {
    /// For queries of which up to `heads` can be together, with `width` value channels.
    pub fn of(heads: u32, width: u32) -> Tile {
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
            spec: vec![ABSORB, rank as u32],
            push: vec![
                Push::Codes(w),
                Push::Scales(w),
                Push::U32(heads as u32),
                Push::U32(nope as u32),
                Push::U32(v_dim as u32),
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
        // Only latent attention has always one segment, of all rows or a selection, and no sink.
        let (graph, latent) = (self.graph, |n: &Node| matches!(n.op, Op::AttnLatent { .. }));
        let fits = |p: &Pending| alone && matches!(p, Pending::Parts(parts) if latent(&graph.dag[parts.node]));
        let (merged, parts) = match self.take_if(node.inputs[0], fits) {
            Some(Pending::Parts(parts)) => (vec![parts.node], Some(parts.first)),
            _ => (vec![], None),
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
                u32::from(parts.is_some_and(|p| p.sight.sel_k > 0)),
                lie.quads,
                lie.depth,
                self.many(),
                v_dim as u32,
            ],
            push: vec![
                Push::Codes(w),
                Push::Scales(w),
                Push::U32(heads as u32),
                Push::U32(nope as u32),
                Push::U32(rank as u32),
                Push::U32(self.group(w)),
                Push::U32(parts.map_or(0, |p| p.sight.sel_k)),
            ],
            set0: vec![
                Bind::read(l),
                Bind::write(y.buf),
                parts.map_or(unused(), |p| Bind::read(p.weights)),
                parts.map_or(unused(), |p| p.sight.sel),
            ],
            set1: vec![],
            groups: (groups((heads * v_dim) as u32, lie.outs()), Count::Rows(8)),
            bytes: self.bytes(w) * v_dim as u64 / (nope + v_dim) as u64,
        };
        self.emit(index, &merged, dispatch);
        Repr::View(y)
    }

    pub fn latent(&mut self, index: NodeIndex) -> Repr {
        let node = self.node(index);
        let Op::AttnLatent { heads, rank, rope, scale, select } = node.op else { unreachable!("AttnLatent") };
        let (q, q_rope) = (self.dense_rows(node.inputs[0]), self.fours(node.inputs[1]));
        let cache = self.state(node.inputs[2]);
        let sight = self.sight(node.inputs[2], select.then(|| node.inputs[3]));
        let Sight { sel, sel_k, .. } = sight;
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
        let bytes = self.cached(self.most(&sight), rank + rope);
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
        let first = self.split(index, "", sight, PARTS, [heads, rank]);
        let set0 = [&inputs[..], &[Bind::write(first.sums), Bind::write(first.weights), sel]].concat();
        let blocks = heads.div_ceil(SPLIT_HEADS);
        let spec = vec![SPLIT, select, rank, blocks];
        self.emit_part(index, "parts", dispatch("latent_split", spec, set0, blocks * PARTS));
        Repr::Pending(Pending::Parts(Parts { node: index, first, second: None }))
    }

    pub fn topk(&mut self, index: NodeIndex, k: usize) -> Repr {
        let node = self.node(index);
        let Type::Scores { every } = *self.ty(node.inputs[0]) else { unreachable!("scores") };
        let (scores, y): (View, View) = (self.force(node.inputs[0]), self.dense(node.output));
        let dispatch = Dispatch {
            kernel: "topk",
            variant: None,
            spec: vec![TOPK, every as u32],
            push: vec![Push::U32(k as u32), Push::U32(scores.stride)],
            set0: vec![Bind::read(scores.buf), Bind::write(y.buf)],
            set1: vec![],
            groups: (Count::Fixed(1), Count::Rows(1)),
            // A score for each position.
            bytes: 4 * u64::from(scores.stride),
        };
        self.emit(index, &[], dispatch);
        Repr::View(y)
    }
}
