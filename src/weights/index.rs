//! A checkpoint: all its shards and the tensors in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::Error;
use super::header::{self, MAX_HEADER};
use super::json::{Pairs, repeated};
use super::logical::{self, Logical, Part};
use super::shard::Shard;

const INDEX_FILE: &str = "model.safetensors.index.json";
const SINGLE_FILE: &str = "model.safetensors";

/// Every tensor of a checkpoint, by logical name, with the mapped files behind them.
///
/// Cloning shares everything.
#[derive(Clone, Debug)]
pub struct Index {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shards: Vec<Arc<Shard>>,
    logical: BTreeMap<String, Logical>,
    bytes: u64,
}

impl Index {
    /// Opens a model directory, or a single `.safetensors` file.
    ///
    /// Of a directory these files are read, in this order of preference: the shards that
    /// `model.safetensors.index.json` names; `model.safetensors` alone; every `*.safetensors`.
    /// Headers are read and checked, weights stay on disk until they are looked at.
    ///
    /// # Errors
    /// [`Error`]: nothing to read, a missing shard, a damaged header, a tensor in two files.
    pub fn open(dir: &Path) -> Result<Index, Error> {
        let files = if dir.is_dir() { shard_files(dir)? } else { vec![dir.to_owned()] };
        let shards = files.iter().map(|file| Shard::open(file)).collect::<Result<Vec<_>, _>>()?;
        Index::assemble(shards)
    }

    /// Opens one safetensors file that is part of the program; messages call it `label`.
    ///
    /// # Errors
    /// [`Error::Header`] when the bytes are not a valid safetensors file.
    pub fn from_bytes(label: &str, bytes: &'static [u8]) -> Result<Index, Error> {
        Index::assemble(vec![Shard::from_bytes(label, bytes)])
    }

    /// Names of the logical tensors, sorted. A weight and its scales are one tensor under the
    /// weight's name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.inner.logical.keys().map(String::as_str)
    }

    /// Bytes of all stored tensors, scales included.
    pub fn total_bytes(&self) -> u64 {
        self.inner.bytes
    }

    pub(super) fn assemble(shards: Vec<Shard>) -> Result<Index, Error> {
        let mut stored: HashMap<String, Part> = HashMap::new();
        let mut stamps: HashMap<String, String> = HashMap::new();
        let mut bytes = 0u64;
        for (number, shard) in shards.iter().enumerate() {
            let header = header::parse(shard.bytes())
                .map_err(|source| Error::Header { file: shard.label().to_owned(), source })?;
            for tensor in header.tensors {
                let header::Stored { name, dtype, shape, range, tiles } = tensor;
                bytes = bytes.saturating_add(range.len() as u64);
                if let Some(other) = stored.get(&name) {
                    let first = shards[other.shard].label().to_owned();
                    return Err(Error::Duplicate { name, first, second: shard.label().to_owned() });
                }
                stored.insert(name, Part { shard: number, dtype, shape, range, tiles });
            }
            for (name, stamp) in header.stamps {
                add_stamp(&mut stamps, name, stamp, shard.label())?;
            }
        }
        let logical = logical::group(&stored, stamps);
        let shards = shards.into_iter().map(Arc::new).collect();
        Ok(Index { inner: Arc::new(Inner { shards, logical, bytes }) })
    }

    pub(super) fn logical(&self) -> &BTreeMap<String, Logical> {
        &self.inner.logical
    }

    pub(super) fn shards(&self) -> &[Arc<Shard>] {
        &self.inner.shards
    }

    /// The same files with other logical tensors.
    pub(super) fn with_logical(&self, logical: BTreeMap<String, Logical>) -> Index {
        let Inner { shards, bytes, .. } = &*self.inner;
        Index { inner: Arc::new(Inner { shards: shards.clone(), logical, bytes: *bytes }) }
    }

    pub(super) fn shard(&self, part: &Part) -> &Arc<Shard> {
        &self.inner.shards[part.shard]
    }
}

/// Repeating a stamp in several shards is normal, contradicting it is not.
fn add_stamp(stamps: &mut HashMap<String, String>, name: String, stamp: String, file: &str) -> Result<(), Error> {
    match stamps.get(&name) {
        Some(first) if *first != stamp => {
            let (first, file) = (first.clone(), file.to_owned());
            Err(Error::StampConflict { name, first, second: stamp, file })
        }
        _ => {
            stamps.insert(name, stamp);
            Ok(())
        }
    }
}

/// The safetensors files of a directory, sorted.
fn shard_files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let index = dir.join(INDEX_FILE);
    if index.exists() {
        return indexed_files(dir, &index);
    }
    let single = dir.join(SINGLE_FILE);
    if single.exists() {
        // Other .safetensors files next to it are not shards: adapters, test vectors, other copies.
        return Ok(vec![single]);
    }
    let io = |source| Error::Io { path: dir.display().to_string(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Error::NoShards { dir: dir.display().to_string() });
    }
    files.sort();
    Ok(files)
}

#[derive(Deserialize)]
struct ShardIndex {
    weight_map: Pairs<String>,
}

/// The shards an index file names.
fn indexed_files(dir: &Path, index: &Path) -> Result<Vec<PathBuf>, Error> {
    let label = || index.display().to_string();
    let bad = |why: String| Error::BadIndex { index: label(), why };
    let io = |source| Error::Io { path: label(), source };
    let metadata = std::fs::metadata(index).map_err(io)?;
    if !metadata.is_file() || metadata.len() > MAX_HEADER {
        return Err(bad(format!("not a file of at most {MAX_HEADER} bytes")));
    }
    let text = std::fs::read(index).map_err(io)?;
    let parsed: ShardIndex = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    let Pairs(map) = parsed.weight_map;
    if let Some(name) = repeated(map.iter().map(|(name, _)| name.as_str())) {
        return Err(bad(format!("it lists `{name}` twice")));
    }
    let shards: BTreeSet<&str> = map.iter().map(|(_, shard)| shard.as_str()).collect();
    if shards.is_empty() {
        return Err(bad("its weight_map is empty".to_owned()));
    }
    let mut files = Vec::new();
    for shard in shards {
        // An index has no business outside its own directory.
        if Path::new(shard).file_name().is_none_or(|name| name != shard) {
            return Err(bad(format!("`{shard}` is not a plain file name")));
        }
        let path = dir.join(shard);
        if !path.exists() {
            return Err(Error::MissingShard { index: label(), shard: shard.to_owned() });
        }
        files.push(path);
    }
    Ok(files)
}
