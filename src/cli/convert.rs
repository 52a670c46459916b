//! `coli convert`: a model's weights in other formats.

use super::args::ReadAs;
use super::failure::Failure;
use super::files;
use super::progress::Progress;
use crate::convert::{self, Options, Outcome, Part, Phase, Plan, Receipt, Source, Target, TensorRecord, Watch};
use crate::run::{Model, ModelSource};
use indicatif::{DecimalBytes, ProgressBar};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

#[derive(clap::Args)]
#[command(after_help = "\
FORMAT is one of keep (the stored bytes), f32, f16, bf16, int8, int4 (a scale per row), int4-gN (a scale per N columns),
int3-g64, int2, e8, mxfp4, fp8 (128x128 blocks, f32 scales), fp8-ue8m0 (power-of-two scales).

What becomes of a weight follows from its role in the graph:
  experts  gate, up and down of mixture layers          --experts; e8 here only: rows are rotated before encoding
  dense    attention, shared experts, dense layers      --dense
  io       embedding and output head                    --io
  other    routers, norms, biases, sinks, tables        as they are
  ignored  what the graph leaves out (draft layers)     as they are, or dropped with --drop-ignored
A tensor with two roles keeps to the lower line. One that has its format already is copied.

DST is made, or taken if it is empty or holds this conversion: after a kill the same command goes on behind the last
finished shard, checked by its SHA-256. config.json, tokenizer and chat files are copied last. coli-convert.json is
the receipt: hashes, options, and the relative error (Frobenius) of every tensor.

Memory: 128 rows per thread, as f32 and as the bytes made from them (8 MB of f32 a thread where rows have 16384
columns), besides the plan. Sources are mapped and may be dropped by the system at any time.

Examples:
  coli convert glm52 ~/models/GLM-5.2 ~/models/glm52-int4 --experts int4-g64 --dense int8
  coli convert glm52 ~/models/GLM-5.2 ~/models/glm52-e8 --experts e8 --dense int8 --report worst.txt
  coli convert qwen3_moe DIR OUT --experts mxfp4 --dense keep --threads 4
  coli exec glm52 --model ~/models/glm52-int4 --prompt 'Hello'")]
pub struct Args {
    /// Graph file, or the name of a built-in one
    graph: String,
    /// Model directory: Hugging Face layout or a container
    src: PathBuf,
    /// Directory to write
    dst: PathBuf,
    /// Format of the experts' matrices
    #[arg(long, value_name = "FORMAT")]
    experts: Target,
    /// Format of dense matrices
    #[arg(long, value_name = "FORMAT")]
    dense: Target,
    /// Format of embedding and output head; left out: int8 if --dense is quantised and they are not yet, else keep
    #[arg(long, value_name = "FORMAT")]
    io: Option<Target>,
    /// Leave out tensors that the graph ignores
    #[arg(long)]
    drop_ignored: bool,
    /// Largest shard in bytes, with k, m or g; a kill costs at most one
    #[arg(long, value_name = "BYTES", default_value = "4g", value_parser = parse_bytes)]
    shard_size: u64,
    /// Threads; all cores if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Write every tensor's formats and error, worst first; - for stdout
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    read_as: ReadAs,
}

/// `64k`, `4g`: bytes with an optional binary suffix.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let shift = match text.chars().last() {
        Some('k' | 'K') => 10,
        Some('m' | 'M') => 20,
        Some('g' | 'G') => 30,
        _ => 0,
    };
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.filter(|n| *n > 0).ok_or_else(|| format!("`{text}` is not a number of bytes such as 512m or 4g"))
}

/// Bars by phase.
struct Bars(Mutex<Option<ProgressBar>>);

impl Watch for Bars {
    fn begin(&self, phase: Phase, bytes: u64) {
        let what = match phase {
            Phase::Hash => "hash source",
            Phase::Verify => "verify shards",
            Phase::Write => "write",
        };
        let mut bar = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = bar.replace(Progress::new().bytes(bytes, what)) {
            before.finish_and_clear();
        }
    }

    fn done(&self, bytes: u64) {
        if let Some(bar) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            bar.inc(bytes);
        }
    }
}

pub fn run(args: Args) -> Result<(), Failure> {
    if !args.src.is_dir() {
        return Err(Failure::Model(format!("{} is no directory; SRC is a model's directory", args.src.display())));
    }
    let source = ModelSource::Dir(args.src.clone());
    let model = Model::load_as(&files::graph(&args.graph)?, source, &args.read_as.rules)?;
    let options = Options {
        experts: args.experts,
        dense: args.dense,
        io: args.io,
        shard_bytes: args.shard_size,
        drop_ignored: args.drop_ignored,
    };
    let plan = Plan::new(&model.graph, &model.weights, &model.index, options)?;
    let threads = args.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, Into::into), usize::from);
    let bars = Bars(Mutex::new(None));
    let from = Source { dir: &args.src, graph: &model.graph };
    let done = convert::run(&plan, from, &args.dst, threads, &bars);
    if let Some(bar) = &*bars.0.lock().unwrap_or_else(PoisonError::into_inner) {
        bar.finish_and_clear();
    }
    let Outcome { receipt, kept, damaged } = done?;
    if kept > 0 {
        eprintln!("{kept} of {} shards were there already", receipt.shards.len());
    }
    for file in damaged {
        eprintln!("{file} was not what the receipt says, and was made again");
    }
    if let Some(path) = &args.report {
        let text = report(&receipt);
        if path.as_os_str() == "-" {
            std::io::stdout().write_all(text.as_bytes())?;
        } else {
            let failed = |source| Failure::File { path: path.display().to_string(), source };
            std::fs::write(path, text).map_err(failed)?;
        }
    }
    let text = summary(&receipt, &args.dst.display().to_string());
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Every tensor, worst first; of equals the first in the files first.
fn report(receipt: &Receipt) -> String {
    let mut tensors: Vec<&TensorRecord> = receipt.tensors().collect();
    tensors.sort_by(|a, b| b.error.total_cmp(&a.error));
    let mut text = format!("{:9}  {:8} {:15} {:15} {:>12}  tensor\n", "error", "part", "from", "to", "bytes");
    for t in tensors {
        let _ = writeln!(text, "{:9.3e}  {:8} {:15} {:15} {:>12}  {}", t.error, t.part, t.from, t.to, t.bytes, t.name);
    }
    text
}

/// Tensors that went the same way.
#[derive(Default)]
struct Way {
    tensors: usize,
    before: u64,
    after: u64,
    worst: f64,
}

/// A line a way, and one for all.
fn summary(receipt: &Receipt, dst: &str) -> String {
    let mut ways: BTreeMap<(usize, &str, &str), Way> = BTreeMap::new();
    let (mut before, mut after) = (0, 0);
    for t in receipt.tensors() {
        let order = Part::ALL.iter().position(|p| *p == t.part).unwrap_or(0);
        let way = ways.entry((order, &t.from, &t.to)).or_default();
        way.tensors += 1;
        way.before += t.bytes_before;
        way.after += t.bytes;
        way.worst = way.worst.max(t.error);
        before += t.bytes_before;
        after += t.bytes;
    }
    let mut text = String::new();
    for ((part, from, to), way) in &ways {
        let sizes = format!("{} -> {}", DecimalBytes(way.before), DecimalBytes(way.after));
        let formats = if from == to { (*from).to_owned() } else { format!("{from} -> {to}") };
        let part = Part::ALL[*part];
        let _ = writeln!(
            text,
            "{part:8} {formats:32} {:6} tensors  {sizes:24}  worst error {:.2e}",
            way.tensors, way.worst
        );
    }
    let share = if before == 0 { 100.0 } else { 100.0 * after as f64 / before as f64 };
    let worst = receipt.tensors().max_by(|a, b| a.error.total_cmp(&b.error)).filter(|t| t.error > 0.0);
    let worst = worst.map_or("exact".to_owned(), |t| format!("worst error {:.2e} in {}", t.error, t.name));
    let shards = receipt.shards.len();
    let _ = writeln!(
        text,
        "{dst}: {shards} shard{}, {before} -> {after} bytes of weights ({share:.1} %), {worst}",
        if shards == 1 { "" } else { "s" }
    );
    text
}
