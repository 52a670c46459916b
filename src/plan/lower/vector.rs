//! Norms, rotations, slices and appends: what is done to a run of channels.

use super::super::pass::{Bind, Buf, Count, Dispatch, Push};
use super::pending::{Norm, Pending, Repr, Vector, View};
use super::{LOCAL, Lower, WIDE, unused};
use crate::graph::StateId;
use crate::ops::op::{Rope, RopeIn, RopeOut};
use crate::ops::{Kv, Op, ResourceId, RowDim, Type};
use petgraph::graph::NodeIndex;

impl Lower<'_> {
    /// A slice or another shape of the same values: no pass.
    pub fn view_of(&mut self, index: NodeIndex) -> Repr {
        let id = self.input(index, 0);
        match *self.op(index) {
            Op::Slice { at, .. } => {
                let v = self.force(id);
                Repr::View(View { off: v.off + at as u32, ..v })
            }
            // Heads may be cut differently by the new shape, so they must lie side by side.
            _ => {
                let v = self.flat(id);
                Repr::View(View { head: self.head(self.node(index).output), ..v })
            }
        }
    }

    /// A norm or rotation: joins a pending one that it can follow.
    pub fn vector(&mut self, index: NodeIndex) -> Repr {
        let node = self.node(index);
        let id = node.inputs[0];
        if let Op::Rope { rope, .. } = &node.op {
            let fits = |p: &Pending| matches!(p, Pending::Vector(Vector { rope: None, .. }));
            if let Some(Pending::Vector(mut v)) = self.take_if(id, fits) {
                v.rope = Some(rope.clone());
                v.nodes.push(index);
                return Repr::Pending(Pending::Vector(v));
            }
        }
        let (heads, d) = self.heads(id);
        let mut v = Vector { src: self.force(id), heads, d, norm: None, rope: None, nodes: vec![index] };
        let norm = |kind, n: usize, eps, scale, w, bias| Norm { kind, at: 0, n: n as u32, w, bias, eps, scale };
        let weight = |at: usize| node.weights.get(at).copied();
        match &node.op {
            Op::Rope { rope, .. } => v.rope = Some(rope.clone()),
            Op::RmsNorm { n, eps, weighted } => {
                v.norm = Some(norm(if *weighted { 2 } else { 1 }, *n, *eps, 1.0, weight(0), None));
            }
            Op::LayerNorm { n, eps } => v.norm = Some(norm(3, *n, *eps, 1.0, weight(0), weight(1))),
            Op::L2Norm { n, eps, scale } => v.norm = Some(norm(4, *n, *eps, *scale, None, None)),
            other => unreachable!("{} is no norm or rotation", other.name()),
        }
        Repr::Pending(Pending::Vector(v))
    }

    /// The pass of a vector computation, into a transient or the rows of a state.
    pub fn emit_vector(&mut self, id: ResourceId, v: Vector, state: Option<(NodeIndex, StateId)>) -> View {
        let y = match state {
            Some(_) => View { buf: Buf::Dummy, stride: 0, off: 0, head: v.d },
            None => self.dense(id),
        };
        let width = v.heads * v.d;
        let norm = v.norm.unwrap_or(Norm { kind: 0, at: 0, n: 0, w: None, bias: None, eps: 0.0, scale: 1.0 });
        let table = v.rope.as_ref().map(|r| self.rope_table(r));
        let rope = v.rope.as_ref();
        let number = |f: &dyn Fn(&Rope) -> usize| Push::U32(rope.map_or(0, f) as u32);
        let address = |w: Option<crate::graph::WeightId>| w.map_or(Push::NoAddress, Push::Vector);
        let push = vec![
            address(norm.w),
            address(norm.bias),
            Push::U32(v.heads),
            Push::U32(v.d),
            Push::U32(v.src.stride),
            Push::U32(v.src.off),
            Push::U32(v.src.head),
            Push::U32(y.stride),
            Push::U32(y.off),
            Push::U32(norm.at),
            Push::U32(norm.n),
            number(&|r| r.at),
            number(&|r| r.dims),
            Push::U32(state.map_or(0, |(_, s)| self.capacity(s))),
            Push::U32(width),
            Push::F32(norm.eps),
            Push::F32(norm.scale),
        ];
        let dispatch = Dispatch {
            kernel: "vec",
            variant: state.and(self.caches()),
            spec: spec(v.d, norm.kind, rope, state.map(|_| self.every(id))),
            push,
            set0: vec![
                Bind::read(v.src.buf),
                Bind::write(if state.is_some() { self.scratch() } else { y.buf }),
                table.map_or(unused(), Bind::read),
            ],
            set1: vec![Bind::write(match state {
                Some((_, s)) => Buf::State(s),
                None => self.scratch(),
            })],
            groups: (Count::Fixed(v.heads), Count::Rows(1)),
            bytes: 0,
        };
        let mut nodes = v.nodes;
        let last = match state {
            Some((index, _)) => index,
            None => nodes.pop().or(self.graph.resource(id).producer).unwrap_or_default(),
        };
        self.emit(last, &nodes, dispatch);
        y
    }

    /// Positions that stand behind a row of a tensor.
    fn every(&self, id: ResourceId) -> u32 {
        match self.ty(id) {
            Type::Tensor { rows: RowDim::Emitted(m), .. } => *m as u32,
            _ => 1,
        }
    }

    /// Rows written to a cache or a ring, by whoever makes them where possible.
    pub fn append(&mut self, index: NodeIndex) -> Repr {
        let node = self.node(index);
        let id = node.inputs[0];
        let Some(state) = node.state else { unreachable!("an append without a state") };
        let pending = self.take_if(id, |p| matches!(p, Pending::Vector(_)));
        let vector = match pending {
            Some(Pending::Vector(v)) => v,
            _ => match self.joined(id) {
                Some(v) => v,
                None => {
                    let (heads, d) = self.heads(id);
                    Vector { src: self.force(id), heads, d, norm: None, rope: None, nodes: vec![] }
                }
            },
        };
        let vector = if self.shape.kv == Kv::F16 { self.in_pairs(id, vector) } else { vector };
        self.emit_vector(id, vector, Some((index, state)));
        Repr::State(state)
    }

    /// Values for a cache of f16, which are written two at a time: heads of an odd width are made first, and then copied as one.
    fn in_pairs(&mut self, id: ResourceId, v: Vector) -> Vector {
        if v.d.is_multiple_of(2) {
            return v;
        }
        let d = v.heads * v.d;
        let src = View { head: d, ..self.emit_vector(id, v, None) };
        Vector { src, heads: 1, d, norm: None, rope: None, nodes: vec![] }
    }

    /// A pending concatenation of neighbouring channels of one buffer is one vector computation.
    fn joined(&mut self, id: ResourceId) -> Option<Vector> {
        let Repr::Pending(Pending::Concat { node }) = self.reprs[id.0 as usize] else { return None };
        if !self.sole(id) {
            return None;
        }
        let parts = self.node(node).inputs.clone();
        let mut joined: Option<Vector> = None;
        for part in &parts {
            let v = match &self.reprs[part.0 as usize] {
                Repr::Pending(Pending::Vector(v)) if self.sole(*part) && v.heads == 1 => v.clone(),
                Repr::View(v) if self.heads(*part).0 == 1 => {
                    Vector { src: *v, heads: 1, d: self.width(*part), norm: None, rope: None, nodes: vec![] }
                }
                _ => return None,
            };
            joined = Some(match joined {
                None => v,
                Some(j) => join(j, v)?,
            });
        }
        let mut joined = joined?;
        joined.nodes.push(node);
        for part in parts {
            if matches!(self.reprs[part.0 as usize], Repr::Pending(_)) {
                self.reprs[part.0 as usize] = Repr::Nothing;
            }
        }
        self.reprs[id.0 as usize] = Repr::Nothing;
        Some(joined)
    }

    /// A concatenation as copies.
    pub fn emit_concat(&mut self, index: NodeIndex) -> View {
        let node = self.node(index);
        let y = self.dense(node.output);
        let mut off = 0;
        for id in &node.inputs {
            let part = self.flat(*id);
            let n = self.width(*id);
            self.emit_binary(index, [part, part, View { off, ..y }], n, 7, [0.0; 2]);
            off += n;
        }
        y
    }

    /// A resource whose heads lie side by side.
    pub fn flat(&mut self, id: ResourceId) -> View {
        let v = self.force(id);
        let (heads, d) = self.heads(id);
        if heads == 1 || v.head == d {
            return v;
        }
        let copy = Vector { src: v, heads, d, norm: None, rope: None, nodes: vec![] };
        let view = self.emit_vector(id, copy, None);
        self.reprs[id.0 as usize] = Repr::View(view);
        view
    }
}

/// Two runs of channels that follow each other in one buffer.
fn join(a: Vector, b: Vector) -> Option<Vector> {
    let follows = a.src.buf == b.src.buf && a.src.stride == b.src.stride && a.src.off + a.d == b.src.off;
    if !follows || (a.norm.is_some() && b.norm.is_some()) || (a.rope.is_some() && b.rope.is_some()) {
        return None;
    }
    let norm = a.norm.or(b.norm.map(|n| Norm { at: n.at + a.d, ..n }));
    let rope = a.rope.or(b.rope.map(|mut r| {
        r.at += a.d as usize;
        r
    }));
    let nodes = [a.nodes, b.nodes].concat();
    Some(Vector { src: View { head: a.d + b.d, ..a.src }, heads: 1, d: a.d + b.d, norm, rope, nodes })
}

/// Specialisation constants of `vec`: threads for `d` channels, norm, rotation and its layouts, and if rows go to a state, how many
/// positions each stands for.
fn spec(d: u32, norm: u32, rope: Option<&Rope>, to_state: Option<u32>) -> Vec<u32> {
    let flag = |f: &dyn Fn(&Rope) -> bool| u32::from(rope.is_some_and(f));
    vec![
        if d < WIDE { LOCAL } else { WIDE },
        norm,
        u32::from(rope.is_some()),
        flag(&|r| r.layout_in == RopeIn::Half),
        flag(&|r| r.layout_out == RopeOut::Half),
        flag(&|r| r.inverse),
        u32::from(to_state.is_some()),
        to_state.unwrap_or(1),
    ]
}
