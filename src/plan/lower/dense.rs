//! Embedding, linear maps, gated units, sums.

use super::super::pass::{Bind, Buf, Count, Dispatch, Push};
use super::coop::Map;
use super::pending::{Load, Pending, Repr, View, glu_numbers};
use super::stripes::chunk;
use super::{LOCAL, Lower, TILE, groups, unused};
use crate::graph::Role;
use crate::ops::op::GluKind;
use crate::ops::{Op, ResourceId};
use petgraph::graph::NodeIndex;

impl Lower<'_> {
    pub fn embed(&mut self, index: NodeIndex, d: usize, repeat: usize) -> Repr {
        let node = self.node(index);
        let (w, y) = (node.weights[0], self.dense(node.output));
        let dispatch = Dispatch {
            kernel: "embed",
            variant: Some(self.variant(w)),
            spec: vec![LOCAL],
            push: vec![
                Push::Codes(w),
                Push::Scales(w),
                Push::U32(d as u32),
                Push::U32(repeat as u32),
                Push::U32(self.group(w)),
            ],
            set0: vec![Bind::write(y.buf)],
            set1: vec![],
            groups: (groups(d as u32, chunk(self.format(w)) * LOCAL), Count::Rows(1)),
            bytes: 0,
        };
        self.emit(index, &[], dispatch);
        Repr::View(y)
    }

    pub fn linear(&mut self, index: NodeIndex) -> Repr {
        // The operand must exist before later versions of its name do; the pass itself can wait.
        Repr::Pending(Pending::Linear { node: index })
    }

    /// The pass of a linear map; `add` is a sum that takes it as its second operand: (the sum, what is added).
    pub fn emit_linear(&mut self, index: NodeIndex, add: Option<(NodeIndex, ResourceId)>) -> View {
        let node = self.node(index);
        let (inp, out, bias) = match &node.op {
            Op::Linear { inp, out, bias } => (*inp as u32, *out as u32, *bias),
            Op::RouterLogits { inp, experts } => (*inp as u32, *experts as u32, false),
            Op::LmHead { inp, out } => (*inp as u32, *out as u32, false),
            other => unreachable!("{} is no linear map", other.name()),
        };
        let gather = matches!(node.op, Op::LmHead { .. });
        let x = self.load(node.inputs[0]);
        let added = add.map(|(_, id)| self.force(id));
        let last = add.map_or(index, |(sum, _)| sum);
        let y = self.dense(self.node(last).output);
        let w = node.weights[0];
        let bias = bias.then(|| Push::Vector(node.weights[1]));
        let map = Map { index, w, bias, inp, out, x: x.view, y, add: added, gather };
        let dispatch = match (self.role, self.matrices(self.format(w))) {
            (Role::Prompt, Some(matrices)) => self.coop(matrices, map),
            _ => self.plain(map, &x),
        };
        let mut fused = x.nodes;
        if add.is_some() {
            fused.push(index);
        }
        self.emit(last, &fused, dispatch);
        y
    }

    /// The dispatch of a linear map by multiply-adds.
    fn plain(&mut self, map: Map, x: &Load) -> Dispatch {
        let Map { w, bias, inp, out, y, add, gather, .. } = map;
        let a = add.unwrap_or(View { buf: Buf::Dummy, stride: 0, off: 0, head: 0 });
        let flags = [x.kind, u32::from(bias.is_some()), u32::from(add.is_some()), u32::from(gather)];
        let per_rows = |n: u32| if gather { Count::Outputs(n) } else { Count::Rows(n) };
        let (kernel, spec, count) = match self.role {
            Role::Decode => {
                let lie = self.stripes(w, out, inp);
                let mut spec = [&[lie.local], &flags[..], &[lie.quads, lie.depth, self.many()]].concat();
                spec.extend(self.fine(w));
                ("linear", spec, (groups(out, lie.outs()), per_rows(8)))
            }
            Role::Prompt => ("linear_tile", [&[TILE], &flags[..]].concat(), (groups(out, 64), per_rows(64))),
        };
        Dispatch {
            kernel,
            variant: Some(self.variant(w)),
            spec,
            push: vec![
                Push::Codes(w),
                Push::Scales(w),
                x.norm,
                bias.unwrap_or(Push::NoAddress),
                Push::U32(inp),
                Push::U32(out),
                Push::U32(x.view.stride),
                Push::U32(x.view.off),
                Push::U32(y.stride),
                Push::U32(y.off),
                Push::U32(a.stride),
                Push::U32(a.off),
                Push::U32(self.group(w)),
                Push::F32(x.eps),
            ],
            set0: vec![Bind::read(x.view.buf), Bind::write(y.buf), Bind::read(a.buf)],
            set1: vec![],
            groups: count,
            bytes: self.bytes(w),
        }
    }

    /// A sum: an epilogue of what makes one of its operands, if that can take it.
    pub fn add(&mut self, index: NodeIndex) -> Repr {
        let [a, b] = [self.input(index, 0), self.input(index, 1)];
        for (this, other) in [(b, a), (a, b)] {
            let experts = |p: &Pending| matches!(p, Pending::Experts { adds, .. } if adds.len() < 2);
            if this != other
                && let Some(Pending::Experts { node, hidden, mut adds, mut nodes }) = self.take_if(this, experts)
            {
                adds.push(other);
                nodes.push(index);
                return Repr::Pending(Pending::Experts { node, hidden, adds, nodes });
            }
        }
        for (this, other) in [(b, a), (a, b)] {
            let linear = |p: &Pending| matches!(p, Pending::Linear { .. });
            if this != other
                && self.dense_view(other)
                && let Some(Pending::Linear { node }) = self.take_if(this, linear)
            {
                return Repr::View(self.emit_linear(node, Some((index, other))));
            }
        }
        self.binary(index, 0, [0.0; 2])
    }

    /// Whether a resource can be had as rows without heads between them.
    fn dense_view(&self, id: ResourceId) -> bool {
        match &self.reprs[id.0 as usize] {
            Repr::View(v) => self.heads(id).0 == 1 || v.head == self.head(id),
            _ => true,
        }
    }

    pub fn glu(&mut self, index: NodeIndex, kind: GluKind) -> Repr {
        let [g, u] = [self.input(index, 0), self.input(index, 1)];
        if let Some((gate, up)) = self.pair(g, u) {
            return Repr::View(self.emit_glu(index, kind, gate, up));
        }
        let (number, p) = glu_numbers(kind);
        self.binary(index, 2 + number, p)
    }

    /// Two linear maps of one input, without biases and in one format, that only the gated unit reads.
    fn pair(&mut self, g: ResourceId, u: ResourceId) -> Option<(NodeIndex, NodeIndex)> {
        if self.role != Role::Decode || !self.sole(g) || !self.sole(u) {
            return None;
        }
        let plain = |l: &Self, id: ResourceId| match &l.reprs[id.0 as usize] {
            Repr::Pending(Pending::Linear { node }) if matches!(l.op(*node), Op::Linear { bias: false, .. }) => {
                Some(*node)
            }
            _ => None,
        };
        let (gate, up) = (plain(self, g)?, plain(self, u)?);
        let (wg, wu) = (self.node(gate).weights[0], self.node(up).weights[0]);
        let same = self.input(gate, 0) == self.input(up, 0) && self.format(wg) == self.format(wu);
        if !same {
            return None;
        }
        self.reprs[g.0 as usize] = Repr::Nothing;
        self.reprs[u.0 as usize] = Repr::Nothing;
        Some((gate, up))
    }

    fn emit_glu(&mut self, index: NodeIndex, kind: GluKind, gate: NodeIndex, up: NodeIndex) -> View {
        let x = self.load(self.input(gate, 0));
        let y = self.dense(self.node(index).output);
        let (wg, wu) = (self.node(gate).weights[0], self.node(up).weights[0]);
        let (inp, out) = match self.op(gate) {
            Op::Linear { inp, out, .. } => (*inp as u32, *out as u32),
            other => unreachable!("{} is no linear map", other.name()),
        };
        let (number, [p0, p1]) = glu_numbers(kind);
        let lie = self.stripes(wg, out, inp);
        let spec = [lie.local, x.kind, number, lie.quads, lie.depth, self.many()];
        let dispatch = Dispatch {
            kernel: "glu_linear",
            variant: Some(self.variant(wg)),
            spec: spec.into_iter().chain(self.fine(wg)).collect(),
            push: vec![
                Push::Codes(wg),
                Push::Scales(wg),
                Push::Codes(wu),
                Push::Scales(wu),
                x.norm,
                Push::U32(inp),
                Push::U32(out),
                Push::U32(x.view.stride),
                Push::U32(x.view.off),
                Push::U32(y.stride),
                Push::U32(y.off),
                Push::U32(self.group(wg)),
                Push::F32(x.eps),
                Push::F32(p0),
                Push::F32(p1),
            ],
            set0: vec![Bind::read(x.view.buf), Bind::write(y.buf)],
            set1: vec![],
            groups: (groups(out, lie.outs()), Count::Rows(8)),
            bytes: self.bytes(wg) + self.bytes(wu),
        };
        let mut fused = x.nodes;
        fused.extend([gate, up]);
        self.emit(index, &fused, dispatch);
        y
    }

    /// An elementwise pass of one or two dense operands.
    pub fn binary(&mut self, index: NodeIndex, kind: u32, [p0, p1]: [f32; 2]) -> Repr {
        let node = self.node(index);
        let a = self.flat(node.inputs[0]);
        let b = match node.inputs.get(1) {
            Some(id) => self.flat(*id),
            None => a,
        };
        let y = self.dense(node.output);
        let n = self.width(node.output);
        self.emit_binary(index, [a, b, y], n, kind, [p0, p1]);
        Repr::View(y)
    }

    pub fn emit_binary(&mut self, index: NodeIndex, [a, b, y]: [View; 3], n: u32, kind: u32, p: [f32; 2]) {
        let dispatch = Dispatch {
            kernel: "binary",
            variant: None,
            spec: vec![LOCAL, kind],
            push: vec![
                Push::U32(n),
                Push::U32(a.stride),
                Push::U32(a.off),
                Push::U32(b.stride),
                Push::U32(b.off),
                Push::U32(y.stride),
                Push::U32(y.off),
                Push::F32(p[0]),
                Push::F32(p[1]),
            ],
            set0: vec![Bind::read(a.buf), if kind >= 6 { unused() } else { Bind::read(b.buf) }, Bind::write(y.buf)],
            set1: vec![],
            groups: (groups(n, 256), Count::Rows(1)),
            bytes: 0,
        };
        self.emit(index, &[], dispatch);
    }
}
