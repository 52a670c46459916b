//! Index scores, with the rotation of their queries.

use super::super::pass::{Bind, Count, Dispatch, Push};
use super::pending::{Pending, Repr, Vector, View};
use super::{Lower, Place, unused};
use crate::ops::op::{Rope, RopeIn, RopeOut};
use crate::ops::{Op, ResourceId};
use petgraph::graph::NodeIndex;

/// Threads of `index_score.comp`, and the positions that they share.
const INDEX: u32 = 256;
const POSITIONS: u32 = 32;

impl Lower<'_> {
    pub fn index_score(&mut self, index: NodeIndex) -> Repr {
        let node = self.node(index);
        let Op::IndexScore { heads, dim, scale, every } = node.op else { unreachable!("IndexScore") };
        let (q, rope, fused) = self.query(node.inputs[0], heads as u32, dim as u32);
        let (keys, w) = (self.state(node.inputs[1]), self.force(node.inputs[2]));
        let y = self.dense(node.output);
        let layout = match rope.as_ref().map(|r| r.layout_in) {
            None => 0,
            Some(RopeIn::Interleaved) => 1,
            Some(RopeIn::Half) => 2,
        };
        let table = rope.as_ref().map(|r| self.rope_table(r));
        let (rope_at, rope_dims) = rope.map_or((0, 0), |r| (r.at as u32, r.dims as u32));
        let dispatch = Dispatch {
            kernel: "index_score",
            variant: self.caches(),
            spec: vec![INDEX, dim as u32, layout, every as u32],
            push: vec![
                Push::U32(heads as u32),
                Push::U32(q.stride),
                Push::U32(q.off),
                Push::U32(q.head),
                Push::U32(rope_at),
                Push::U32(rope_dims),
                Push::U32(w.stride),
                Push::U32(w.off),
                Push::U32(self.rows_of(node.inputs[1])),
                Push::U32(y.stride),
                Push::U32(self.enough(node.output)),
                Push::F32(scale),
            ],
            set0: vec![Bind::read(q.buf), Bind::read(w.buf), Bind::write(y.buf), table.map_or(unused(), Bind::read)],
            set1: vec![Bind::read(keys)],
            groups: (Count::Visible(POSITIONS * every as u32), Count::Rows(1)),
            bytes: self.cached(self.rows_of(node.inputs[1]), dim),
        };
        self.emit(index, &fused, dispatch);
        Repr::View(y)
    }

    /// Queries whose heads begin at multiples of four, and the rotation that is still to be done.
    fn query(&mut self, id: ResourceId, heads: u32, dim: u32) -> (View, Option<Rope>, Vec<NodeIndex>) {
        let halves = |r: &Rope| {
            let out = r.layout_in == RopeIn::Half || r.layout_out == RopeOut::Half;
            out && !r.inverse && r.at.is_multiple_of(4) && r.dims.is_multiple_of(8)
        };
        let fits = |p: &Pending| match p {
            Pending::Vector(Vector { src, heads: h, d, norm: None, rope: Some(rope), .. }) => {
                (*h, *d) == (heads, dim) && src.in_fours() && src.head.is_multiple_of(4) && halves(rope)
            }
            _ => false,
        };
        match self.take_if(id, fits) {
            Some(Pending::Vector(v)) => (v.src, v.rope, v.nodes),
            _ => (self.fours(id), None, vec![]),
        }
    }

    /// A row that sees no more positions than this needs no scores: who reads them takes all positions then.
    fn enough(&self, scores: ResourceId) -> u32 {
        let readers = self.graph.nodes().filter(|(_, n)| n.inputs.contains(&scores));
        let takes = readers.map(|(i, n)| match n.op {
            Op::TopkSelect { k } if self.placed[i.index()].place == Place::Gpu => k as u32,
            _ => 0,
        });
        takes.min().unwrap_or(0)
    }
}
