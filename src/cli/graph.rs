//! `coli graph`: the expanded graph as a drawing.

use super::args::ShapedArgs;
use super::failure::Failure;
use super::plan;
use crate::graph::dot::dot;
use std::io::Write;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  coli graph graphs/glm52.ron | dot -Tsvg > demo.svg
  coli graph graphs/glm52.ron --config tests/configs/glm52.json --layers 0,3,6 --format dot
  coli graph graphs/glm52.ron --plan --layers 3 | dot -Tsvg > passes.svg")]
pub struct Args {
    #[command(flatten)]
    shaped: ShapedArgs,
    /// Draw these layers only, and nothing outside the layers
    #[arg(long, value_name = "L,L,...", value_delimiter = ',')]
    layers: Option<Vec<u32>>,
    /// Draw the passes of a compiled step in place of the graph's nodes
    #[arg(long, value_name = "STEP", value_enum, num_args = 0..=1, default_missing_value = "decode")]
    plan: Option<plan::StepKind>,
    #[command(flatten)]
    shape: plan::ShapeArgs,
    #[arg(long, value_enum, default_value_t = Format::Dot)]
    format: Format,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Graphviz
    Dot,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let graph = args.shaped.expand()?;
    if let Some(bad) = args.layers.iter().flatten().find(|l| **l >= graph.layers) {
        return Err(Failure::Usage(format!("--layers {bad}: the model has layers 0 to {}", graph.layers - 1)));
    }
    let keep = |layer: Option<u32>| match &args.layers {
        Some(layers) => layer.is_some_and(|l| layers.contains(&l)),
        None => true,
    };
    let text = match (args.format, args.plan) {
        (Format::Dot, None) => dot(&graph, keep),
        (Format::Dot, Some(step)) => {
            let source = plan::Source::load(&args.shaped)?;
            source.compile(step, &args.shape)?.dot(&source.graph, keep)
        }
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
