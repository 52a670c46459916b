//! `coli plan`: what a graph costs, and what is compiled from it.

use super::args::{KvArgs, ShapedArgs};
use super::failure::Failure;
use super::files;
use crate::formats::Format;
use crate::graph::{Graph, Role, WeightId};
use crate::plan::compile::Figures;
use crate::plan::place::Rule;
use crate::plan::{self, Plan, Shape, Summary, summarize};
use crate::run::Model;
use indicatif::DecimalBytes;
use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  coli plan graphs/glm52.ron                                     # of the embedded model
  coli plan graphs/kimi_k3.ron --config tests/configs/kimi_k3.json
  coli plan graphs/glm52.ron --config tests/configs/glm52.json --passes
  coli plan graphs/glm52.ron --passes --place '*.experts=cpu'
  coli plan graphs/qwen3.ron --model ~/models/Qwen3-8B --json")]
pub struct Args {
    #[command(flatten)]
    shaped: ShapedArgs,
    /// Print the passes of a compiled step with its barriers and their reasons, in place of the costs
    #[arg(long, value_name = "STEP", value_enum, num_args = 0..=1, default_missing_value = "decode", conflicts_with = "json")]
    passes: Option<StepKind>,
    #[command(flatten)]
    shape: ShapeArgs,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum StepKind {
    /// Many rows of a prompt
    Prompt,
    /// A few rows, one token a sequence
    Decode,
}

/// What a compiled plan depends on besides the graph.
#[derive(clap::Args)]
pub struct ShapeArgs {
    /// Longest context
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    ctx: u32,
    /// Rows of a prompt step
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=512))]
    chunk: u32,
    #[command(flatten)]
    caches: KvArgs,
    /// PATTERN=cpu or PATTERN=gpu: where nodes run; may be given several times
    #[arg(long, value_name = "RULE", value_parser = super::device::parse_rule)]
    place: Vec<Rule>,
}

impl ShapeArgs {
    fn shape(&self, rows: u32) -> Shape {
        Shape { chunk: self.chunk, kv: self.caches.kv, ..Shape::new(rows, self.ctx) }
    }
}

/// A graph with the formats of its weights: a model's own, or those of a typical container.
pub struct Source {
    pub graph: Arc<Graph>,
    model: Option<Model>,
}

impl Source {
    pub fn load(args: &ShapedArgs) -> Result<Self, Failure> {
        if args.config.is_some() {
            if !args.read_as.rules.is_empty() {
                return Err(Failure::Usage(
                    "--read-as is about stored weights: give --model in place of --config".into(),
                ));
            }
            return Ok(Self { graph: args.expand()?.into(), model: None });
        }
        let source = files::model(args.model.as_deref())?;
        let model = Model::load_as(&files::graph(&args.graph)?, source, &args.read_as.rules)?;
        Ok(Self { graph: model.graph.clone(), model: Some(model) })
    }

    fn format(&self, w: WeightId) -> Option<Format> {
        match &self.model {
            Some(model) => model.weights.format(w.0 as usize),
            // The same limits as container writers use: small and one-dimensional weights stay as they are.
            None if self.graph.weight(w).need.shape.len() >= 2 => Some(Format::Int4Row),
            None => Some(Format::Bf16),
        }
    }

    fn summary(&self, args: &ShapeArgs) -> Summary {
        let shape = args.shape(args.chunk);
        let Some(model) = &self.model else { return summarize(&self.graph, None, &shape) };
        let w = &model.weights;
        let bytes = |i, rows, cols| {
            let count = w.count(i);
            (0..count).map(|e| w.expert(i, e).format().bytes(rows, cols)).sum::<u64>() / count as u64
        };
        summarize(&self.graph, Some(&bytes), &shape)
    }

    /// Resident tensors in file order, and their bytes.
    fn to_retile(&self) -> Option<FileOrder> {
        let (tensors, bytes) = self.model.as_ref()?.to_retile();
        (tensors > 0).then_some(FileOrder { tensors, bytes })
    }

    pub fn compile(&self, step: StepKind, args: &ShapeArgs) -> Result<Plan, Failure> {
        let (role, rows) = match step {
            StepKind::Prompt => (Role::Prompt, args.chunk),
            StepKind::Decode => (Role::Decode, crate::run::vulkan::DECODE_ROWS),
        };
        plan::compile(&self.graph, &|w| self.format(w), &args.place, role, args.shape(rows))
            .map_err(|e| Failure::Usage(e.to_string()))
    }
}

/// Costs, and the figures of both compiled steps.
#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    summary: Summary,
    /// What a session on the processor rewrites when it is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_order: Option<FileOrder>,
    prompt: Compiled,
    decode: Compiled,
}

/// Tensors that are stored in another order than kernels like best.
#[derive(Serialize)]
struct FileOrder {
    tensors: usize,
    bytes: u64,
}

impl fmt::Display for FileOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.tensors == 1 { "" } else { "s" };
        write!(
            f,
            "{} tensor{s} in file order, {}, re-tiled on load for the CPU; `coli convert` avoids it",
            self.tensors,
            DecimalBytes(self.bytes)
        )
    }
}

#[derive(Serialize)]
struct Compiled {
    #[serde(flatten)]
    figures: Figures,
    /// Compiling, proof included.
    compile_ms: f64,
}

fn timed(source: &Source, step: StepKind, args: &ShapeArgs) -> Result<Compiled, Failure> {
    let start = Instant::now();
    let figures = source.compile(step, args)?.figures();
    Ok(Compiled { figures, compile_ms: start.elapsed().as_secs_f64() * 1e3 })
}

pub fn run(args: Args) -> Result<(), Failure> {
    let source = Source::load(&args.shaped)?;
    let text = match (args.json, args.passes) {
        (true, _) => {
            let document = Document {
                summary: source.summary(&args.shape),
                file_order: source.to_retile(),
                prompt: timed(&source, StepKind::Prompt, &args.shape)?,
                decode: timed(&source, StepKind::Decode, &args.shape)?,
            };
            serde_json::to_string_pretty(&document).map_err(|e| Failure::Output(e.into()))? + "\n"
        }
        (false, Some(step)) => source.compile(step, &args.shape)?.text(&source.graph),
        (false, None) => {
            let mut text = source.summary(&args.shape).to_string();
            if let Some(tensors) = source.to_retile() {
                text += &format!("{:<12} {tensors}\n", "layout");
            }
            for (name, step) in [("prompt", StepKind::Prompt), ("decode", StepKind::Decode)] {
                let c = timed(&source, step, &args.shape)?;
                text += &format!("{name:<12} {}\n", c.figures);
            }
            text
        }
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
