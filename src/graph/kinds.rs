//! Layers that are alike share one plan.

use super::node::{Edge, LayerKind, Node, Weight};
use crate::ops::Op;
use petgraph::graph::{DiGraph, NodeIndex};
use std::ops::Range;

/// What tells two layers apart: their operators with attributes, operands and weight shapes.
/// The length of a stack is a parameter of the layer, not of its kind.
fn signature(dag: &DiGraph<Node, Edge>, weights: &[Weight], range: &Range<usize>) -> String {
    let mut out = String::new();
    for i in range.clone() {
        let node = &dag[NodeIndex::new(i)];
        let op = match &node.op {
            Op::AttnResMix { d, eps, .. } => Op::AttnResMix { d: *d, eps: *eps, len: 0 },
            other => other.clone(),
        };
        let shapes: Vec<_> = node.weights.iter().map(|w| &weights[w.0 as usize].need.shape).collect();
        out.push_str(&format!("{}.{} {op:?} {shapes:?}\n", node.block, node.name));
    }
    out
}

/// Groups layers by signature, in order of first appearance.
pub fn find(
    dag: &DiGraph<Node, Edge>,
    weights: &[Weight],
    layers: &[(u32, Vec<String>, Range<usize>)],
) -> Vec<LayerKind> {
    let mut kinds: Vec<(String, LayerKind)> = vec![];
    for (number, blocks, range) in layers {
        let signature = signature(dag, weights, range);
        match kinds.iter_mut().find(|(s, _)| *s == signature) {
            Some((_, kind)) => kind.layers.push(*number),
            None => kinds.push((signature, LayerKind { blocks: blocks.clone(), layers: vec![*number] })),
        }
    }
    kinds.into_iter().map(|(_, k)| k).collect()
}
