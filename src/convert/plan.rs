//! The output as a list of tensors with formats and places, from a graph and its weights.

use super::error::Error;
use super::layout::{Piece, Shard, lay_out, pad};
use super::options::{Options, Target};
use crate::formats::{BlockScale, EncodeError, Encoder, Format, layout};
use crate::graph::Graph;
use crate::ops::WeightRole;
use crate::weights::{Bound, Index, Stored, Tensor, TileStamp, stamp_for};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// What a tensor is for, as far as formats go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Norms, biases, routers, integer tables: never converted.
    Other,
    /// Embedding and output head.
    Io,
    /// Dense matrices.
    Dense,
    /// Matrices of experts.
    Experts,
    /// Tensors that the graph leaves out on purpose: never converted.
    Ignored,
}

impl Part {
    /// Of a weight's role in the graph.
    pub fn of(role: WeightRole) -> Part {
        match role {
            WeightRole::Router | WeightRole::Vector | WeightRole::Table => Part::Other,
            WeightRole::Embedding | WeightRole::Head => Part::Io,
            WeightRole::Matrix => Part::Dense,
            WeightRole::Expert => Part::Experts,
        }
    }

    /// In the order of reports.
    pub const ALL: [Part; 5] = [Part::Experts, Part::Dense, Part::Io, Part::Other, Part::Ignored];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Other => "other",
            Part::Io => "io",
            Part::Dense => "dense",
            Part::Experts => "experts",
            Part::Ignored => "ignored",
        })
    }
}

/// A logical tensor of the output.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Logical name, in the source and in the output.
    pub name: String,
    /// What it is for.
    pub part: Part,
    /// Format in the source; None for ignored tensors, whose shape nobody says.
    pub from: Option<Format>,
    /// Format to encode; None to keep the codes and scales.
    pub to: Option<Format>,
    /// Bytes in the source.
    pub bytes_before: u64,
    /// Codes, then scales; one piece in the engine layout.
    pub pieces: Vec<Piece>,
    /// The source's values; None for ignored tensors.
    pub(super) tensor: Option<Tensor>,
    stamp: Option<String>,
}

impl Planned {
    /// Bytes in the output.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|p| p.bytes).sum()
    }

    /// Whether the output has it in the engine layout.
    pub fn is_tiled(&self) -> bool {
        self.pieces.iter().any(|p| p.tiles.is_some())
    }
}

/// Every tensor and file of the output.
#[derive(Debug, Clone)]
pub struct Plan {
    /// As asked for.
    pub options: Options,
    /// In the order of the files. Inside of a file those in the engine layout come before the others.
    pub tensors: Vec<Planned>,
    /// Files, in order.
    pub shards: Vec<Shard>,
    pub(super) index: Index,
}

impl Plan {
    /// Plans a conversion; reads headers only.
    ///
    /// A tensor that several operators read keeps to the most careful of its roles. Gate, up and down of an expert
    /// follow each other in one file.
    ///
    /// # Errors
    /// [`Error::Rotated`], [`Error::Shape`] and [`Error::Clash`], for the first tensor at fault.
    pub fn new(graph: &Graph, bound: &Bound, index: &Index, options: Options) -> Result<Plan, Error> {
        for (flag, target) in [("--dense", Some(options.dense)), ("--io", options.io)] {
            if matches!(target, Some(Target::Format(format)) if format.rotates()) {
                return Err(Error::Rotated { flag });
            }
        }
        let parts = parts(graph, bound);
        let mut planner = Planner { index, options: &options, parts, done: HashSet::new(), groups: Vec::new() };
        for (_, node) in graph.nodes() {
            planner.node(bound, &node.weights.iter().map(|w| w.0 as usize).collect::<Vec<_>>())?;
        }
        if !options.drop_ignored {
            planner.ignored();
        }
        let groups = planner.groups;
        let (tensors, shards) = into_shards(groups, options.shard_bytes)?;
        Ok(Plan { options, tensors, shards, index: index.clone() })
    }

    /// Bytes of all files with weights.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.bytes).sum()
    }
}

/// The most careful part of each bound tensor, by logical name.
pub fn parts(graph: &Graph, bound: &Bound) -> BTreeMap<String, Part> {
    let mut parts = BTreeMap::new();
    for (request, weight) in graph.weights.iter().enumerate() {
        let part = Part::of(weight.need.role);
        for e in 0..bound.count(request) {
            let known = parts.entry(bound.expert(request, e).name().to_owned()).or_insert(part);
            *known = part.min(*known);
        }
    }
    parts
}

struct Planner<'a> {
    index: &'a Index,
    options: &'a Options,
    parts: BTreeMap<String, Part>,
    /// Names that are in a group.
    done: HashSet<String>,
    /// Tensors that stay together.
    groups: Vec<Vec<Planned>>,
}

impl Planner<'_> {
    /// The weights of a node: each alone, those of an expert together.
    fn node(&mut self, bound: &Bound, requests: &[usize]) -> Result<(), Error> {
        let most = requests.iter().map(|r| bound.count(*r)).max().unwrap_or(0);
        for e in 0..most {
            let mut group = Vec::new();
            for request in requests.iter().filter(|r| e < bound.count(**r)) {
                let tensor = bound.expert(*request, e);
                if self.done.insert(tensor.name().to_owned()) {
                    group.push(self.tensor(tensor)?);
                }
            }
            if !group.is_empty() {
                pad_group(&mut group);
                self.groups.push(group);
            }
        }
        Ok(())
    }

    fn tensor(&self, tensor: &Tensor) -> Result<Planned, Error> {
        let part = self.parts.get(tensor.name()).copied().unwrap_or(Part::Other);
        let (flag, target) = match part {
            Part::Other | Part::Ignored => ("", Target::Keep),
            Part::Io => ("--io", self.options.io(tensor.format())),
            Part::Dense => ("--dense", self.options.dense),
            Part::Experts => ("--experts", self.options.experts),
        };
        let (rows, cols) = (tensor.rows() as u64, tensor.cols() as u64);
        let to = match target {
            // One group a row: the same bytes, under the name that readers give them.
            Target::Format(Format::Int4Grouped { group }) if u64::from(group) >= cols => Some(Format::Int4Row),
            Target::Format(format) => Some(format),
            Target::Keep => None,
        };
        let to = to.filter(|format| *format != tensor.format());
        if let Some(format) = to {
            Encoder::new(format, cols as usize).map_err(|why| Error::Shape {
                name: tensor.name().to_owned(),
                target: target.to_string(),
                instead: instead(&why),
                why,
                flag,
            })?;
        }
        let format = to.unwrap_or(tensor.format());
        let matrix = matches!(part, Part::Io | Part::Dense | Part::Experts);
        let tiled = tensor.is_tiled() || matrix && layout::suits(format, tensor.rows(), tensor.cols());
        let coded = to.is_some() || self.index.has_sidecar(tensor.name());
        let stamp = if coded && !tiled { stamp_for(format, cols) } else { None };
        Ok(Planned {
            name: tensor.name().to_owned(),
            part,
            from: Some(tensor.format()),
            to,
            bytes_before: tensor.bytes(),
            pieces: match to {
                _ if tiled => tiles(tensor.name(), format, tensor.rows(), tensor.cols()).into_iter().collect(),
                Some(format) => encoded(tensor.name(), format, rows, cols),
                None => self.stored(tensor.name()),
            },
            tensor: Some(tensor.clone()),
            stamp,
        })
    }

    /// The source's own pieces, to be copied.
    fn stored(&self, name: &str) -> Vec<Piece> {
        self.index.stored(name).iter().map(copied).collect()
    }

    /// What no node reads; binding has made sure that the graph says so.
    fn ignored(&mut self) {
        for name in self.index.names().filter(|name| !self.done.contains(*name)) {
            let pieces = self.stored(name);
            let planned = Planned {
                name: name.to_owned(),
                part: Part::Ignored,
                from: None,
                to: None,
                bytes_before: pieces.iter().map(|p| p.bytes).sum(),
                pieces,
                tensor: None,
                stamp: self.index.stamp(name).map(str::to_owned),
            };
            let mut group = vec![planned];
            pad_group(&mut group);
            self.groups.push(group);
        }
    }
}

/// A format that holds what another cannot.
fn instead(why: &EncodeError) -> String {
    match why {
        EncodeError::Cols { format: Format::E8, .. } => "int3-g64".into(),
        EncodeError::Cols { format: Format::Int4Grouped { .. }, cols, .. } => {
            let divisor =
                [256, 192, 128, 96, 64, 48, 32, 16].into_iter().find(|g| *g < *cols && cols.is_multiple_of(*g));
            divisor.map_or("int4".into(), |g| format!("int4-g{g}"))
        }
        _ => "int4".into(),
    }
}

/// A piece as it is in the source. Of tiles the padding is left out, which their new place decides.
fn copied(s: &Stored) -> Piece {
    let bytes = s.bytes.len() as u64;
    let known = s.tiles.and_then(|stamp| stamp.read().ok()).map(|shape| shape.bytes as u64);
    let known = known.filter(|known| *known <= bytes);
    Piece {
        name: s.name.to_owned(),
        dtype: s.dtype.clone(),
        shape: s.shape.to_vec(),
        data: known.unwrap_or(bytes),
        bytes,
        at: 0,
        tiles: s.tiles.cloned(),
        aligned: known.is_some(),
    }
}

/// The one tensor that holds a matrix in the engine layout; None where the format has none.
fn tiles(name: &str, format: Format, rows: usize, cols: usize) -> Option<Piece> {
    let data = layout::bytes(format, rows, cols)? as u64;
    let tiles = Some(TileStamp::new(format, rows, cols));
    Some(Piece {
        name: name.to_owned(),
        dtype: "U8".into(),
        shape: vec![data],
        data,
        bytes: data,
        at: 0,
        tiles,
        aligned: true,
    })
}

/// Makes the matrices of a group fit side by side.
fn pad_group(group: &mut [Planned]) {
    let pieces = group.iter_mut().flat_map(|t| &mut t.pieces).filter(|p| p.aligned);
    pad(&mut pieces.collect::<Vec<_>>());
}

/// The tensors that hold a matrix of `format` in file order: plain, or codes with their scales in `NAME.qs`.
fn encoded(name: &str, format: Format, rows: u64, cols: u64) -> Vec<Piece> {
    let data = format.data_bytes(rows, cols);
    let piece = |name: String, dtype: &str, shape: Vec<u64>, bytes| Piece {
        name,
        dtype: dtype.into(),
        shape,
        data: bytes,
        bytes,
        at: 0,
        tiles: None,
        aligned: false,
    };
    let plain = match format {
        Format::F32 => Some("F32"),
        Format::F16 => Some("F16"),
        Format::Bf16 => Some("BF16"),
        _ => None,
    };
    if let Some(dtype) = plain {
        return vec![piece(name.to_owned(), dtype, vec![rows, cols], data)];
    }
    let scales = format.scale_bytes(rows, cols);
    let (dtype, width) = match format {
        Format::Mxfp4 | Format::Fp8Block { scale: BlockScale::Ue8m0 } => ("F8_E8M0", 1),
        _ => ("F32", 4),
    };
    vec![
        piece(name.to_owned(), "U8", vec![rows, format.row_bytes(cols)], data),
        piece(format!("{name}.qs"), dtype, vec![scales / width], scales),
    ]
}

/// Fills shards with groups, and gives every piece its place.
fn into_shards(groups: Vec<Vec<Planned>>, most: u64) -> Result<(Vec<Planned>, Vec<Shard>), Error> {
    let mut names = HashSet::new();
    for piece in groups.iter().flatten().flat_map(|t| &t.pieces) {
        if !names.insert(piece.name.clone()) {
            return Err(Error::Clash { name: piece.name.clone() });
        }
    }
    let mut files: Vec<Vec<Vec<Planned>>> = Vec::new();
    let mut filled = 0;
    for group in groups {
        let bytes: u64 = group.iter().map(Planned::bytes).sum();
        match files.last_mut() {
            Some(file) if filled + bytes <= most => {
                file.push(group);
                filled += bytes;
            }
            _ => {
                files.push(vec![group]);
                filled = bytes;
            }
        }
    }
    let (count, mut tensors, mut shards) = (files.len(), Vec::new(), Vec::new());
    for (number, mut groups) in files.into_iter().enumerate() {
        let stamps: Vec<(String, String)> =
            groups.iter().flatten().filter_map(|t| Some((t.pieces.first()?.name.clone(), t.stamp.clone()?))).collect();
        // Others are as long as they are: behind them, nothing would be aligned.
        let pieces = groups.iter_mut().flat_map(|group| in_order(group));
        let (mut pieces, others): (Vec<&mut Piece>, Vec<&mut Piece>) = pieces.partition(|p| p.aligned);
        pieces.extend(others);
        let (header, bytes) = lay_out(&mut pieces, &stamps);
        let first = tensors.len();
        tensors.extend(groups.into_iter().flatten());
        let file = format!("model-{:05}-of-{count:05}.safetensors", number + 1);
        shards.push(Shard { file, tensors: first..tensors.len(), header, bytes });
    }
    Ok((tensors, shards))
}

/// The pieces of a group: codes of all its tensors, then scales, so that an expert in file order is two reads at most.
fn in_order(group: &mut [Planned]) -> Vec<&mut Piece> {
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for tensor in group {
        let mut pieces = tensor.pieces.iter_mut();
        codes.extend(pieces.next());
        scales.extend(pieces);
    }
    codes.extend(scales);
    codes
}
