//! `coli bench decode` and `coli bench prefill`: layers of real size with made-up weights, pass by pass.

use super::args::KvArgs;
use super::device;
use super::failure::Failure;
use super::files;
use crate::formats::Format;
use crate::graph::{Graph, Role, WeightId, expand};
use crate::ops::Kv;
use crate::ops::types::WeightRole;
use crate::plan::Shape;
use crate::plan::place::Rule;
use crate::run::vulkan::bench::machine::{READ, read_gbps};
use crate::run::vulkan::bench::{Bench, BenchError, PassTime, Random, StepTime, WARM_UP};
use crate::run::vulkan::{DECODE_ROWS, matrices, tuning};
use crate::spec::Config;
use crate::vk;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = "\
Weights are random, so no model is needed: only its config.json. Each pass is timed by the device's clock; `share`
is the bandwidth of the weights and caches it reads over that of a kernel that only reads, in the same run.

Examples:
  coli bench decode graphs/glm52.ron --config tests/configs/glm52.json --layers 5 --format int4 --ctx 1024
  coli bench prefill graphs/glm52.ron --config tests/configs/glm52.json --layers 4 --format int4 --rows 512")]
pub struct Args {
    /// Graph file, or the name of a built-in one
    graph: String,
    /// config.json of the model
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only the first N layers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    layers: u32,
    /// Format of all matrices; e8 is for experts, beside int8
    #[arg(long, value_name = "F", default_value = "int4", value_parser = Format::spelled)]
    format: Format,
    /// Positions before the step
    #[arg(long, value_name = "T", default_value_t = 1024)]
    ctx: u32,
    #[command(flatten)]
    caches: KvArgs,
    /// Rows of the step: 1 for decode, 512 for prefill if left out
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=512))]
    rows: Option<u32>,
    /// Steps that are timed; the one of median length is shown
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Number of the Vulkan device, as `coli devices` prints it; the best if left out
    #[arg(long, value_name = "N")]
    device: Option<usize>,
    /// Print every pass of these layers, not only sums by kernel
    #[arg(long, value_name = "L,L,...", value_delimiter = ',')]
    passes: Vec<u32>,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// What a weight is stored in, if matrices are in `format`: small ones and those read by row keep a plainer one.
pub fn stored(graph: &Graph, w: WeightId, format: Format) -> Format {
    let need = &graph.weight(w).need;
    match need.role {
        WeightRole::Expert => format,
        WeightRole::Router | WeightRole::Vector | WeightRole::Table => Format::F32,
        _ if format == Format::E8 => Format::Int8Row,
        _ => format,
    }
}

impl From<BenchError> for Failure {
    fn from(e: BenchError) -> Self {
        match e {
            BenchError::Vulkan(e) => Failure::from(crate::run::RunError::from(e)),
            other => Failure::Usage(other.to_string()),
        }
    }
}

pub fn decode(args: Args) -> Result<(), Failure> {
    run(&args, Role::Decode, args.rows.unwrap_or(1))
}

pub fn prefill(args: Args) -> Result<(), Failure> {
    run(&args, Role::Prompt, args.rows.unwrap_or(512))
}

/// The graph of the first layers.
fn graph(args: &Args) -> Result<Graph, Failure> {
    let name = args.config.display().to_string();
    let bytes = std::fs::read(&args.config).map_err(|source| Failure::File { path: name.clone(), source })?;
    let mut config: Value = serde_json::from_slice(&bytes).map_err(|e| Failure::Model(format!("{name}: {e}")))?;
    match config.get_mut("num_hidden_layers") {
        Some(n) if n.as_u64().is_some_and(|n| n >= u64::from(args.layers)) => *n = args.layers.into(),
        Some(n) => return Err(Failure::Usage(format!("--layers {}: {name} has num_hidden_layers {n}", args.layers))),
        None => return Err(Failure::Usage(format!("--layers: {name} has no num_hidden_layers"))),
    }
    let config = Config::parse(&name, config.to_string().as_bytes()).map_err(|e| Failure::Model(e.to_string()))?;
    Ok(expand(&files::graph(&args.graph)?, &config, "main")?)
}

/// A step to measure.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub role: Role,
    pub layers: u32,
    pub format: Format,
    pub rows: u32,
    /// Positions before the step.
    pub ctx: u32,
    /// What caches hold.
    pub kv: Kv,
    /// Steps that are timed, and how long steps run before them.
    pub steps: u32,
    pub warm_up: Duration,
}

fn run(args: &Args, role: Role, rows: u32) -> Result<(), Failure> {
    if role == Role::Decode && rows > DECODE_ROWS {
        return Err(Failure::Usage(format!("--rows {rows}: a decode step has at most {DECODE_ROWS}")));
    }
    let graph = Arc::new(graph(args)?);
    let device = device::open(args.device)?;
    let read = read_gbps(&device, READ)?;
    let (layers, format, ctx, kv, steps) = (args.layers, args.format, args.ctx, args.caches.kv, args.steps);
    let case = Case { role, layers, format, rows, ctx, kv, steps, warm_up: WARM_UP };
    let measured = measure(&device, &graph, read, case)?;
    let text = if args.json { measured.document().to_string() + "\n" } else { measured.table(&args.passes) };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Times steps of a graph with made-up weights, first as they are, then pass by pass; those of median length count.
pub fn measure(device: &vk::Device, graph: &Arc<Graph>, read: f64, case: Case) -> Result<Measured, Failure> {
    let format = |w: WeightId| stored(graph, w, case.format);
    let random = Random::new(graph, &format)?;
    let (kv, matrices, tuning) = (case.kv, matrices(device), tuning(device));
    let shape = Shape { kv, matrices, tuning, ..Shape::new(case.rows, case.ctx + case.rows) };
    let rules: [Rule; 0] = [];
    let timed = |timed: bool| -> Result<(StepTime, [usize; 3]), Failure> {
        let mut bench = Bench::new(device.clone(), graph, &random, &rules, (case.role, shape), timed)?;
        bench.warm_up(case.rows, case.ctx, case.warm_up)?;
        let mut steps = (0..case.steps).map(|_| bench.step(case.rows, case.ctx)).collect::<Result<Vec<_>, _>>()?;
        let length = |s: &StepTime| if timed { span(&s.passes) } else { s.wall };
        steps.sort_by(|a, b| length(a).total_cmp(&length(b)));
        let figures = bench.plan().figures();
        Ok((steps.swap_remove(steps.len() / 2), [figures.stages, figures.barriers, figures.submits]))
    };
    let (untimed, _) = timed(false)?;
    let (step, figures) = timed(true)?;
    Ok(Measured { case, read, wall: untimed.wall, figures, name: device.capabilities().name.clone(), step })
}

/// Microseconds from the start of the first pass to the end of the last.
fn span(passes: &[PassTime]) -> f64 {
    passes.iter().map(|p| p.start + p.us).fold(0.0, f64::max)
}

/// A step that was measured.
pub struct Measured {
    case: Case,
    read: f64,
    wall: f64,
    /// Stages, barriers, submits.
    figures: [usize; 3],
    name: String,
    step: StepTime,
}

/// Microseconds of passes that overlap counted once.
fn busy(passes: &[PassTime]) -> f64 {
    let (mut busy, mut until) = (0.0, f64::NEG_INFINITY);
    for p in passes {
        busy += (p.start + p.us - p.start.max(until)).max(0.0);
        until = f64::max(until, p.start + p.us);
    }
    busy
}

impl Measured {
    /// A pass's bandwidth as a share of reading's.
    fn share(&self, bytes: u64, us: f64) -> f64 {
        bytes as f64 / us.max(1e-3) / 1e3 / self.read
    }

    /// Microseconds of each layer, from the start of its first pass to the start of the next layer's.
    fn layers(&self) -> BTreeMap<u32, f64> {
        let passes = &self.step.passes;
        let mut starts: BTreeMap<u32, f64> = BTreeMap::new();
        for p in passes {
            if let Some(l) = p.layer {
                let start = starts.entry(l).or_insert(p.start);
                *start = start.min(p.start);
            }
        }
        let last = |l: u32| passes.iter().filter(|p| p.layer == Some(l)).map(|p| p.start + p.us).fold(0.0, f64::max);
        let next = |l: u32| starts.get(&(l + 1)).copied().unwrap_or_else(|| last(l));
        starts.iter().map(|(l, start)| (*l, next(*l) - start)).collect()
    }

    /// As a person reads it, with every pass of some layers.
    fn table(&self, of_layers: &[u32]) -> String {
        let (passes, whole) = (&self.step.passes, span(&self.step.passes));
        let [stages, barriers, submits] = self.figures;
        let mut out = format!(
            "{}: reads {:.0} GB/s\n{} layers, {} rows behind {} positions in {}, {}\n{stages} stages, {barriers} barriers, {submits} submits\n",
            self.name,
            self.read,
            self.case.layers,
            self.case.rows,
            self.case.ctx,
            self.case.kv.name(),
            self.case.format.name(),
        );
        out += &format!(
            "step {:.1} us on the host, {whole:.1} us with every pass timed, of which {:.1} % bubbles\n",
            self.wall,
            100.0 * (1.0 - busy(passes) / whole.max(1e-3))
        );
        let layers: Vec<String> = self.layers().iter().map(|(l, us)| format!("{l}: {us:.1}")).collect();
        out += &format!("us by layer: {}\n", layers.join(", "));
        let mut kinds: BTreeMap<&str, (usize, f64, u64)> = BTreeMap::new();
        for p in passes {
            let kind = kinds.entry(&p.kind).or_default();
            *kind = (kind.0 + 1, kind.1 + p.us, kind.2 + p.bytes);
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
        for (kind, (n, us, bytes)) in kinds {
            let share = 100.0 * self.share(bytes, us);
            out += &format!("  {us:9.1} us  {n:4} x {kind:20} {:9.2} MB  {share:5.1} %\n", bytes as f64 / 1e6);
        }
        for p in passes.iter().filter(|p| p.layer.is_some_and(|l| of_layers.contains(&l))) {
            let share = 100.0 * self.share(p.bytes, p.us);
            out += &format!("  {:9.1} +{:8.1} us  {share:5.1} %  {} ({})\n", p.start, p.us, p.name, p.kind);
        }
        out
    }

    /// As JSON.
    pub fn document(&self) -> Value {
        let passes = &self.step.passes;
        let pass = |p: &PassTime| {
            json!({"name": p.name, "kernel": p.kind, "layer": p.layer, "start_us": p.start, "us": p.us,
                "bytes": p.bytes, "share": self.share(p.bytes, p.us)})
        };
        let [stages, barriers, submits] = self.figures;
        json!({
            "schema": 1, "device": self.name, "read_gbps": self.read, "layers": self.case.layers, "rows": self.case.rows,
            "ctx": self.case.ctx, "kv": self.case.kv.name(), "format": self.case.format.name(), "stages": stages, "barriers": barriers,
            "submits": submits, "host_waits": 1, "step_us": self.wall, "timed_us": span(passes),
            "bubbles": 1.0 - busy(passes) / span(passes).max(1e-3),
            "layer_us": self.layers(), "passes": passes.iter().map(pass).collect::<Vec<_>>(),
        })
    }
}
