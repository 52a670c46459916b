//! Experts.

use super::super::pass::{Bind, Buf, Count, Dispatch, Push};
use super::pending::{Hidden, Load, Pending, Repr, View, glu_numbers};
use super::{LOCAL, Lower, groups, unused};
use crate::formats::{Format, rotation};
use crate::graph::Role;
use crate::ops::{Op, ResourceId};
use petgraph::graph::NodeIndex;

/// Threads that rotate a block at most.
const ROTATE: u32 = 512;

impl Lower<'_> {
    /// The experts' first pass; the second waits for the sums behind it.
    pub fn experts(&mut self, index: NodeIndex) -> Repr {
        if self.role == Role::Prompt {
            return self.grouped(index);
        }
        let node = self.node(index);
        let Op::MoeExperts { inp, ff, k, kind, experts, .. } = node.op else { unreachable!("MoeExperts") };
        let x = match self.format(node.weights[0]) {
            Format::E8 => self.rotated(index),
            _ => self.load(node.inputs[0]),
        };
        let choice = self.choice(node.inputs[1]);
        let hidden = self.transient(format!("{} hidden", node.path()), (k * ff) as u32);
        let w = node.weights[0];
        let (number, [p0, p1]) = glu_numbers(kind);
        let share = |bytes: u64| bytes * k as u64 / experts.max(1) as u64;
        let per_expert = (self.bytes(w) + self.bytes(node.weights[1])) * experts as u64;
        let lie = self.stripes(w, ff as u32, inp as u32);
        let mut spec = vec![lie.local, x.kind, number, lie.quads, lie.depth, k as u32];
        spec.extend(choice.spec.iter().copied().chain([self.many()]).chain(self.fine(w)));
        let dispatch = Dispatch {
            kernel: "experts_up",
            variant: Some(self.variant(w)),
            spec,
            push: vec![
                Push::Experts(w),
                Push::Experts(node.weights[1]),
                x.norm,
                choice.bias,
                Push::U32(inp as u32),
                Push::U32(ff as u32),
                Push::U32(x.view.stride),
                Push::U32(x.view.off),
                Push::U32(self.group(w)),
                Push::F32(x.eps),
                Push::F32(p0),
                Push::F32(p1),
                choice.numbers[0],
                choice.numbers[1],
            ],
            set0: vec![Bind::read(x.view.buf), choice.binds[0], Bind::write(hidden), choice.binds[1], choice.binds[2]],
            set1: vec![],
            groups: (Count::Rows(1), Count::Fixed(k as u32 * (ff as u32).div_ceil(lie.outs()))),
            bytes: share(per_expert),
        };
        self.emit(index, &[x.nodes, choice.nodes].concat(), dispatch);
        self.rotate_hidden(index, hidden);
        let hidden = Hidden { buf: hidden, tiles: None };
        Repr::Pending(Pending::Experts { node: index, hidden, adds: vec![], nodes: vec![] })
    }

    /// Hidden values through the rotation that the second pass's stored matrices have been through, if they have.
    pub fn rotate_hidden(&mut self, index: NodeIndex, hidden: Buf) {
        let node = self.node(index);
        let Op::MoeExperts { ff, k, .. } = node.op else { unreachable!("MoeExperts") };
        if self.format(node.weights[2]) == Format::E8 {
            let rows = View { buf: hidden, stride: (k * ff) as u32, off: 0, head: ff as u32 };
            let rows = Load { view: rows, kind: 0, norm: Push::NoAddress, eps: 0.0, nodes: vec![] };
            self.emit_rotate(index, "hidden rotated", &rows, hidden, [ff, k]);
        }
    }

    /// The experts' input through the rotation that their stored matrices have been through. A norm before it is part of the same
    /// pass, which then waits for no more than the router does.
    pub fn rotated(&mut self, index: NodeIndex) -> Load {
        let node = self.node(index);
        let Op::MoeExperts { inp, .. } = node.op else { unreachable!("MoeExperts") };
        let x = self.load(node.inputs[0]);
        let buf = self.transient(format!("{} rotated", node.path()), inp as u32);
        self.emit_rotate(index, "rotated", &x, buf, [inp, 1]);
        let view = View { buf, stride: inp as u32, off: 0, head: inp as u32 };
        Load { view, kind: 0, norm: Push::NoAddress, eps: 0.0, nodes: x.nodes }
    }

    /// Rotates `count` vectors of `dim` values in each row of `x`, into dense rows of `to`, which may be `x` itself.
    fn emit_rotate(&mut self, index: NodeIndex, what: &str, x: &Load, to: Buf, [dim, count]: [usize; 2]) {
        let blocks = rotation::blocks(dim).count();
        // Half a block's pairs each, so that steps of the transform are short; the last block is the longest.
        let longest = 1u32 << dim.ilog2();
        let local = (longest / 4).clamp(LOCAL, ROTATE);
        let dispatch = Dispatch {
            kernel: "rotate",
            variant: None,
            spec: vec![local, x.kind],
            push: vec![
                x.norm,
                Push::U32(dim as u32),
                Push::U32(blocks as u32),
                Push::U32(x.view.stride),
                Push::U32(x.view.off),
                Push::F32(x.eps),
            ],
            set0: vec![Bind::read(x.view.buf), Bind::write(to)],
            set1: vec![],
            groups: (Count::Fixed((blocks * count) as u32), Count::Rows(1)),
            bytes: 0,
        };
        self.emit_part(index, what, dispatch);
    }

    /// The experts' second pass, with the sums it has taken in.
    pub fn emit_down(
        &mut self,
        index: NodeIndex,
        output: ResourceId,
        hidden: Hidden,
        adds: &[ResourceId],
        nodes: &[NodeIndex],
    ) -> View {
        let node = self.node(index);
        let Op::MoeExperts { ff, k, out, .. } = node.op else { unreachable!("MoeExperts") };
        let route = self.force(node.inputs[1]);
        let added: Vec<View> = adds.iter().map(|id| self.dense_rows(*id)).collect();
        let y = self.dense(output);
        let (last, fused) = match nodes.split_last() {
            Some((last, rest)) => (*last, [&[index], rest].concat()),
            None => (index, vec![]),
        };
        if let Some(tiles) = hidden.tiles {
            self.emit_down_tiles(index, [hidden.buf, route.buf], tiles, y, &added, (last, &fused));
            return y;
        }
        let w = node.weights[2];
        let add = |i: usize| added.get(i).map_or(unused(), |v| Bind::read(v.buf));
        let lie = self.stripes(w, out as u32, ff as u32);
        let spec = [lie.local, u32::from(!added.is_empty()), u32::from(added.len() > 1), lie.quads, lie.depth];
        let dispatch = Dispatch {
            kernel: "experts_down",
            variant: Some(self.variant(w)),
            spec: spec.into_iter().chain(self.fine(w)).collect(),
            push: vec![
                Push::Experts(w),
                Push::U32(ff as u32),
                Push::U32(out as u32),
                Push::U32(k as u32),
                Push::U32(y.stride),
                Push::U32(y.off),
                Push::U32(self.group(w)),
            ],
            set0: vec![Bind::read(hidden.buf), Bind::read(route.buf), Bind::write(y.buf), add(0), add(1)],
            set1: vec![],
            groups: (Count::Rows(1), groups(out as u32, lie.outs())),
            bytes: self.bytes(w) * k as u64,
        };
        self.emit(last, &fused, dispatch);
        y
    }
}
