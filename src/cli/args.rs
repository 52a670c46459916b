//! Arguments that several commands share.

use super::device::{self, Choice};
use super::failure::Failure;
use super::files;
use crate::convert::Target;
use crate::formats::Format;
use crate::formats::activation::Activations;
use crate::graph::{Graph, expand};
use crate::ops::Kv;
use crate::plan::place::Rule;
use crate::run::Model;
use crate::spec::Config;
use std::path::PathBuf;

/// A graph file and the model that it describes.
#[derive(clap::Args)]
pub struct ModelArgs {
    /// Graph file, or the name of a built-in one
    pub graph: String,
    /// Model directory (Hugging Face layout or a container); the embedded demo model if left out
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    #[command(flatten)]
    pub read_as: ReadAs,
}

impl ModelArgs {
    pub fn load(&self) -> Result<Model, Failure> {
        let source = files::model(self.model.as_deref())?;
        Ok(Model::load_as(&files::graph(&self.graph)?, source, &self.read_as.rules)?)
    }
}

/// How to read tensors whose sizes leave a choice.
#[derive(clap::Args)]
pub struct ReadAs {
    /// Format of codes with a `.qs` sidecar whose sizes leave a choice; NAME may hold `*` (may be repeated)
    #[arg(long = "read-as", value_name = "NAME=FORMAT", value_parser = parse_read_as)]
    pub rules: Vec<(String, Format)>,
}

fn parse_read_as(text: &str) -> Result<(String, Format), String> {
    let (name, format) = text.split_once('=').ok_or("give NAME=FORMAT, as 'model.layers.3.*=int8'")?;
    match format.parse()? {
        Target::Format(format) => Ok((name.into(), format)),
        Target::Keep => Err("keep is no format to read".into()),
    }
}

/// A graph file and the numbers that it is expanded with, weights or not.
#[derive(clap::Args)]
pub struct ShapedArgs {
    /// Graph file, or the name of a built-in one
    pub graph: String,
    /// Model directory: its config.json, and the formats its weights are stored in; the embedded demo model if left out
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub model: Option<PathBuf>,
    /// A config.json alone; matrices are then taken to be int4, everything else bf16
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub read_as: ReadAs,
}

impl ShapedArgs {
    /// The graph alone: no weight is looked at.
    pub fn expand(&self) -> Result<Graph, Failure> {
        let arch = files::graph(&self.graph)?;
        let config = match &self.config {
            None => files::model(self.model.as_deref())?.config()?,
            Some(path) => {
                let name = path.display().to_string();
                let bytes = std::fs::read(path).map_err(|source| Failure::File { path: name.clone(), source })?;
                Config::parse(&name, &bytes).map_err(|e| Failure::Model(e.to_string()))?
            }
        };
        Ok(expand(&arch, &config, "main")?)
    }
}

/// How the inputs of products are taken.
#[derive(clap::Args)]
pub struct ActivationArgs {
    /// Inputs of products with integer-coded weights on the CPU: f32, or int8 (faster, less exact)
    #[arg(long, value_name = "F", default_value = "f32", value_parser = parse_activations)]
    pub activations: Activations,
}

fn parse_activations(text: &str) -> Result<Activations, String> {
    Activations::ALL.into_iter().find(|a| a.name() == text).ok_or_else(|| "give f32 or int8".into())
}

/// What caches hold.
#[derive(clap::Args)]
pub struct KvArgs {
    /// Keys and values in caches: f32, or f16 (half the memory, rounded; recurrent states stay f32)
    #[arg(long, value_name = "F", default_value = "f32", value_parser = parse_kv)]
    pub kv: Kv,
}

fn parse_kv(text: &str) -> Result<Kv, String> {
    Kv::ALL.into_iter().find(|kv| kv.name() == text).ok_or_else(|| "give f32 or f16".into())
}

impl ActivationArgs {
    /// The choice, if a device can follow it: no Vulkan kernel takes int8, and a part of a model on the CPU would
    /// make its answers depend on the placement.
    pub fn on(&self, device: Choice) -> Result<Activations, Failure> {
        match (self.activations, device) {
            (Activations::Int8, Choice::Auto | Choice::Vulkan(_)) => Err(Failure::Usage(
                "--activations int8 is for the CPU's kernels: add --device cpu, or leave it out".into(),
            )),
            (activations, _) => Ok(activations),
        }
    }
}

/// The device that runs, and what of the model it runs.
#[derive(clap::Args)]
pub struct DeviceArgs {
    /// auto (the best GPU), vulkan[:N], cpu, or oracle (the reference, slow)
    #[arg(long, default_value = "auto", value_parser = device::parse_device)]
    pub device: Choice,
    /// Where nodes run: PATTERN=cpu or PATTERN=gpu, as '*.routed=cpu' or 'l3.*=cpu' (may be repeated)
    #[arg(long, value_name = "PATTERN=WHERE", value_parser = device::parse_rule)]
    pub place: Vec<Rule>,
}
