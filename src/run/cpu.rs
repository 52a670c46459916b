//! Runs a graph on the processor, node after node, with the kernels of [`cpu`](crate::cpu).
//!
//! Invariants: every node reads only its inputs, its weights and caches that earlier nodes of the step wrote;
//! a value is dropped behind its last reader; every value is checked for NaN and infinity, so a broken weight
//! is reported where it does harm first. A row's bits do not depend on the rows beside it.

mod attention;
pub mod bench;
mod dense;
mod error;
mod moe;
mod residual;
mod sequence;
mod work;

pub use error::CpuError;

use crate::cpu::matmul::Sum;
use crate::formats::activation::Activations;
use crate::graph::{Graph, Limits, Node, States, Step, Value, Watch};
use crate::ops::{Op, ResourceId};
use crate::weights::Bound;
use std::collections::HashMap;
use std::sync::Arc;
pub(in crate::run) use work::Work;

/// A graph with its weights and the state of its sequences.
pub struct Cpu {
    graph: Arc<Graph>,
    weights: Arc<Bound>,
    states: States,
    tables: Tables,
    sum: Sum,
    done: Vec<Vec<ResourceId>>,
}

/// For each node that rotates, which of the graph's frequency tables it uses.
pub(in crate::run) struct Tables(Vec<usize>);

impl Tables {
    pub(in crate::run) fn new(graph: &Graph) -> Self {
        let mut known: HashMap<Vec<u32>, usize> = HashMap::new();
        let mut table = |op: &Op| match op {
            Op::Rope { rope, .. } => {
                let next = known.len();
                *known.entry(rope.inv_freq.iter().map(|f| f.to_bits()).collect()).or_insert(next)
            }
            _ => 0,
        };
        Self(graph.nodes().map(|(_, n)| table(&n.op)).collect())
    }

    pub(in crate::run) fn numbers(&self) -> &[usize] {
        &self.0
    }
}

/// For each node, the resources that nothing reads after it.
fn dropped_after(graph: &Graph) -> Vec<Vec<ResourceId>> {
    let mut done = vec![vec![]; graph.dag.node_count()];
    for (id, last) in graph.last_use().into_iter().enumerate() {
        let id = ResourceId(id as u32);
        if let Some(node) = last.filter(|_| id != graph.logits) {
            done[node.index()].push(id);
        }
    }
    done
}

/// Sees each node's value and says what takes its place.
pub(in crate::run) type Exchange<'a> = dyn FnMut(&Node, Value) -> Value + Send + 'a;

impl Cpu {
    /// `weights` answers the graph's weights in their order. The state of `limits.slots` sequences starts empty.
    pub fn new(graph: Arc<Graph>, weights: Arc<Bound>, limits: Limits) -> Self {
        let (states, tables, done) = (States::new(&graph, limits), Tables::new(&graph), dropped_after(&graph));
        Self { graph, weights, states, tables, sum: Sum::F32, done }
    }

    /// Takes the inputs of products with integer-coded weights as asked for; f32 unless told otherwise.
    pub fn with_activations(self, activations: Activations) -> Self {
        Self { sum: activations.into(), ..self }
    }

    /// The state of all sequences.
    pub fn states(&self) -> &States {
        &self.states
    }

    /// The state of all sequences, to reset, restore or cut them.
    pub fn states_mut(&mut self) -> &mut States {
        &mut self.states
    }

    /// Runs one step and advances the state. Returns logits `[rows that want them][vocab]`, in row order.
    /// `watch` sees every node's value.
    ///
    /// # Errors
    /// See [`CpuError`]. Lengths stay as they were, but recurrent states (`Window`, `Matrix`) of the step's
    /// slots may have been written: such a slot must be restored from a snapshot or reset.
    pub fn step(&mut self, step: &Step, watch: &mut Watch) -> Result<Vec<f32>, CpuError> {
        self.step_through(step, &mut |node, value| {
            watch(node, &value);
            value
        })
    }

    /// As [`Cpu::step`], but what `exchange` makes of a node's value takes its place for all that read it.
    ///
    /// # Errors
    /// As [`Cpu::step`].
    pub(in crate::run) fn step_through(&mut self, step: &Step, exchange: &mut Exchange) -> Result<Vec<f32>, CpuError> {
        // On one of the pool's threads: from any other, each kernel would wait asleep for the pool to wake up.
        rayon::scope(|_| self.nodes(step, exchange))
    }

    fn nodes(&mut self, step: &Step, exchange: &mut Exchange) -> Result<Vec<f32>, CpuError> {
        // The step may have been checked against other limits or lengths.
        Step::new(step.role(), step.rows().to_vec(), self.states.limits(), self.states.lengths())?;
        let graph = Arc::clone(&self.graph);
        let mut work = Work::new(&graph, &self.weights, step, &mut self.states, self.tables.numbers());
        work.sum = self.sum;
        for (i, node) in graph.nodes() {
            let value = work.run(i.index(), node)?;
            if let Some(row) = work.bad_row(node, &value) {
                return Err(work.blame(node, row));
            }
            work.keep(node.output, exchange(node, value));
            self.done[i.index()].iter().for_each(|id| work.drop_value(*id));
        }
        let logits = work.take(graph.logits);
        self.states.advance(step.rows());
        match logits {
            Some(Value::Tensor(logits)) => Ok(Arc::unwrap_or_clone(logits)),
            _ => Err(CpuError::Kind { node: "logits".into(), want: "a tensor" }),
        }
    }
}

#[cfg(test)]
mod tests;
