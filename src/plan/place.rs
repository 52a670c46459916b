//! Where each node runs: on the GPU if a kernel exists for it, else on the CPU, with the reason.

use super::lower::SEGMENTS;
use super::pass::Variant;
use crate::formats::{BlockScale, Format, rotation};
use crate::graph::{Graph, Node, WeightId};
use crate::names::glob;
use crate::ops::{Op, RowDim, Type};
use petgraph::graph::NodeIndex;
use std::collections::BTreeMap;

/// Where a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Gpu,
    Cpu,
}

/// A user's rule: nodes whose path matches the pattern run there. Later rules win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub pattern: String,
    pub place: Place,
}

/// A node's place, and why if it is not the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub place: Place,
    pub why: Option<String>,
}

/// The format of a weight; None if its experts are stored in several.
pub type Formats<'a> = &'a dyn Fn(WeightId) -> Option<Format>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    #[error("--place {pattern}=gpu: {node} cannot run on the GPU: {why}")]
    NoKernel { pattern: String, node: String, why: String },
    #[error("--place {pattern}: no node has such a path; nodes are named like {example}")]
    NoMatch { pattern: String, example: String },
}

/// The shader variant for a stored format.
pub fn variant(format: Format) -> Option<Variant> {
    Some(match format {
        Format::F32 => Variant::F32,
        Format::Bf16 => Variant::Bf16,
        Format::F16 => Variant::F16,
        Format::Int8Row => Variant::I8,
        Format::Int4Row => Variant::I4,
        Format::Int4Grouped { .. } => Variant::I4g,
        Format::Int2Row => Variant::I2,
        Format::Int3G64 => Variant::I3,
        Format::Mxfp4 => Variant::Mxfp4,
        Format::Fp8Block { scale: BlockScale::F32 } => Variant::Fp8,
        Format::Fp8Block { scale: BlockScale::Ue8m0 } => Variant::Fp8e,
        Format::E8 => Variant::E8,
        Format::I32 | Format::I64 => return None,
    })
}

/// Places every node: where a kernel exists, then as the graph file hints, then as the user rules.
pub fn place(graph: &Graph, formats: Formats, rules: &[Rule]) -> Result<Vec<Placed>, PlaceError> {
    let missing: Vec<Option<String>> = graph.nodes().map(|(_, n)| missing(graph, n, formats)).collect();
    let mut placed: Vec<Placed> = missing.iter().map(|why| by_kernel(why.clone())).collect();
    for (pattern, place) in &graph.place {
        for i in matching(graph, pattern) {
            match place.as_str() {
                "cpu" => placed[i] = on_cpu("the graph file hints at the CPU".into()),
                "gpu" => placed[i] = by_kernel(missing[i].clone()),
                // `stream` is about where weights lie, not about where nodes run.
                _ => {}
            }
        }
    }
    let mut wanted: Vec<Option<&str>> = vec![None; placed.len()];
    for Rule { pattern, place } in rules {
        let nodes = matching(graph, pattern);
        if nodes.is_empty() {
            let example = graph.nodes().last().map_or_else(String::new, |(_, n)| n.path());
            return Err(PlaceError::NoMatch { pattern: pattern.clone(), example });
        }
        for i in nodes {
            wanted[i] = (*place == Place::Gpu).then_some(pattern);
            placed[i] = match (place, &missing[i]) {
                (Place::Cpu, _) => on_cpu(format!("--place {pattern}=cpu")),
                (Place::Gpu, None) => by_kernel(None),
                (Place::Gpu, Some(why)) => {
                    let node = graph.dag[NodeIndex::new(i)].path();
                    return Err(PlaceError::NoKernel { pattern: pattern.clone(), node, why: why.clone() });
                }
            };
        }
    }
    together(graph, &mut placed);
    let moved = |(i, p): (usize, &Placed)| match (wanted[i], &p.why) {
        (Some(pattern), Some(why)) => {
            let (pattern, node) = (pattern.to_string(), graph.dag[NodeIndex::new(i)].path());
            Some(PlaceError::NoKernel { pattern, node, why: why.clone() })
        }
        _ => None,
    };
    match placed.iter().enumerate().find_map(moved) {
        Some(refused) => Err(refused),
        None => Ok(placed),
    }
}

/// Numbers of the nodes whose path matches.
fn matching(graph: &Graph, pattern: &str) -> Vec<usize> {
    graph.nodes().filter(|(_, n)| glob::matches(pattern, &n.path())).map(|(i, _)| i.index()).collect()
}

fn on_cpu(why: String) -> Placed {
    Placed { place: Place::Cpu, why: Some(why) }
}

/// The GPU, unless something is missing for it.
fn by_kernel(missing: Option<String>) -> Placed {
    missing.map_or(Placed { place: Place::Gpu, why: None }, on_cpu)
}

/// Nodes that share a state, a list of scores or a stack stay together: those live in one memory only.
fn together(graph: &Graph, placed: &mut [Placed]) {
    loop {
        let mut moved = false;
        for group in groups(graph) {
            let Some(cause) = group.iter().find(|i| placed[i.index()].place == Place::Cpu) else { continue };
            let why = format!("it shares memory with {}, which runs on the CPU", graph.dag[*cause].path());
            for i in group.iter().filter(|i| placed[i.index()].place == Place::Gpu).copied().collect::<Vec<_>>() {
                placed[i.index()] = on_cpu(why.clone());
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}

fn groups(graph: &Graph) -> Vec<Vec<NodeIndex>> {
    let mut by_state: BTreeMap<u32, Vec<NodeIndex>> = BTreeMap::new();
    let mut out = vec![];
    for (i, node) in graph.nodes() {
        let ty = &graph.resource(node.output).ty;
        if let Some(s) = node.state {
            by_state.entry(s.0).or_default().push(i);
        }
        let shared = matches!(ty, Type::Cache { .. } | Type::Scores { .. });
        if shared {
            let mut group = vec![i];
            group.extend(graph.dag.neighbors(i));
            out.push(group);
        }
    }
    out.extend(by_state.into_values());
    out
}

/// Why no kernel can run a node; None if one can.
fn missing(graph: &Graph, node: &Node, formats: Formats) -> Option<String> {
    if let Type::Tensor { rows: RowDim::Emitted(_), .. } = graph.resource(node.output).ty {
        return Some("kernels do not work on rows emitted by windows yet".into());
    }
    let no = |why: &str| Some(format!("no GPU kernel for {}{why}", node.op.name()));
    if let Some(why) = unfit(&node.op) {
        return no(why);
    }
    let matrices: &[usize] = match &node.op {
        Op::EmbedRow { .. } | Op::Linear { .. } | Op::LmHead { .. } | Op::RouterLogits { .. } => &[0],
        Op::MlaAbsorbQ { .. } | Op::MlaExpandV { .. } => &[0],
        Op::MoeExperts { .. } => &[0, 1, 2],
        Op::RmsNorm { .. } | Op::LayerNorm { .. } | Op::L2Norm { .. } | Op::Rope { .. } => &[],
        Op::Add | Op::MulSigmoid | Op::Sigmoid | Op::Glu(_) => &[],
        Op::Concat { .. } if heads(graph, node) => return no(" of heads"),
        Op::Slice { .. } | Op::Concat { .. } | Op::View => &[],
        Op::CacheAppend { .. } | Op::RingAppend { .. } | Op::IndexScore { .. } | Op::TopkSelect { .. } => &[],
        Op::RouterTopk(r) if r.table => return no(" with a table of experts"),
        Op::RouterTopk(r) if r.experts > 1024 => return no(" with more than 1024 experts"),
        Op::RouterTopk(_) => &[],
        Op::AttnLatent { .. } => &[],
        Op::Attn { segments, .. } if segments.len() > SEGMENTS => {
            return no(&format!(" over more than {SEGMENTS} segments"));
        }
        Op::Attn { .. } => &[],
        _ => return no(""),
    };
    for at in matrices {
        let id = node.weights[*at];
        let Some(format) = formats(id) else { return no(" with experts in different formats") };
        if variant(format).is_none() {
            return no(&format!(" with {} weights", format.name()));
        }
        let cols = graph.weight(id).need.shape.last().copied().unwrap_or(1);
        if let Format::Int4Grouped { group } = format
            && (group % 8 != 0 || cols * u64::from(group) > u64::from(u32::MAX))
        {
            return no(&format!(" with groups of {group} columns"));
        }
        let whole = whole_columns(format);
        if cols % whole != 0 {
            return no(&format!(" with {cols} columns of {}: they must be a multiple of {whole}", format.name()));
        }
        if format == Format::E8 && rotation::blocks(cols as usize).any(|n| n > ROTATED) {
            return no(&format!(" with {cols} columns of {}: its rotation is too long", format.name()));
        }
    }
    if matches!(node.op, Op::MoeExperts { .. }) && formats(node.weights[0]) != formats(node.weights[1]) {
        return no(" with gate and up in different formats");
    }
    None
}

/// Columns that kernels read together: eight, or a whole block of the format.
fn whole_columns(format: Format) -> u64 {
    match format {
        Format::Int3G64 => 64,
        Format::Mxfp4 => 32,
        Format::E8 => 256,
        _ => 8,
    }
}

/// Longest block of a rotation that `rotate.comp` has shared memory for.
const ROTATED: usize = 4096;

/// Widths that a kernel's loads or its shared memory are not made for.
fn unfit(op: &Op) -> Option<&'static str> {
    let fours = |widths: &[usize]| widths.iter().all(|w| w % 4 == 0);
    let fits = match *op {
        Op::MoeExperts { experts, .. } if experts > 1024 => return Some(" with more than 1024 experts"),
        Op::MoeExperts { inp, ff, .. } if inp % 8 != 0 || ff % 8 != 0 => {
            return Some(" with widths that are no multiples of 8");
        }
        Op::Attn { dim, v_dim, .. } => (fours(&[dim, v_dim]), dim <= 576 && v_dim <= 1024),
        Op::AttnLatent { rank, rope, .. } => (fours(&[rank, rope]), rank + rope <= 576),
        Op::IndexScore { dim, .. } => (fours(&[dim]), dim <= 256),
        // As all that kernels read from it: a cache of f16 is written in words of two.
        Op::CacheAppend { width } | Op::RingAppend { width } => (fours(&[width]), true),
        Op::MlaAbsorbQ { nope, v_dim, .. } | Op::MlaExpandV { nope, v_dim, .. } => (fours(&[nope, v_dim]), true),
        _ => (true, true),
    };
    match fits {
        (false, _) => Some(" with widths that are no multiples of 4"),
        (_, false) => Some(" with heads as wide as this"),
        _ => None,
    }
}

/// Whether a node's result has more than one dimension behind its rows.
fn heads(graph: &Graph, node: &Node) -> bool {
    matches!(&graph.resource(node.output).ty, Type::Tensor { dims, .. } if dims.len() > 1)
}
