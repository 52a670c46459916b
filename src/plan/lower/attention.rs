//! Attention, index scores, selection.

use super::super::pass::{Bind, Count, Dispatch, Push};
use super::pending::{Repr, View};
use super::{ABSORB, ABSORBED, ATTENTION, LOCAL, Lower, PER_GROUP_EXPAND, groups, unused};
use crate::ops::Op;
use petgraph::graph::NodeIndex;

impl Lower<'_> {
    /// Bytes of the rows of a cache that one row of the step looks at, `width` values each.
    fn cached(&self, positions: u32, width: usize) -> u64 {
        4 * u64::from(positions.min(self.shape.ctx)) * width as u64
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
            groups: (groups((heads * rank) as u32, 8 * ABSORBED), Count::Rows(1)),
            bytes: self.bytes(w) * nope as u64 / (nope + v_dim) as u64,
        };
        self.emit(index, &[], dispatch);
        Repr::View(y)
    }

    pub fn expand(&mut self, index: NodeIndex, [heads, nope, v_dim, rank]: [usize; 4]) -> Repr {
        let node = self.node(index);
        let (l, y, w) = (self.dense_rows(node.inputs[0]), self.dense(node.output), node.weights[0]);
        let dispatch = Dispatch {
            kernel: "expand",
            variant: Some(self.variant(w)),
            spec: vec![LOCAL, PER_GROUP_EXPAND],
            push: vec![
                Push::Codes(w),
                Push::Scales(w),
                Push::U32(heads as u32),
                Push::U32(nope as u32),
                Push::U32(v_dim as u32),
                Push::U32(rank as u32),
                Push::U32(self.group(w)),
            ],
            set0: vec![Bind::read(l.buf), Bind::write(y.buf)],
            set1: vec![],
            groups: (groups((heads * v_dim) as u32, PER_GROUP_EXPAND), Count::Rows(8)),
            bytes: self.bytes(w) * v_dim as u64 / (nope + v_dim) as u64,
        };
        self.emit(index, &[], dispatch);
        Repr::View(y)
    }

    pub fn latent(&mut self, index: NodeIndex) -> Repr {
        let node = self.node(index);
        let Op::AttnLatent { heads, rank, rope, scale, select } = node.op else { unreachable!("AttnLatent") };
        let (q, q_rope) = (self.dense_rows(node.inputs[0]), self.fours(node.inputs[1]));
        let cache = self.state(node.inputs[2]);
        let sel = if select { Some(self.force(node.inputs[3])) } else { None };
        let y = self.dense(node.output);
        let dispatch = Dispatch {
            kernel: "attn_latent",
            variant: None,
            spec: vec![ATTENTION, u32::from(select)],
            push: vec![
                Push::U32(heads as u32),
                Push::U32(rank as u32),
                Push::U32(rope as u32),
                Push::U32(q_rope.stride),
                Push::U32(q_rope.off),
                Push::U32(q_rope.head),
                Push::U32(self.shape.ctx),
                Push::U32(sel.map_or(0, |s| s.stride - 1)),
                Push::F32(scale),
            ],
            set0: vec![
                Bind::read(q.buf),
                Bind::read(q_rope.buf),
                Bind::write(y.buf),
                sel.map_or(unused(), |s| Bind::read(s.buf)),
            ],
            set1: vec![Bind::read(cache)],
            groups: (Count::Fixed(heads as u32), Count::Rows(1)),
            bytes: self.cached(sel.map_or(self.shape.ctx, |s| s.stride - 1), rank + rope),
        };
        self.emit(index, &[], dispatch);
        Repr::View(y)
    }

    pub fn attn(&mut self, index: NodeIndex) -> Repr {
        let node = self.node(index);
        let Op::Attn { heads, kv_heads, dim, v_dim, scale, segments, .. } = &node.op else { unreachable!("Attn") };
        let seg = segments[0];
        let (q, keys) = (self.dense_rows(node.inputs[0]), self.state(node.inputs[seg.k]));
        let values = seg.v.map_or(keys, |v| self.state(node.inputs[v]));
        let y = self.dense(node.output);
        let dispatch = Dispatch {
            kernel: "attn",
            variant: None,
            spec: vec![ATTENTION],
            push: vec![
                Push::U32(*heads as u32),
                Push::U32(*kv_heads as u32),
                Push::U32(*dim as u32),
                Push::U32(*v_dim as u32),
                Push::U32(self.shape.ctx),
                Push::U32(self.shape.ctx),
                Push::U32(0),
                Push::F32(*scale),
            ],
            set0: vec![Bind::read(q.buf), Bind::write(y.buf)],
            set1: vec![Bind::read(keys), Bind::read(values)],
            groups: (Count::Fixed(*heads as u32), Count::Rows(1)),
            bytes: self.cached(self.shape.ctx, kv_heads * (dim + v_dim)),
        };
        self.emit(index, &[], dispatch);
        Repr::View(y)
    }

    pub fn index_score(&mut self, index: NodeIndex) -> Repr {
        let node = self.node(index);
        let Op::IndexScore { heads, dim, scale, .. } = node.op else { unreachable!("IndexScore") };
        let (q, keys, w) = (self.dense_rows(node.inputs[0]), self.state(node.inputs[1]), self.force(node.inputs[2]));
        let y = self.dense(node.output);
        let dispatch = Dispatch {
            kernel: "index_score",
            variant: None,
            spec: vec![LOCAL],
            push: vec![
                Push::U32(heads as u32),
                Push::U32(dim as u32),
                Push::U32(w.stride),
                Push::U32(w.off),
                Push::U32(self.shape.ctx),
                Push::U32(y.stride),
                Push::F32(scale),
            ],
            set0: vec![Bind::read(q.buf), Bind::read(w.buf), Bind::write(y.buf)],
            set1: vec![Bind::read(keys)],
            groups: (Count::Visible(64), Count::Rows(1)),
            bytes: self.cached(self.shape.ctx, dim),
        };
        self.emit(index, &[], dispatch);
        Repr::View(y)
    }

    pub fn topk(&mut self, index: NodeIndex, k: usize) -> Repr {
        let node = self.node(index);
        let (scores, y): (View, View) = (self.force(node.inputs[0]), self.dense(node.output));
        let dispatch = Dispatch {
            kernel: "topk",
            variant: None,
            spec: vec![ATTENTION],
            push: vec![Push::U32(k as u32), Push::U32(scores.stride)],
            set0: vec![Bind::read(scores.buf), Bind::write(y.buf)],
            set1: vec![],
            groups: (Count::Fixed(1), Count::Rows(1)),
            bytes: self.cached(self.shape.ctx, 1),
        };
        self.emit(index, &[], dispatch);
        Repr::View(y)
    }
}
