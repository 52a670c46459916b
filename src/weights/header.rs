//! The header of one safetensors file: eight bytes of length, a JSON object, then the data.
//!
//! Everything the header claims is checked here, once, so the rest of the module can slice the
//! mapped bytes without further doubts. Source: formats.md section 9.2.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::dtype::Dtype;
use super::json::{Pairs, repeated};
use super::tiles::{TILES, TileStamp};

/// Longest accepted header. The largest published checkpoints need a few MiB per shard.
pub(super) const MAX_HEADER: u64 = 512 << 20;

/// Metadata key whose value maps tensor names to the format their bytes are in, as JSON.
const STAMPS: &str = "colibri.fmt";

/// A header whose claims all hold for the file it came from.
pub(super) struct Header {
    pub(super) tensors: Vec<Stored>,
    /// Tensor name and stamp name, from `colibri.fmt`.
    pub(super) stamps: Vec<(String, String)>,
}

/// One stored tensor.
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
    /// Position in the whole file.
    pub(super) range: Range<usize>,
    /// What the metadata says, if the bytes are in the engine layout.
    pub(super) tiles: Option<TileStamp>,
}

/// What is wrong with a safetensors header.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Too few bytes for the length field.
    #[error("only {len} bytes long, a safetensors file starts with an 8-byte header length")]
    Short {
        /// Bytes in the file.
        len: u64,
    },
    /// A length no header has.
    #[error("its header claims {len} bytes, more than the {MAX_HEADER} allowed; not a safetensors file")]
    Long {
        /// Claimed header bytes.
        len: u64,
    },
    /// A header that would end after the file.
    #[error("its header claims {len} bytes, but only {rest} follow the length field")]
    Truncated {
        /// Claimed header bytes.
        len: u64,
        /// Bytes after the length field.
        rest: u64,
    },
    /// The header text is not what the format prescribes.
    #[error("its header is not valid: {0}")]
    Json(serde_json::Error),
    /// A key that appears twice in the header.
    #[error("its header lists `{key}` twice")]
    Repeated {
        /// The tensor name or metadata key.
        key: String,
    },
    /// An element type of unknown size.
    #[error("tensor `{tensor}` has the unknown dtype `{dtype}`")]
    Dtype {
        /// Stored name.
        tensor: String,
        /// The dtype as spelled.
        dtype: String,
    },
    /// A shape whose byte count overflows.
    #[error("tensor `{tensor}` has the impossible shape {shape:?}")]
    Shape {
        /// Stored name.
        tensor: String,
        /// The claimed shape.
        shape: Vec<u64>,
    },
    /// Offsets outside the data, or reversed.
    #[error("tensor `{tensor}` claims data bytes {begin}..{end}, but the file holds {data} data bytes")]
    Range {
        /// Stored name.
        tensor: String,
        /// First byte, counted from the end of the header.
        begin: u64,
        /// One past the last byte.
        end: u64,
        /// Data bytes in the file.
        data: u64,
    },
    /// Offsets that do not cover what the shape needs.
    #[error("tensor `{tensor}` spans {found} bytes, but its dtype and shape {shape:?} take {need}")]
    Size {
        /// Stored name.
        tensor: String,
        /// The claimed shape.
        shape: Vec<u64>,
        /// Bytes of that shape.
        need: u64,
        /// Bytes between the offsets.
        found: u64,
    },
    /// Two tensors that share bytes.
    #[error("tensors `{first}` and `{second}` overlap")]
    Overlap {
        /// Stored name of the earlier tensor.
        first: String,
        /// Stored name of the later tensor.
        second: String,
    },
    /// Unreadable format stamps.
    #[error("its `colibri.fmt` metadata is not a JSON map of names: {0}")]
    Stamps(serde_json::Error),
    /// Unreadable stamps of the engine layout.
    #[error("its `{TILES}` metadata is not a JSON map of stamps: {0}")]
    Tiles(serde_json::Error),
    /// A stamp of the engine layout without its tensor.
    #[error("its `{TILES}` metadata describes `{tensor}`, which is not in the file")]
    Absent {
        /// The name in the metadata.
        tensor: String,
    },
}

/// Reads and checks the header of a file given as bytes.
///
/// # Errors
/// [`HeaderError`]; nothing of the file is usable then.
pub(super) fn parse(file: &[u8]) -> Result<Header, HeaderError> {
    let (text, data_start) = split(file)?;
    let raw: RawHeader = serde_json::from_slice(text).map_err(HeaderError::Json)?;
    if let Some(key) = repeated(raw.tensors.iter().map(|(name, _)| name.as_str())) {
        return Err(HeaderError::Repeated { key: key.to_owned() });
    }
    let data_len = (file.len() - data_start) as u64;
    let mut tensors = raw
        .tensors
        .into_iter()
        .map(|(name, tensor)| check_tensor(name, tensor, data_start, data_len))
        .collect::<Result<Vec<_>, _>>()?;
    check_overlap(&tensors)?;
    if let Some(key) = repeated(raw.metadata.iter().map(|(key, _)| key.as_str())) {
        return Err(HeaderError::Repeated { key: key.to_owned() });
    }
    add_tiles(&mut tensors, &raw.metadata)?;
    Ok(Header { tensors, stamps: read_stamps(&raw.metadata)? })
}

/// The JSON text and the position of the data behind it.
fn split(file: &[u8]) -> Result<(&[u8], usize), HeaderError> {
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(HeaderError::Short { len: file.len() as u64 });
    };
    let len = u64::from_le_bytes(*length);
    if len > MAX_HEADER {
        return Err(HeaderError::Long { len });
    }
    // At most MAX_HEADER, so the length fits a usize.
    match rest.get(..len as usize) {
        Some(text) => Ok((text, length.len() + text.len())),
        None => Err(HeaderError::Truncated { len, rest: rest.len() as u64 }),
    }
}

fn check_tensor(name: String, raw: RawTensor, data_start: usize, data: u64) -> Result<Stored, HeaderError> {
    let Some(dtype) = Dtype::parse(&raw.dtype) else {
        return Err(HeaderError::Dtype { tensor: name, dtype: raw.dtype });
    };
    let shape = raw.shape;
    let Some(need) = shape.iter().try_fold(dtype.width(), |n, &dim| n.checked_mul(dim)) else {
        return Err(HeaderError::Shape { tensor: name, shape });
    };
    let [begin, end] = raw.data_offsets;
    if begin > end || end > data {
        return Err(HeaderError::Range { tensor: name, begin, end, data });
    }
    if end - begin != need {
        return Err(HeaderError::Size { tensor: name, shape, need, found: end - begin });
    }
    // Both offsets lie inside the file, whose length is a usize.
    let range = data_start + begin as usize..data_start + end as usize;
    Ok(Stored { name, dtype, shape, range, tiles: None })
}

/// Gaps between tensors are fine (writers pad); shared bytes mean a damaged or crafted header.
fn check_overlap(tensors: &[Stored]) -> Result<(), HeaderError> {
    let mut sorted: Vec<&Stored> = tensors.iter().filter(|t| !t.range.is_empty()).collect();
    sorted.sort_by_key(|t| t.range.start);
    for pair in sorted.windows(2) {
        if let [first, second] = pair
            && first.range.end > second.range.start
        {
            let (first, second) = (first.name.clone(), second.name.clone());
            return Err(HeaderError::Overlap { first, second });
        }
    }
    Ok(())
}

fn read_stamps(metadata: &[(String, String)]) -> Result<Vec<(String, String)>, HeaderError> {
    let Some((_, text)) = metadata.iter().find(|(key, _)| key == STAMPS) else {
        return Ok(Vec::new());
    };
    let Pairs(stamps) = serde_json::from_str(text).map_err(HeaderError::Stamps)?;
    Ok(stamps)
}

/// Gives every stamp of the engine layout to its tensor.
fn add_tiles(tensors: &mut [Stored], metadata: &[(String, String)]) -> Result<(), HeaderError> {
    let Some((_, text)) = metadata.iter().find(|(key, _)| key == TILES) else { return Ok(()) };
    let Pairs(stamps) = serde_json::from_str::<Pairs<TileStamp>>(text).map_err(HeaderError::Tiles)?;
    if let Some(key) = repeated(stamps.iter().map(|(name, _)| name.as_str())) {
        return Err(HeaderError::Repeated { key: key.to_owned() });
    }
    let mut stamps: HashMap<String, TileStamp> = stamps.into_iter().collect();
    tensors.iter_mut().for_each(|tensor| tensor.tiles = stamps.remove(&tensor.name));
    // The first by name, so that a file has one message.
    match stamps.into_keys().min() {
        Some(tensor) => Err(HeaderError::Absent { tensor }),
        None => Ok(()),
    }
}

#[derive(Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The header as written: metadata (if any) and tensors, repeated names included.
struct RawHeader {
    metadata: Vec<(String, String)>,
    tensors: Vec<(String, RawTensor)>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut header = RawHeader { metadata: Vec::new(), tensors: Vec::new() };
        while let Some(key) = map.next_key::<String>()? {
            if key == "__metadata__" {
                // A second metadata object adds to the first, so its repeated keys are noticed.
                header.metadata.extend(map.next_value::<Pairs<String>>()?.0);
            } else {
                let tensor = map.next_value().map_err(|error| A::Error::custom(format!("tensor `{key}`: {error}")))?;
                header.tensors.push((key, tensor));
            }
        }
        Ok(header)
    }
}
