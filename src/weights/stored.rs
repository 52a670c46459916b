//! Tensors as they lie in the files, without a graph that says their shapes; and the user's word on how to read them.

use super::dtype::Dtype;
use super::infer::{exact_stamp, stamped_group};
use super::logical::{Logical, Pairing, Part};
use super::tiles::TileStamp;
use super::{Error, Index};
use crate::formats::{BlockScale, Format};
use crate::names::{glob, near};

/// One stored tensor: codes, scales, or plain values.
#[derive(Clone, Debug)]
pub struct Stored<'a> {
    /// The name in the file.
    pub name: &'a str,
    /// The element type as safetensors spells it.
    pub dtype: String,
    /// The shape in the file, in elements of the dtype.
    pub shape: &'a [u64],
    /// The mapped bytes.
    pub bytes: &'a [u8],
    /// What the metadata says, if the bytes are in the engine layout.
    pub tiles: Option<&'a TileStamp>,
}

/// What can be said about a weight without the shape that a graph gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Name of the format; of codes with a sidecar the stamp's, or `unstamped codes`.
    pub format: String,
    /// Weights, None where the format is not known. Rows of codes may be padded, so that this is the most there can be.
    pub parameters: Option<u64>,
    /// Bytes of codes and scales.
    pub bytes: u64,
}

impl Index {
    /// The stored tensors behind a logical name, codes first; empty if there is no such name.
    pub fn stored(&self, name: &str) -> Vec<Stored<'_>> {
        let Some(logical) = self.logical().get(name) else { return Vec::new() };
        let scale = logical.scale.as_ref().map(|(name, part)| (name, part));
        std::iter::once((&logical.stored, &logical.data))
            .chain(scale)
            .map(|(name, part)| Stored {
                name,
                dtype: part.dtype.to_string(),
                shape: &part.shape,
                bytes: &self.shard(part).bytes()[part.range.clone()],
                tiles: part.tiles.as_ref(),
            })
            .collect()
    }

    /// The format stamp of a logical tensor, if its file has one.
    pub fn stamp(&self, name: &str) -> Option<&str> {
        self.logical().get(name)?.stamp.as_deref()
    }

    /// Whether a weight's format is decided by byte counts: codes with scales in `NAME.qs`.
    pub fn has_sidecar(&self, name: &str) -> bool {
        self.logical().get(name).is_some_and(|logical| logical.pairing == Pairing::Sidecar)
    }

    /// Whether a weight's bytes are stamped as being in the engine layout.
    pub fn is_tiled(&self, name: &str) -> bool {
        self.logical().get(name).is_some_and(|logical| logical.data.tiles.is_some())
    }

    /// Every file with its path (or the label of embedded bytes) and its mapped content.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.shards().iter().map(|shard| (shard.label(), shard.bytes()))
    }

    /// What is known about a tensor without a graph; None if there is no such name.
    pub fn summary(&self, name: &str) -> Option<Summary> {
        self.logical().get(name).map(summary)
    }

    /// The same files with sidecars read as the rules say: name patterns (`*` matches any run of characters) and
    /// formats, the last rule that matches counts.
    ///
    /// # Errors
    /// [`Error::ReadAs`] for a rule that matches no tensor with a sidecar, or a format that has none.
    pub fn read_as(&self, rules: &[(String, Format)]) -> Result<Index, Error> {
        if rules.is_empty() {
            return Ok(self.clone());
        }
        let mut logical = self.logical().clone();
        for (pattern, format) in rules {
            let refuse = |why: String| Err(Error::ReadAs { rule: format!("{pattern}={format}"), why });
            if matches!(format, Format::F32 | Format::F16 | Format::Bf16 | Format::I32 | Format::I64) {
                return refuse("it has no scales; plain tensors say their type in the file".to_owned());
            }
            let (mut named, mut set) = (0, 0);
            for (_, tensor) in logical.iter_mut().filter(|(name, _)| glob::matches(pattern, name)) {
                named += 1;
                if tensor.pairing == Pairing::Sidecar {
                    tensor.stamp = Some(exact_stamp(*format));
                    set += 1;
                }
            }
            match (named, set) {
                (0, _) => {
                    let near = near::nearest(&[pattern.as_str()], 0, self.names());
                    let near = near.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
                    return refuse(format!("no tensor has such a name{near}"));
                }
                (_, 0) => return refuse("its type is in the file: only codes with a `.qs` sidecar are guessed".into()),
                _ => {}
            }
        }
        Ok(self.with_logical(logical))
    }
}

fn summary(logical: &Logical) -> Summary {
    let bytes = logical.data.bytes() + logical.scale.as_ref().map_or(0, |(_, part)| part.bytes());
    let elements = logical.data.bytes() / logical.data.dtype.width();
    let known = |format: Format, parameters: u64| (format.name().into_owned(), Some(parameters));
    let scale = logical.scale.as_ref().map(|(_, part)| part.dtype);
    if let Some(stamp) = &logical.data.tiles {
        let (format, parameters) = match stamp.read() {
            Ok(shape) => known(shape.format, (shape.rows as u64).saturating_mul(shape.cols as u64)),
            Err(_) => ("unknown tiles".to_owned(), None),
        };
        return Summary { format, parameters, bytes };
    }
    let (format, parameters) = match (logical.pairing, logical.data.dtype, scale) {
        (Pairing::Plain, dtype, _) => (dtype.to_string().to_lowercase(), Some(elements)),
        (Pairing::Packed, ..) | (Pairing::Scaled, Dtype::I8, _) => known(Format::Mxfp4, 2 * elements),
        (Pairing::Scaled, _, Some(Dtype::F32)) => known(Format::Fp8Block { scale: BlockScale::F32 }, elements),
        (Pairing::Scaled, ..) => known(Format::Fp8Block { scale: BlockScale::Ue8m0 }, elements),
        (Pairing::Sidecar, ..) => match &logical.stamp {
            Some(stamp) => (stamp.clone(), coded(stamp, &logical.data)),
            None => ("unstamped codes".to_owned(), None),
        },
    };
    Summary { format, parameters, bytes }
}

/// Weights in the codes of a stamp.
fn coded(stamp: &str, data: &Part) -> Option<u64> {
    let bytes = data.bytes();
    match stamp {
        "int8-row" | "fp8-e4m3-b128" => Some(bytes),
        "int4-row" | "int4-grouped" | "mxfp4" => Some(2 * bytes),
        "int2-row" => Some(4 * bytes),
        "int3-g64" => Some(bytes / 24 * 64),
        "e8-iq3-lattice" => Some(bytes / 98 * 256),
        other => stamped_group(other).map(|_| 2 * bytes),
    }
}
