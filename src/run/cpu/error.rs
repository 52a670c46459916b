//! What can go wrong in a step, and the search for the weight that caused it.

use super::work::Work;
use crate::cpu::first_non_finite;
use crate::graph::{Node, StepError, TooLarge, Value};
use crate::ops::{Op, Type};
use crate::weights::Tensor;
use rayon::prelude::*;

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CpuError {
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A value became NaN or infinite.
    #[error("{}", non_finite(node, *row, weight.as_ref()))]
    NonFinite {
        /// The first node that made such a value.
        node: String,
        /// The row of its value.
        row: usize,
        /// A weight of the node that holds NaN or infinity: its name, row and column.
        weight: Option<(String, usize, usize)>,
    },
    /// A routing table names an expert that does not exist.
    #[error(
        "the routing table of `{node}` sends token {token} to expert {id}, but there are {experts} experts; \
         download or convert that tensor again"
    )]
    Table { node: String, token: u32, id: i64, experts: usize },
    /// A routing table that does not hold integers, or has too few rows.
    #[error("`{name}` cannot be the routing table of `{node}`: {why}")]
    TableFormat { node: String, name: String, why: String },
    /// A node met a value of another kind than its operator needs: the graph was not checked.
    #[error("`{node}` needs {want} here; this is a mistake in coli, please report it")]
    Kind { node: String, want: &'static str },
}

fn non_finite(node: &str, row: usize, weight: Option<&(String, usize, usize)>) -> String {
    let cause = match weight {
        Some((name, r, c)) => {
            format!("the weight `{name}` holds NaN or infinity at [{r}, {c}]; download or convert it again")
        }
        None => "all its weights are finite, so its input grew too large for f32".to_owned(),
    };
    format!("`{node}` made NaN or infinity in row {row}: {cause}")
}

impl Work<'_> {
    /// The first row of a value that holds NaN or infinity.
    pub(in crate::run) fn bad_row(&self, node: &Node, value: &Value) -> Option<usize> {
        let width = match &self.graph.resource(node.output).ty {
            Type::Tensor { dims, .. } => dims.iter().product::<u64>() as usize,
            Type::HcMix { streams } => (2 * streams + streams * streams) as usize,
            Type::Route { k, .. } => *k as usize,
            _ => 1,
        };
        match value {
            Value::Tensor(values) | Value::Route { weights: values, .. } => {
                first_non_finite(values).map(|at| at / width.max(1))
            }
            Value::Scores(rows) => rows.iter().position(|r| first_non_finite(r).is_some()),
            // These hold what was checked before, or no numbers.
            Value::Tokens | Value::Selection(_) | Value::Stack(_) | Value::Cache(_) => None,
        }
    }

    /// Looks for the weight behind a bad value.
    pub(in crate::run) fn blame(&self, node: &Node, row: usize) -> CpuError {
        let weight = self.read_by(node).par_iter().find_map_first(|t| {
            let (r, c) = t.find_nan()?;
            Some((t.name().to_owned(), r, c))
        });
        CpuError::NonFinite { node: node.path(), row, weight }
    }

    /// The tensors that the node read in this step.
    fn read_by(&self, node: &Node) -> Vec<&Tensor> {
        let ids = node.weights.iter().map(|w| w.0 as usize);
        match (&node.op, self.route(node, 1)) {
            (Op::MoeExperts { .. }, Ok((experts, _))) => {
                let mut experts = experts.to_vec();
                experts.sort_unstable();
                experts.dedup();
                ids.flat_map(|w| experts.iter().map(move |e| self.weights.expert(w, *e as usize))).collect()
            }
            _ => ids.map(|w| self.weights.one(w)).collect(),
        }
    }
}
