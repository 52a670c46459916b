//! The record of a conversion: what was made from what, and how far it has come.

use super::options::Options;
use super::plan::Part;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Name of the receipt in the output directory.
pub const RECEIPT: &str = "coli-convert.json";

/// Written before the first shard and after each one; complete at the end. Has no times, paths or thread counts, so
/// that the same conversion leaves the same receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Version of this layout: 1.
    pub schema: u32,
    /// Program and version.
    pub program: String,
    /// SHA-256 of the graph file's text, in hex.
    pub graph: String,
    /// As asked for.
    pub options: Options,
    /// Every file that was read.
    pub source: Vec<FileRecord>,
    /// Whether every file is written.
    pub complete: bool,
    /// Finished shards.
    pub shards: Vec<ShardRecord>,
}

/// A file of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// File name, without its directory.
    pub file: String,
    /// Bytes.
    pub bytes: u64,
    /// In hex.
    pub sha256: String,
}

/// A finished shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// Name, size and hash.
    #[serde(flatten)]
    pub file: FileRecord,
    /// What it holds, in order.
    pub tensors: Vec<TensorRecord>,
}

/// A tensor of a finished shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorRecord {
    /// Logical name.
    pub name: String,
    /// What it is for.
    pub part: Part,
    /// Format in the source; `stored` for tensors that the graph ignores.
    pub from: String,
    /// Format in the output.
    pub to: String,
    /// Bytes in the source.
    pub bytes_before: u64,
    /// Bytes in the output.
    pub bytes: u64,
    /// Frobenius norm of the difference by that of the source's values; 0 for copies.
    pub error: f64,
}

impl Receipt {
    /// One line for everything but the source in which two conversions differ, theirs first.
    pub(super) fn other_options(&self, now: &Receipt) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |what: &str, then: String, now: String| {
            if then != now {
                lines.push(format!("{what}: {then} then, {now} now"));
            }
        };
        let io = |o: &Options| o.io.map_or("left out".to_owned(), |t| t.to_string());
        let (then, new) = (&self.options, &now.options);
        compare("--experts", then.experts.to_string(), new.experts.to_string());
        compare("--dense", then.dense.to_string(), new.dense.to_string());
        compare("--io", io(then), io(new));
        compare("--shard-size", then.shard_bytes.to_string(), new.shard_bytes.to_string());
        compare("--drop-ignored", then.drop_ignored.to_string(), new.drop_ignored.to_string());
        compare("program", self.program.clone(), now.program.clone());
        compare("graph (SHA-256)", self.graph.clone(), now.graph.clone());
        lines
    }

    /// One line for every file of the source that is another.
    pub(super) fn other_source(&self, now: &Receipt) -> Vec<String> {
        let mut lines = Vec::new();
        for old in &self.source {
            match now.source.iter().find(|f| f.file == old.file) {
                None => lines.push(format!("source file {}: there then, not now", old.file)),
                Some(f) if f != old => lines.push(format!("source file {}: another content", old.file)),
                Some(_) => {}
            }
        }
        for f in now.source.iter().filter(|f| self.source.iter().all(|old| old.file != f.file)) {
            lines.push(format!("source file {}: not there then", f.file));
        }
        lines
    }

    /// One line for every two formats of which finished tensors were read as the one, and `now` (by name) are as the other.
    pub(super) fn other_reading(&self, now: &HashMap<&str, String>) -> Vec<String> {
        let mut found: BTreeMap<(&str, &str), (&str, usize)> = BTreeMap::new();
        for t in self.tensors() {
            if let Some(format) = now.get(t.name.as_str()).filter(|format| **format != t.from) {
                found.entry((&t.from, format)).or_insert((&t.name, 0)).1 += 1;
            }
        }
        let line = |((then, now), (name, count)): (_, (_, usize))| {
            let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            format!("--read-as: {name}{more} read as {then} then, as {now} now")
        };
        found.into_iter().map(line).collect()
    }

    /// All finished tensors.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorRecord> {
        self.shards.iter().flat_map(|s| &s.tensors)
    }
}
