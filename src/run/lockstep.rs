//! The processor's kernels and the oracle side by side, every node from the same inputs.
//!
//! With int8 activations two executors that are each right drift apart: a value that differs in its last bit may
//! become another code, 1/127 of its group's largest away. So each node is given what the oracle made, and what it
//! makes of that is compared: a difference is then the node's own.

use super::cpu::Cpu;
use super::load::Model;
use super::session::{RunError, Sizes};
use crate::formats::activation::Activations;
use crate::graph::{Graph, Node, Role, Row, Step, Value};
use crate::oracle::Oracle;
use std::sync::Arc;

/// Sees a node, the oracle's value, and the processor's.
pub type Compare<'a> = dyn FnMut(&Node, &Value, &Value) + Send + 'a;

/// The state of the same sequences in both.
pub struct Lockstep {
    graph: Arc<Graph>,
    oracle: Oracle,
    cpu: Cpu,
}

impl Lockstep {
    pub fn new(model: &Model, sizes: Sizes, activations: Activations) -> Self {
        let (graph, limits) = (model.graph.clone(), sizes.limits(model));
        let oracle = Oracle::new(graph.clone(), model.weights.clone(), limits).with_activations(activations);
        let cpu = Cpu::new(graph.clone(), model.tiled(), limits).with_activations(activations);
        Self { graph, oracle, cpu }
    }

    /// Runs a step on both. `compare` sees every node in order. Returns the logits `[rows that want them][vocab]` of
    /// the oracle and of the processor.
    ///
    /// # Errors
    /// As a step of either. Their states may differ then, so both must be made anew.
    pub fn step(&mut self, role: Role, rows: Vec<Row>, compare: &mut Compare) -> Result<[Vec<f32>; 2], RunError> {
        let states = self.cpu.states();
        let step = Step::new(role, rows, states.limits(), states.lengths())?;
        let mut values = vec![];
        let want = self.oracle.step(&step, &mut |_, value| values.push(value.clone()))?;
        let mut got = vec![];
        // Both run the nodes in the graph's order, so the next value is this node's.
        let mut values = values.into_iter();
        let mut exchange = |node: &Node, value: Value| {
            let Some(want) = values.next() else { return value };
            compare(node, &want, &value);
            if let (Value::Tensor(logits), true) = (value, node.output == self.graph.logits) {
                got = Arc::unwrap_or_clone(logits);
            }
            want
        };
        self.cpu.step_through(&step, &mut exchange)?;
        Ok([want, got])
    }
}
