//! `coli inspect`: what a model directory holds.

use super::args::ReadAs;
use super::failure::Failure;
use super::files;
use crate::convert::{Part, RECEIPT, Receipt};
use crate::formats::layout::STAMP;
use crate::graph::{Graph, expand};
use crate::run::{ModelSource, load};
use crate::weights::{Bound, Index, Problem};
use indicatif::{DecimalBytes, HumanCount};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "\
With --graph, tensors are sorted by their role and every problem that would stop `coli exec` is listed, with exit code 3.
Without it the parts are guessed from names, and codes without a stamp have no format: their sizes fit several shapes.

Examples:
  coli inspect ~/models/glm52-int4
  coli inspect ~/models/GLM-5.2 --graph glm52 --json
  coli inspect DIR --graph glm52 --read-as 'model.layers.3.*=int8'")]
pub struct Args {
    /// Model directory, or a single .safetensors file
    dir: PathBuf,
    /// Graph file, or the name of a built-in one, that the weights are for
    #[arg(long, value_name = "GRAPH")]
    graph: Option<String>,
    #[command(flatten)]
    read_as: ReadAs,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// What is known about a tensor.
struct Known {
    part: Part,
    format: String,
    parameters: Option<u64>,
}

/// Tensors of one part and format.
#[derive(Serialize)]
struct Group {
    part: Part,
    format: String,
    tensors: usize,
    bytes: u64,
    /// None where the format, and with it the number, is not known.
    parameters: Option<u64>,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    model: String,
    files: usize,
    tensors: usize,
    bytes: u64,
    parameters: u64,
    groups: Vec<Group>,
    /// Codes with a sidecar, and how many have a stamp.
    sidecars: usize,
    stamped: usize,
    /// Tensors in the engine layout.
    tiled: usize,
    problems: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let index = Index::open(&args.dir).and_then(|i| i.read_as(&args.read_as.rules));
    let index = index.map_err(crate::run::LoadError::from)?;
    let (mut known, mut problems) = (BTreeMap::new(), vec![]);
    if let Some(name) = &args.graph {
        let config = ModelSource::Dir(args.dir.clone()).config()?;
        let graph = expand(&files::graph(name)?, &config, "main")?;
        problems = by_graph(&graph, &index, &mut known);
    }
    let receipt = receipt(&args.dir, &mut problems);
    let report = report(&args, &index, &known, problems, receipt);
    let mut out = std::io::stdout().lock();
    match args.json {
        true => {
            let text = serde_json::to_string_pretty(&report).map_err(|e| Failure::Model(e.to_string()))?;
            writeln!(out, "{text}")?;
        }
        false => print(&mut out, &report, args.graph.is_some())?,
    }
    match report.problems.len() {
        0 => Ok(()),
        n => Err(Failure::Model(format!("{} has {n} problem{}", report.model, if n == 1 { "" } else { "s" }))),
    }
}

/// Enters every tensor that the graph reads, and returns what is wrong with the others.
fn by_graph(graph: &Graph, index: &Index, known: &mut BTreeMap<String, Known>) -> Vec<String> {
    let problems = match load::bind(graph, index) {
        Ok(bound) => {
            for request in 0..graph.weights.len() {
                enter(graph, request, &bound, request, known);
            }
            return vec![];
        }
        Err(problems) => problems,
    };
    // Some do fit: each is looked up alone.
    let anything = ["*".to_owned()];
    for (number, request) in load::requests(graph).iter().enumerate() {
        if let Ok(bound) = index.bind(std::slice::from_ref(request), &anything) {
            enter(graph, number, &bound, 0, known);
        }
    }
    problems.iter().map(Problem::to_string).collect()
}

/// Enters the tensors of a request of the graph, which is `at` in `bound`. The most careful role counts.
fn enter(graph: &Graph, request: usize, bound: &Bound, at: usize, known: &mut BTreeMap<String, Known>) {
    let part = Part::of(graph.weights[request].need.role);
    for e in 0..bound.count(at) {
        let tensor = bound.expert(at, e);
        let format = tensor.format().name().into_owned();
        let parameters = Some(tensor.rows() as u64 * tensor.cols() as u64);
        let entry = known.entry(tensor.name().to_owned()).or_insert(Known { part, format, parameters });
        entry.part = entry.part.min(part);
    }
}

fn receipt(dir: &Path, problems: &mut Vec<String>) -> Option<Receipt> {
    let text = match std::fs::read(dir.join(RECEIPT)) {
        Ok(text) => text,
        // A directory without one, or a single file.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return None,
        Err(e) => {
            problems.push(format!("{RECEIPT} cannot be read: {e}"));
            return None;
        }
    };
    match serde_json::from_slice::<Receipt>(&text) {
        Ok(receipt) => {
            if !receipt.complete {
                problems.push("the conversion that writes this directory is not complete; run it again".into());
            }
            Some(receipt)
        }
        Err(e) => {
            problems.push(format!("{RECEIPT} is not a receipt: {e}"));
            None
        }
    }
}

fn report(
    args: &Args,
    index: &Index,
    known: &BTreeMap<String, Known>,
    problems: Vec<String>,
    receipt: Option<Receipt>,
) -> Report {
    let mut groups: BTreeMap<(usize, String), Group> = BTreeMap::new();
    let (mut tensors, mut sidecars, mut stamped) = (0, 0, 0);
    for (name, summary) in index.names().filter_map(|name| Some((name, index.summary(name)?))) {
        tensors += 1;
        sidecars += usize::from(index.has_sidecar(name));
        stamped += usize::from(index.has_sidecar(name) && index.stamp(name).is_some());
        let (part, format, parameters) = match known.get(name) {
            Some(k) => (k.part, k.format.clone(), k.parameters),
            None if args.graph.is_some() => (Part::Ignored, summary.format, summary.parameters),
            None => (by_name(name), summary.format, summary.parameters),
        };
        let order = Part::ALL.iter().position(|p| *p == part).unwrap_or(0);
        let group = groups.entry((order, format.clone()));
        let group = group.or_insert(Group { part, format, tensors: 0, bytes: 0, parameters: Some(0) });
        group.tensors += 1;
        group.bytes += summary.bytes;
        group.parameters = group.parameters.zip(parameters).map(|(a, b)| a + b);
    }
    let groups: Vec<Group> = groups.into_values().collect();
    Report {
        schema: 1,
        model: args.dir.display().to_string(),
        files: index.files().count(),
        tensors,
        bytes: index.total_bytes(),
        parameters: groups.iter().filter_map(|g| g.parameters).sum(),
        groups,
        sidecars,
        stamped,
        tiled: index.names().filter(|name| index.is_tiled(name)).count(),
        problems,
        receipt,
    }
}

/// What names usually mean. A graph knows better.
fn by_name(name: &str) -> Part {
    let name = name.strip_suffix(".weight").unwrap_or(name);
    let last = name.rsplit('.').next().unwrap_or(name);
    if name.contains(".experts.") {
        Part::Experts
    } else if last.contains("embed") || last == "head" || last == "lm_head" {
        Part::Io
    } else if last.contains("norm")
        || last == "gate"
        || last.contains("bias")
        || !last.chars().any(|c| c.is_ascii_alphabetic())
    {
        Part::Other
    } else {
        Part::Dense
    }
}

fn print(out: &mut impl Write, report: &Report, graph: bool) -> std::io::Result<()> {
    let s = if report.files == 1 { "" } else { "s" };
    writeln!(
        out,
        "{}: {} file{s}, {} tensors, {} parameters, {}",
        report.model,
        report.files,
        report.tensors,
        HumanCount(report.parameters),
        DecimalBytes(report.bytes)
    )?;
    for g in &report.groups {
        let parameters = g.parameters.map_or("?".into(), |n| HumanCount(n).to_string());
        let bytes = DecimalBytes(g.bytes).to_string();
        writeln!(out, "{:8} {:16} {:7} tensors {parameters:>18} parameters {bytes:>12}", g.part, g.format, g.tensors)?;
    }
    if !graph {
        writeln!(out, "parts are guessed from names: --graph tells them, and every format")?;
    }
    if report.sidecars > 0 {
        writeln!(out, "stamps: {} of {} tensors with a sidecar", report.stamped, report.sidecars)?;
    }
    if report.tiled > 0 {
        writeln!(out, "layout: {} of {} tensors in the engine layout ({STAMP})", report.tiled, report.tensors)?;
    }
    if let Some(r) = &report.receipt {
        let o = &r.options;
        let io = o.io.map_or("left out".into(), |t| t.to_string());
        let worst = r.tensors().max_by(|a, b| a.error.total_cmp(&b.error)).filter(|t| t.error > 0.0);
        let worst = worst.map_or("all exact".into(), |t| format!("worst error {:.2e} in {}", t.error, t.name));
        let done = if r.complete { "complete" } else { "not complete" };
        let shards = if r.shards.len() == 1 { "shard" } else { "shards" };
        writeln!(
            out,
            "receipt: {}, --experts {} --dense {} --io {io}, {} {shards}, {done}, {worst}",
            r.program,
            o.experts,
            o.dense,
            r.shards.len()
        )?;
    }
    for p in &report.problems {
        writeln!(out, "problem: {p}")?;
    }
    Ok(())
}
