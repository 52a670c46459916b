//! A compiled plan as Graphviz text.

use super::compile::Plan;
use super::pass::Pass;
use super::schedule::dependencies;
use crate::graph::Graph;
use std::collections::BTreeMap;
use std::fmt::Write;

impl Plan {
    /// Passes as boxes, one row a stage, and who waits for whom. `keep` chooses by layer; dependencies on passes that
    /// are left out are not drawn.
    pub fn dot(&self, graph: &Graph, keep: impl Fn(Option<u32>) -> bool) -> String {
        let passes = &self.lowered.passes;
        let kept = |i: usize| keep(passes[i].layer);
        let mut out =
            format!("digraph \"{} {:?}\" {{\n  node [shape=box, fontname=monospace];\n", graph.program, self.role);
        let mut stages: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for i in (0..passes.len()).filter(|i| kept(*i)) {
            stages.entry(self.schedule.rank[i]).or_default().push(i);
            let style = if passes[i].on_gpu() { "" } else { ", style=filled, fillcolor=lightyellow" };
            let _ = writeln!(out, "  p{i} [label=\"{}\"{style}];", label(&passes[i]));
        }
        for stage in stages.values() {
            let names: Vec<String> = stage.iter().map(|i| format!("p{i}")).collect();
            let _ = writeln!(out, "  {{ rank=same; {} }}", names.join("; "));
        }
        for (i, deps) in dependencies(graph, passes).iter().enumerate().filter(|(i, _)| kept(*i)) {
            for d in deps.iter().filter(|d| kept(**d)) {
                let _ = writeln!(out, "  p{d} -> p{i};");
            }
        }
        out + "}\n"
    }
}

fn label(pass: &Pass) -> String {
    format!("{}\\n{}", pass.name, pass.kind())
}
