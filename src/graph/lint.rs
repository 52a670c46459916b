//! What a file says but no model uses: always a slip.

use super::node::{Edge, Node, Resource, State};
use crate::ops::ResourceId;
use crate::spec::{Arch, Diagnostics, Span};
use petgraph::graph::DiGraph;
use std::collections::{BTreeMap, BTreeSet};

/// Names that are assigned and never read in any layer, states never written. Blocks that no program
/// runs are reported only if no other program could: a `Pick` may leave a block out for one config.
pub fn unused(
    arch: &Arch,
    dag: &DiGraph<Node, Edge>,
    resources: &[Resource],
    states: &[State],
    seen_blocks: &BTreeSet<String>,
    logits: Option<(ResourceId, u64)>,
    diags: &mut Diagnostics,
) {
    let mut read = vec![false; resources.len()];
    dag.node_weights().flat_map(|n| &n.inputs).for_each(|id| read[id.0 as usize] = true);
    if let Some((id, _)) = logits {
        read[id.0 as usize] = true;
    }
    let mut by_place: BTreeMap<(usize, usize), (&str, bool)> = BTreeMap::new();
    for node in dag.node_weights() {
        let used = read[node.output.0 as usize] || node.state.is_some();
        let entry = by_place.entry((node.span.start, node.span.end)).or_insert((&node.name, false));
        entry.1 |= used;
    }
    for ((start, end), (name, used)) in by_place {
        if !used {
            let name = name.split('#').next().unwrap_or(name);
            diags.error(start..end, format!("`{name}` is assigned here and never used"));
        }
    }
    mentioned_blocks(arch, seen_blocks, diags);
    // A state may belong to a block that this config does not run.
    for (name, _) in &arch.state {
        let written_somewhere = arch.blocks.iter().flat_map(|b| &b.steps).any(|(_, call)| {
            call.fields
                .iter()
                .any(|(k, v)| k.text == "to" && matches!(v, crate::spec::Item::Word(w) if w.text == name.text))
        });
        if !written_somewhere && !states.iter().any(|s| s.name == name.text) {
            diags.error(name.span.clone(), format!("no operator writes the state `{name}`"));
        }
    }
}

fn mentioned_blocks(arch: &Arch, seen: &BTreeSet<String>, diags: &mut Diagnostics) {
    let mut mentioned: BTreeSet<&str> = seen.iter().map(String::as_str).collect();
    for (_, runs) in &arch.programs {
        mention(runs, &mut mentioned);
    }
    let lonely: Vec<(Span, String)> = arch
        .blocks
        .iter()
        .filter(|b| !mentioned.contains(b.name.text.as_str()))
        .map(|b| (b.name.span.clone(), format!("no program runs the block `{}`", b.name)))
        .collect();
    lonely.into_iter().for_each(|(span, message)| diags.error(span, message));
}

fn mention<'a>(runs: &'a [crate::spec::Run], into: &mut BTreeSet<&'a str>) {
    use crate::spec::Run;
    for run in runs {
        match run {
            Run::Block(w) => {
                into.insert(&w.text);
            }
            Run::Pick { yes, no, .. } => {
                mention(yes, into);
                mention(no, into);
            }
            Run::Repeat(r) => mention(&r.run, into),
        }
    }
}
