//! Routing and experts.

use super::dense::glu_of;
use super::error::CpuError;
use super::work::{Work, made};
use crate::cpu::experts::{self, Expert, Visits};
use crate::cpu::route::{self, Score};
use crate::graph::{Node, Value};
use crate::ops::op::{self, GluKind, GroupScore};
use rayon::prelude::*;
use std::sync::Arc;

type Made = Result<Value, CpuError>;

fn router_of(r: &op::Router) -> route::Router {
    route::Router {
        k: r.k,
        score: match r.score {
            op::Score::Sigmoid => Score::Sigmoid,
            op::Score::Softmax => Score::Softmax,
            op::Score::SqrtSoftplus => Score::SqrtSoftplus,
        },
        groups: r.groups,
        top_groups: r.top_groups,
        top2: r.group_score == GroupScore::Top2Sum,
        renorm: r.renorm,
        renorm_eps: r.renorm_eps,
        scale: r.scale,
    }
}

impl Work<'_> {
    pub(super) fn router_topk(&self, n: &Node, r: &op::Router) -> Made {
        let z = self.tensor(n, 0)?;
        let router = router_of(r);
        let bias = if r.bias { Some(self.vector(n, 0)?) } else { None };
        let of = |(row, z): (usize, &[f32])| {
            let scores = route::scores(z, router.score);
            let ids = if r.table {
                self.tabled(n, row, r)?
            } else {
                route::choose(&scores, bias.as_deref(), &router).map_err(|_| self.blame(n, row))?
            };
            let weights = route::weigh(&scores, &ids, &router);
            Ok((ids, weights))
        };
        let rows: Result<Vec<_>, CpuError> = z.par_chunks(r.experts).enumerate().map(of).collect();
        let (ids, weights): (Vec<Vec<u32>>, Vec<Vec<f32>>) = rows?.into_iter().unzip();
        Ok(Value::Route { ids: Arc::new(ids.concat()), weights: Arc::new(weights.concat()) })
    }

    /// The experts of a row's token.
    fn tabled(&self, n: &Node, row: usize, r: &op::Router) -> Result<Vec<u32>, CpuError> {
        let (token, table) = (self.rows()[row].token, self.weight(n, 0)?);
        let matrix = table.matrix();
        let refuse = |why: String| CpuError::TableFormat { node: n.path(), name: table.name().to_owned(), why };
        if token as usize >= matrix.rows() {
            return Err(refuse(format!("it has {} rows, but there is a token {token}", matrix.rows())));
        }
        let mut ids = vec![0; r.k];
        if matrix.int_row(token as usize, &mut ids).is_none() {
            return Err(refuse(format!("it is {}, but expert ids are integers", matrix.format())));
        }
        let known = |id: &i64| u32::try_from(*id).ok().filter(|e| (*e as usize) < r.experts).ok_or(*id);
        let ids: Result<Vec<u32>, i64> = ids.iter().map(known).collect();
        ids.map_err(|id| CpuError::Table { node: n.path(), token, id, experts: r.experts })
    }

    pub(super) fn moe_experts(&self, n: &Node, inp: usize, out: usize, k: usize, kind: GluKind) -> Made {
        let (x, (ids, weights)) = (self.tensor(n, 0)?, self.route(n, 1)?);
        let [gate, up, down] = n.weights[..] else {
            return Err(CpuError::Kind { node: n.path(), want: "three weights" });
        };
        let matrix = |w: crate::graph::WeightId, e: u32| self.weights.expert(w.0 as usize, e as usize).matrix();
        let expert = |e: u32| Expert { gate: matrix(gate, e), up: matrix(up, e), down: matrix(down, e) };
        let visits = Visits { ids, weights, k };
        made(x.len() / inp * out, |y| experts::moe_experts(x, inp, visits, glu_of(kind), self.sum, expert, y))
    }
}
