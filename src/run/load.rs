//! A graph file and a model directory to a graph with its weights.

use crate::formats::Format;
use crate::graph::{Graph, expand};
use crate::ops::{Op, WeightRole};
use crate::spec::config::ConfigError;
use crate::spec::{Arch, Config, Diagnostic, Diagnostics, Report};
use crate::weights::{Bound, Index, Problem, Request, Tensor};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Where a model's files come from.
#[derive(Debug, Clone)]
pub enum ModelSource {
    /// A Hugging Face directory or a container.
    Dir(PathBuf),
    /// Files inside the program: name and content.
    Embedded { label: &'static str, files: &'static [(&'static str, &'static [u8])] },
}

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{0}")]
    Report(Box<Report>),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Weights(#[from] crate::weights::Error),
    #[error("{0} has no config.json; give the model's directory with --model")]
    NoConfig(String),
    #[error("{path}: {why}")]
    Read { path: String, why: std::io::Error },
}

impl From<Report> for LoadError {
    fn from(r: Report) -> Self {
        LoadError::Report(Box::new(r))
    }
}

impl ModelSource {
    /// A file of the model, None if it is not there.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, std::io::Error> {
        match self {
            ModelSource::Embedded { files, .. } => Ok(files.iter().find(|f| f.0 == name).map(|f| f.1.to_vec())),
            ModelSource::Dir(dir) => match std::fs::read(dir.join(name)) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(e),
            },
        }
    }

    pub fn label(&self) -> String {
        match self {
            ModelSource::Dir(dir) => dir.display().to_string(),
            ModelSource::Embedded { label, .. } => (*label).into(),
        }
    }

    /// The model's weight files, headers checked.
    pub fn index(&self) -> Result<Index, crate::weights::Error> {
        match self {
            ModelSource::Dir(dir) => Index::open(dir),
            ModelSource::Embedded { label, files } => {
                let empty: &[u8] = &[];
                let file = files.iter().find(|f| f.0.ends_with(".safetensors")).map_or(empty, |f| f.1);
                Index::from_bytes(label, file)
            }
        }
    }

    /// The model's `config.json`.
    pub fn config(&self) -> Result<Config, LoadError> {
        if let ModelSource::Dir(dir) = self
            && !dir.is_dir()
        {
            let why = std::io::Error::new(std::io::ErrorKind::NotFound, "no such directory; --model takes a directory");
            return Err(LoadError::Read { path: dir.display().to_string(), why });
        }
        let read = self.read("config.json").map_err(|why| LoadError::Read { path: self.path("config.json"), why })?;
        let bytes = read.ok_or_else(|| LoadError::NoConfig(self.label()))?;
        Ok(Config::parse("config.json", &bytes)?)
    }

    fn path(&self, name: &str) -> String {
        match self {
            ModelSource::Dir(dir) => Path::new(dir).join(name).display().to_string(),
            ModelSource::Embedded { label, .. } => format!("{label}/{name}"),
        }
    }
}

/// A graph with its weights, ready to run.
pub struct Model {
    pub graph: Arc<Graph>,
    pub weights: Arc<Bound>,
    /// The files behind the weights, with tensors that the graph ignores.
    pub index: Index,
    pub config: Config,
    pub source: ModelSource,
    /// See [`Model::tiled`].
    tiled: OnceLock<Arc<Bound>>,
}

impl Model {
    /// Expands the graph file for the model and finds every weight. Nothing is read but headers.
    pub fn load(arch: &Arch, source: ModelSource) -> Result<Model, LoadError> {
        Model::load_as(arch, source, &[])
    }

    /// As [`Model::load`], with the user's word on how to read tensors whose sizes leave a choice
    /// ([`Index::read_as`]).
    pub fn load_as(arch: &Arch, source: ModelSource, read_as: &[(String, Format)]) -> Result<Model, LoadError> {
        let config = source.config()?;
        let graph = expand(arch, &config, "main")?;
        let index = source.index()?.read_as(read_as)?;
        let weights = bind(&graph, &index).map_err(|p| explain(&graph, &source.label(), p))?;
        Ok(Model { graph: Arc::new(graph), weights: Arc::new(weights), index, config, source, tiled: OnceLock::new() })
    }
}

/// Finds every weight of a graph, each where its format may be.
///
/// # Errors
/// Every [`Problem`]: those of [`Index::bind`], or else rotated weights where nothing rotates the input.
pub fn bind(graph: &Graph, index: &Index) -> Result<Bound, Vec<Problem>> {
    let weights = index.bind(&requests(graph), &graph.ignore)?;
    match rotated(graph, &weights) {
        problems if problems.is_empty() => Ok(weights),
        problems => Err(problems),
    }
}

impl Model {
    /// Positions that the model was made for, if its config says.
    pub fn max_positions(&self) -> Option<u32> {
        let inner = ["text_config".to_string()];
        let keys = ["max_position_embeddings", "model_max_length"];
        let found = keys.iter().find_map(|k| self.config.get(&inner, k).and_then(serde_json::Value::as_u64));
        found.map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Weights that the processor multiplies with at every token and that are stored in file order, by their numbers.
    fn in_file_order(&self) -> Vec<usize> {
        let weights = self.graph.weights.iter().enumerate();
        let multiplied = weights.filter(|(_, w)| matches!(w.need.role, WeightRole::Matrix | WeightRole::Head));
        multiplied.map(|(i, _)| i).filter(|i| self.weights.one(*i).can_be_retiled()).collect()
    }

    /// What [`Model::tiled`] rewrites: tensors and their bytes.
    pub fn to_retile(&self) -> (usize, u64) {
        let tensors = self.in_file_order().into_iter().map(|i| self.weights.one(i));
        let bytes: BTreeMap<&str, u64> = tensors.map(|t| (t.name(), t.bytes())).collect();
        (bytes.len(), bytes.values().sum())
    }

    /// The weights as sessions on the processor want them: resident matrices in the engine layout, those of files in
    /// another order as copies in memory, made once. Experts stay where they are, and so does an embedding, of which
    /// a token reads one row. Results have the same bits in either order.
    pub fn tiled(&self) -> Arc<Bound> {
        let make = || {
            let tensors: Vec<(usize, &Tensor)> =
                self.in_file_order().into_iter().map(|i| (i, self.weights.one(i))).collect();
            // A tensor that two nodes read is copied once.
            let distinct: BTreeMap<&str, &Tensor> = tensors.iter().map(|(_, t)| (t.name(), *t)).collect();
            let distinct: Vec<&Tensor> = distinct.into_values().collect();
            let copies: HashMap<&str, Tensor> =
                distinct.into_par_iter().filter_map(|t| Some((t.name(), t.retiled()?))).collect();
            let new = tensors.iter().filter_map(|(i, t)| Some((*i, copies.get(t.name())?.clone())));
            Arc::new(self.weights.with(new))
        };
        self.tiled.get_or_init(make).clone()
    }

    /// Weights that every token reads: all but the experts.
    fn resident(&self) -> impl Iterator<Item = &crate::weights::Tensor> {
        let dense = self.graph.weights.iter().enumerate().filter(|(_, w)| w.need.experts.is_none());
        dense.map(|(i, _)| self.weights.one(i))
    }

    pub fn resident_bytes(&self) -> u64 {
        self.resident().map(|t| t.bytes()).sum()
    }

    /// Touches every page of the resident weights, so that they are in memory. `done` gets bytes as they come.
    pub fn warm(&self, done: &mut dyn FnMut(u64)) {
        for t in self.resident() {
            t.touch();
            done(t.bytes());
        }
    }
}

/// What the graph needs, in the order of `Graph::weights`.
pub fn requests(graph: &Graph) -> Vec<Request> {
    let request = |w: &crate::graph::Weight| Request {
        names: w.need.names.clone(),
        shape: w.need.shape.clone(),
        at_least: w.need.at_least,
        experts: w.need.experts,
    };
    graph.weights.iter().map(request).collect()
}

/// Weights that are stored rotated where nothing rotates the input: only the experts' products do
/// (formats.md 6.5). Experts of a node are rotated all or none, as every writer makes them, so that a mixture is
/// a sign of a conversion that broke off.
fn rotated(graph: &Graph, weights: &Bound) -> Vec<Problem> {
    let problem =
        |request: usize, tensor: &Tensor, why: String| Problem::Format { request, name: tensor.name().to_owned(), why };
    let mut problems = vec![];
    for (_, node) in graph.nodes() {
        let requests = node.weights.iter().map(|w| w.0 as usize);
        let tensors = requests.flat_map(|r| (0..weights.count(r)).map(move |e| (r, weights.expert(r, e))));
        let (turned, plain): (Vec<_>, Vec<_>) = tensors.partition(|(_, t)| t.format().rotates());
        let Some((request, first)) = turned.first() else { continue };
        let format = first.format();
        if !matches!(node.op, Op::MoeExperts { .. }) {
            let why = format!(
                "it is stored as {format}, that is rotated, but {} (`{}`) does not rotate its input; only experts may \
                 have this format, so convert this tensor to another one",
                node.op.name(),
                node.path()
            );
            problems.push(problem(*request, first, why));
        } else if let Some((request, other)) = plain.first() {
            let why = format!(
                "it is stored as {}, but `{}` of the same experts as {format}; gate, up and down of all experts of a \
                 layer must be {format} or none, so convert the model again",
                other.format(),
                first.name()
            );
            problems.push(problem(*request, other, why));
        }
    }
    problems
}

/// Weight problems at the words of the graph file that name the weights.
fn explain(graph: &Graph, label: &str, problems: Vec<Problem>) -> Report {
    let mut diags = Diagnostics::default();
    for p in problems {
        let (request, message) = match &p {
            Problem::Missing { request, .. } | Problem::Shape { request, .. } | Problem::Format { request, .. } => {
                (Some(*request), p.to_string())
            }
            Problem::Unused { .. } => (None, p.to_string()),
        };
        let span = match request {
            Some(r) => graph.weights[r].need.span.clone(),
            // The whole file is at fault; its first word stands for it.
            None => 0..graph.source.text.find("Arch").map_or(0, |at| at + 4),
        };
        let start = if request.is_none() { span.end.saturating_sub(4) } else { span.start };
        diags.push(Diagnostic::new(start..span.end, message));
    }
    let heading = format!("the weights in {label} do not fit this graph");
    match diags.finish(&graph.source, &heading) {
        Err(report) => report,
        Ok(()) => Report { source: graph.source.clone(), heading, items: vec![] },
    }
}
