//! What plans of the published configurations cost a step: stages, barriers, submits and joins, as a table that is
//! reviewed, and the limits that hold whatever the table says.

use crate::compile::graph;
use crate::support::snapshots;
use coli::formats::Format;
use coli::graph::Graph;
use coli::plan::compile::Instr;
use coli::plan::place::Place;
use coli::plan::{Plan, Role, Shape, compile};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Stages of any layer of GLM-5.2 in a decode step of up to eight rows. A single row needs two less: its parts of
/// attention are merged by their reader, and its experts find themselves.
pub const GLM_STAGES: usize = 12;

/// Seconds that a submit is predicted to take at most before the next level opens a new one.
const SUBMIT: f64 = 0.05;

const SHAPES: [(Role, u32); 3] = [(Role::Decode, 1), (Role::Decode, 8), (Role::Prompt, 128)];

fn plan(graph: &Graph, role: Role, rows: u32) -> Plan {
    let shape = Shape::new(rows, 4096);
    compile(graph, &|_| Some(Format::Int4Row), &[], role, shape).unwrap_or_else(|e| panic!("{e}"))
}

/// Stages (dependent levels of device passes), barriers, submits and joins that belong to a layer.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    stages: usize,
    barriers: usize,
    submits: usize,
    joins: usize,
}

fn cost(p: &Plan, layer: u32) -> Cost {
    let of_layer = |pass: usize| p.lowered.passes[pass].layer == Some(layer);
    let device = (0..p.lowered.passes.len()).filter(|i| of_layer(*i) && p.lowered.passes[*i].on_gpu());
    let stages = device.map(|i| p.schedule.rank[i]).collect::<BTreeSet<_>>().len();
    let mut cost = Cost { stages, barriers: 0, submits: 0, joins: 0 };
    let (mut barriers, mut begun) = (0, None);
    for instr in &p.instrs {
        match *instr {
            Instr::Barrier(_) => barriers += 1,
            Instr::Begin(b) => begun = Some(b),
            // A barrier and a submit belong to the pass that they stand before.
            Instr::Pass(pass) => {
                let (waited, batch) = (std::mem::take(&mut barriers), begun.take());
                if of_layer(pass) {
                    cost.barriers += waited;
                    cost.submits += usize::from(batch.is_some());
                    cost.joins += usize::from(batch.is_some_and(|b| p.batches[b].after_cpu.is_some()));
                }
            }
            _ => {}
        }
    }
    cost
}

/// Operators without a kernel: how many of their nodes run on the CPU, and why.
fn joins(g: &Graph, p: &Plan) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for ((_, node), placed) in g.nodes().zip(&p.placed).filter(|(_, placed)| placed.place == Place::Cpu) {
        let why = placed.why.as_deref().expect("a node on the CPU has a reason");
        // Reasons that name a neighbour in the same layer would differ in every layer.
        let own = node.layer.map_or(String::new(), |l| format!("l{l}."));
        let why = if own.is_empty() { why.to_string() } else { why.replace(&own, "") };
        *reasons.entry(format!("{}.{}: {why}", node.block, node.name)).or_default() += 1;
    }
    reasons
}

fn table(g: &Graph) -> String {
    let mut out = String::new();
    for (role, rows) in SHAPES {
        let p = plan(g, role, rows);
        let f = p.figures();
        let _ = writeln!(
            out,
            "{role:?} of up to {rows} rows: {} stages, {} barriers, {} submits, {} joins",
            f.stages, f.barriers, f.submits, f.joins
        );
        for kind in &g.kinds {
            let mut costs: Vec<(Cost, Vec<u32>)> = vec![];
            for layer in &kind.layers {
                let cost = cost(&p, *layer);
                match costs.iter_mut().find(|c| c.0 == cost) {
                    Some((_, layers)) => layers.push(*layer),
                    None => costs.push((cost, vec![*layer])),
                }
            }
            for (c, layers) in costs {
                let blocks = kind.blocks.join(" + ");
                let Cost { stages, barriers, submits, joins } = c;
                let _ = writeln!(
                    out,
                    "  {:2} x {blocks:24} {stages:2} stages, {barriers:2} barriers, {submits} submits, {joins} joins; layer {}",
                    layers.len(),
                    layers[0]
                );
            }
        }
        for (reason, n) in joins(g, &p) {
            let _ = writeln!(out, "  {n:4} nodes on the CPU: {reason}");
        }
    }
    out
}

/// What holds for any plan.
fn limits(name: &str, p: &Plan) {
    let f = p.figures();
    assert!(f.barriers <= f.stages + f.submits, "{name}: one barrier a level, and one to the host a submit: {f:?}");
    let segments = p.batches.iter().map(|b| b.segment).collect::<BTreeSet<_>>().len();
    let full = p.batches.iter().filter(|b| b.predicted > SUBMIT).count();
    // A new one only where the host takes over or 50 ms are full.
    assert!(f.submits >= segments && f.submits <= segments + full, "{name}: {segments} segments, {full} full: {f:?}");
    assert!(f.joins < f.submits || f.joins == f.submits && f.cpu_nodes > 0, "{name}: {f:?}");
}

#[test]
fn stages_of_published_configurations() {
    for (file, config) in [("glm52", "glm52"), ("kimi_k3", "kimi_k3"), ("deepseek_v4_flash", "deepseek_v4_flash")] {
        let g = graph(file, &format!("tests/configs/{config}.json"));
        for (role, rows) in SHAPES {
            limits(&format!("{config} {role:?} {rows}"), &plan(&g, role, rows));
        }
        snapshots(|| insta::assert_snapshot!(format!("stages-{config}"), table(&g)));
    }
}

#[test]
fn glm_has_no_joins_and_few_stages() {
    let g = graph("glm52", "tests/configs/glm52.json");
    for (role, rows) in SHAPES {
        let p = plan(&g, role, rows);
        assert_eq!((p.figures().joins, p.figures().cpu_nodes), (0, 0), "{role:?} {rows}");
        let predicted: f64 = p.batches.iter().map(|b| b.predicted).sum();
        // One submit, and another for each 50 ms that the one before has filled.
        assert!(p.batches.len() <= 1 + (predicted / SUBMIT) as usize, "{role:?} {rows}: {predicted} s");
        if role == Role::Decode {
            for layer in 0..g.layers {
                let stages = cost(&p, layer).stages;
                assert!(
                    stages <= GLM_STAGES - 2 * usize::from(rows == 1),
                    "layer {layer} with {rows} rows: {stages} stages"
                );
            }
        }
    }
}
