//! The graph for Graphviz: nodes by layer, data as edges.

use super::node::Graph;
use std::fmt::Write;

/// `dot` text of the nodes that `keep` accepts; layers are clusters.
pub fn dot(graph: &Graph, keep: impl Fn(Option<u32>) -> bool) -> String {
    let mut out =
        String::from("digraph coli {\n  rankdir=TB; node [shape=box, fontname=\"monospace\", fontsize=10];\n");
    let mut layers: Vec<Option<u32>> = graph.nodes().map(|(_, n)| n.layer).filter(|l| keep(*l)).collect();
    layers.dedup();
    for layer in layers {
        if let Some(l) = layer {
            let _ = writeln!(out, "  subgraph cluster_l{l} {{ label=\"layer {l}\"; color=gray;");
        }
        for (i, n) in graph.nodes().filter(|(_, n)| n.layer == layer) {
            let ty = graph.resource(n.output).ty.to_string();
            let color = if n.state.is_some() { ", style=filled, fillcolor=lightyellow" } else { "" };
            let _ =
                writeln!(out, "    n{} [label=\"{}.{}\\n{}\\n{ty}\"{color}];", i.index(), n.block, n.name, n.op.name());
        }
        if layer.is_some() {
            out.push_str("  }\n");
        }
    }
    for e in graph.dag.edge_indices() {
        let Some((from, to)) = graph.dag.edge_endpoints(e) else { continue };
        if keep(graph.dag[from].layer) && keep(graph.dag[to].layer) {
            let _ = writeln!(out, "  n{} -> n{};", from.index(), to.index());
        }
    }
    out.push_str("}\n");
    out
}
