//! The expanded graph.

use crate::ops::{Op, ResourceId, StateKind, StateNeed, Type, WeightNeed};
use crate::spec::{Source, Span};
use petgraph::graph::{DiGraph, NodeIndex};
use std::sync::Arc;

/// Index in [`Graph::weights`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// Index in [`Graph::states`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u32);

/// One operator of one layer.
#[derive(Debug, Clone)]
pub struct Node {
    pub op: Op,
    /// None outside the layers.
    pub layer: Option<u32>,
    pub block: String,
    /// The assigned name; with `#2` and so on where a block assigns it again.
    pub name: String,
    pub inputs: Vec<ResourceId>,
    pub output: ResourceId,
    pub weights: Vec<WeightId>,
    pub state: Option<StateId>,
    /// The assigned name in the graph file.
    pub span: Span,
}

impl Node {
    /// `l3.moe.routed`, or `head.logits` outside the layers: what placement patterns match.
    pub fn path(&self) -> String {
        match self.layer {
            Some(l) => format!("l{l}.{}.{}", self.block, self.name),
            None => format!("{}.{}", self.block, self.name),
        }
    }
}

/// A data dependency: which input of the reader it feeds, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub input: usize,
    pub resource: ResourceId,
}

/// A value made in a step. Assigning a name again makes another resource.
#[derive(Debug, Clone)]
pub struct Resource {
    pub name: String,
    pub ty: Type,
    /// None for what the step starts with: tokens, empty stacks.
    pub producer: Option<NodeIndex>,
}

/// A weight that some node reads.
#[derive(Debug, Clone)]
pub struct Weight {
    pub need: WeightNeed,
    pub layer: Option<u32>,
}

impl Weight {
    /// Values in all experts together.
    pub fn parameters(&self) -> u64 {
        self.need.shape.iter().product::<u64>() * self.need.experts.unwrap_or(1)
    }
}

/// A persistent state of one layer. It exists because a node writes it.
#[derive(Debug, Clone)]
pub struct State {
    pub name: String,
    pub layer: Option<u32>,
    pub kind: StateKind,
    pub writer: NodeIndex,
}

/// Layers whose nodes differ in nothing but their weights (and the length of stacks).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerKind {
    pub blocks: Vec<String>,
    pub layers: Vec<u32>,
}

/// What a program computes in one step.
#[derive(Debug, Clone)]
pub struct Graph {
    pub source: Arc<Source>,
    pub program: String,
    /// Node order is an order of execution; edges point from producer to reader.
    pub dag: DiGraph<Node, Edge>,
    pub resources: Vec<Resource>,
    pub weights: Vec<Weight>,
    pub states: Vec<State>,
    pub kinds: Vec<LayerKind>,
    pub layers: u32,
    /// The resource named `logits` at the end, f32 [Outputs, vocab].
    pub logits: ResourceId,
    pub vocab: u64,
    /// Globs of tensors that no node reads, on purpose.
    pub ignore: Vec<String>,
    /// Placement hints of the file: node pattern and place.
    pub place: Vec<(String, String)>,
}

impl Graph {
    /// Nodes in execution order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIndex, &Node)> {
        self.dag.node_indices().map(|i| (i, &self.dag[i]))
    }

    pub fn resource(&self, id: ResourceId) -> &Resource {
        &self.resources[id.0 as usize]
    }

    pub fn weight(&self, id: WeightId) -> &Weight {
        &self.weights[id.0 as usize]
    }

    pub fn state(&self, id: StateId) -> &State {
        &self.states[id.0 as usize]
    }

    /// For each resource, the last node that reads it (its producer if none does).
    pub fn last_use(&self) -> Vec<Option<NodeIndex>> {
        let mut last: Vec<Option<NodeIndex>> = self.resources.iter().map(|r| r.producer).collect();
        for (i, node) in self.nodes() {
            for id in &node.inputs {
                last[id.0 as usize] = Some(i);
            }
        }
        last
    }

    /// Length of the longest chain of nodes that ends at each node: nodes of a level are independent.
    pub fn levels(&self) -> Vec<u32> {
        let mut level = vec![0; self.dag.node_count()];
        for (i, _) in self.nodes() {
            let before = self.dag.neighbors_directed(i, petgraph::Incoming);
            level[i.index()] = before.map(|p| level[p.index()] + 1).max().unwrap_or(0);
        }
        level
    }
}

/// What `expand` collects about one call before it becomes a node.
pub(super) struct Checked {
    pub op: Op,
    pub ty: Type,
    pub inputs: Vec<ResourceId>,
    pub weights: Vec<WeightNeed>,
    pub state: Option<StateNeed>,
}
