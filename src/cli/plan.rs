//! `coli plan`: what a graph costs.

use super::failure::Failure;
use super::files;
use crate::graph::{Graph, expand};
use crate::plan::summarize;
use crate::run::Model;
use crate::spec::Config;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  coli plan graphs/glm52.ron                                     # of the embedded model
  coli plan graphs/kimi_k3.ron --config tests/configs/kimi_k3.json
  coli plan graphs/qwen3.ron --model ~/models/Qwen3-8B --json")]
pub struct Args {
    /// Graph file, or the name of a built-in one
    graph: String,
    /// Model directory: its config.json, and the formats its weights are stored in
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    model: Option<PathBuf>,
    /// A config.json alone
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// The graph for a `--config` file.
pub fn from_config(graph: &str, config: &Path) -> Result<Graph, Failure> {
    let arch = files::graph(graph)?;
    let name = config.display().to_string();
    let bytes = std::fs::read(config).map_err(|source| Failure::File { path: name.clone(), source })?;
    let config = Config::parse(&name, &bytes).map_err(|e| Failure::Model(e.to_string()))?;
    Ok(expand(&arch, &config, "main")?)
}

pub fn run(args: Args) -> Result<(), Failure> {
    let summary = match &args.config {
        Some(config) => summarize(&from_config(&args.graph, config)?, None),
        None => {
            let model = Model::load(&files::graph(&args.graph)?, files::model(args.model.as_deref())?)?;
            summarize(&model.graph, Some(&|i| model.weights.one(i).format()))
        }
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&summary).map_err(|e| Failure::Output(e.into()))? + "\n",
        false => summary.to_string(),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
