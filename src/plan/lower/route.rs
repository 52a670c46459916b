//! Which experts a row takes: found by the experts' own first pass where nothing else wants to know, else by a pass.

use super::super::pass::{Bind, Count, Dispatch, Push};
use super::pending::{Pending, Repr, View};
use super::{Lower, Place, ROUTE, unused};
use crate::graph::Role;
use crate::ops::op::{GroupScore, Router, Score};
use crate::ops::{Op, ResourceId};
use petgraph::graph::NodeIndex;

/// Where the experts' first pass has its choice from.
pub struct Choice {
    /// Constants of `experts_up.comp` from FOLD on.
    pub spec: [u32; 8],
    /// Address and numbers of the router.
    pub bias: Push,
    pub numbers: [Push; 2],
    /// The route that the first pass reads, the logits that it reads instead, the route that it then writes.
    pub binds: [Bind; 3],
    pub nodes: Vec<NodeIndex>,
}

impl Lower<'_> {
    /// Left to its reader, if that is all who wants it and chooses itself.
    pub fn route(&mut self, index: NodeIndex) -> Repr {
        let id = self.node(index).output;
        let mut readers = self.graph.nodes().filter(|(_, n)| n.inputs.contains(&id));
        let alone = self.role == Role::Decode && self.many() == 0 && self.sole(id);
        let experts =
            readers.all(|(i, n)| matches!(n.op, Op::MoeExperts { .. }) && self.placed[i.index()].place == Place::Gpu);
        if alone && experts {
            Repr::Pending(Pending::Route { node: index })
        } else {
            Repr::View(self.emit_route(index))
        }
    }

    fn router(&self, index: NodeIndex) -> Router {
        match self.op(index) {
            Op::RouterTopk(router) => *router,
            other => unreachable!("{} is no router", other.name()),
        }
    }

    /// Address of the bias, and the numbers behind it.
    fn router_push(&self, index: NodeIndex) -> (Push, [Push; 2]) {
        let r = self.router(index);
        let bias = if r.bias { Push::Vector(self.node(index).weights[0]) } else { Push::NoAddress };
        (bias, [Push::F32(r.renorm_eps), Push::F32(r.scale)])
    }

    /// The pass that chooses.
    pub fn emit_route(&mut self, index: NodeIndex) -> View {
        let node = self.node(index);
        let (z, y) = (self.dense_rows(node.inputs[0]), self.dense(node.output));
        let r = self.router(index);
        let (bias, numbers) = self.router_push(index);
        let dispatch = Dispatch {
            kernel: "route",
            variant: None,
            spec: [&[ROUTE, r.k as u32][..], &constants(&r)].concat(),
            push: [&[bias][..], &numbers].concat(),
            set0: vec![Bind::read(z.buf), Bind::write(y.buf)],
            set1: vec![],
            groups: (Count::Fixed(1), Count::Rows(1)),
            bytes: 0,
        };
        self.emit(index, &[], dispatch);
        y
    }

    /// The choice that experts follow. For one row every workgroup of theirs finds its own expert, which costs less than a
    /// dependent stage; with more rows there are too many workgroups for that.
    pub fn choice(&mut self, id: ResourceId) -> Choice {
        let Some(Pending::Route { node }) = self.take_if(id, |p| matches!(p, Pending::Route { .. })) else {
            let route = self.force(id).buf;
            let (spec, binds) = ([0, 4, 0, 0, 0, 1, 1, 0], [Bind::read(route), unused(), Bind::write(self.scratch())]);
            let (bias, numbers) = (Push::NoAddress, [Push::F32(0.0); 2]);
            return Choice { spec, bias, numbers, binds, nodes: vec![] };
        };
        let (z, y) = (self.dense_rows(self.input(node, 0)), self.dense(id));
        let (bias, numbers) = self.router_push(node);
        let [experts, score, has_bias, renorm, groups, top_groups, group_max] = constants(&self.router(node));
        let spec = [1, experts, score, has_bias, renorm, groups, top_groups, group_max];
        let binds = [unused(), Bind::read(z.buf), Bind::write(y.buf)];
        self.reprs[id.0 as usize] = Repr::View(y);
        Choice { spec, bias, numbers, binds, nodes: vec![node] }
    }
}

/// Constants of `choose.glsl`, in the order of route.comp: EXPERTS, SCORE, BIAS, RENORM, GROUPS, TOP_GROUPS, GROUP_MAX.
fn constants(r: &Router) -> [u32; 7] {
    let score = match r.score {
        Score::Sigmoid => 0,
        Score::Softmax => 1,
        Score::SqrtSoftplus => 2,
    };
    let group_max = u32::from(r.group_score == GroupScore::Max);
    let (bias, renorm) = (u32::from(r.bias), u32::from(r.renorm));
    [r.experts as u32, score, bias, renorm, r.groups as u32, r.top_groups as u32, group_max]
}
