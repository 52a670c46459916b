//! A plan to a directory.

use super::dest::{Dest, hash, hash_file};
use super::error::Error;
use super::layout::Shard;
use super::plan::Plan;
use super::receipt::{FileRecord, RECEIPT, Receipt, ShardRecord, TensorRecord};
use super::shard;
use crate::formats::Format;
use crate::graph::Graph;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Endings of the files that are copied along: configuration, tokenizer, chat template, licence.
const SIDE: [&str; 6] = ["json", "jinja", "txt", "model", "tiktoken", "md"];

/// Largest file that is copied along; a tokenizer has 30 MB at most.
const SIDE_BYTES: u64 = 256 << 20;

const INDEX: &str = "model.safetensors.index.json";

/// What takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Hashing the source's files.
    Hash,
    /// Hashing shards that an earlier run finished.
    Verify,
    /// Making shards.
    Write,
}

/// Told about progress, from several threads.
pub trait Watch: Sync {
    /// A phase of so many bytes begins.
    fn begin(&self, phase: Phase, bytes: u64);
    /// So many of its bytes are done.
    fn done(&self, bytes: u64);
}

/// Where the weights of a plan come from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The model directory.
    pub dir: &'a Path,
    /// The graph that the plan was made with.
    pub graph: &'a Graph,
}

/// What a run did.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Complete.
    pub receipt: Receipt,
    /// Shards that an earlier run had finished.
    pub kept: usize,
    /// Shards that were in the receipt and not, or not any more, as it says; they were made again.
    pub damaged: Vec<String>,
}

/// Writes the plan to `dir`, or what an earlier run has left to write.
///
/// # Errors
/// [`Error`]. Finished shards stay, and the next run goes on behind them.
pub fn run(plan: &Plan, source: Source, dir: &Path, threads: usize, watch: &dyn Watch) -> Result<Outcome, Error> {
    let (from, to) = (fs::canonicalize(source.dir), fs::canonicalize(dir));
    if let (Ok(from), Ok(to)) = (&from, &to)
        && from == to
    {
        return Err(Error::Same { dir: dir.display().to_string() });
    }
    let (dest, earlier) = Dest::open(dir)?;
    let differs = |differences: Vec<String>| match differences.is_empty() {
        true => Ok(()),
        false => Err(Error::Differs { dir: dir.display().to_string(), differences }),
    };
    let mut receipt = begin(plan, source);
    // Before the source is hashed, which takes minutes where it is large.
    differs(earlier.as_ref().map_or(Vec::new(), |e| e.other_options(&receipt)))?;
    let side = side_files(source.dir)?;
    receipt.source = hash_source(plan, &side, threads, watch)?;
    differs(earlier.as_ref().map_or(Vec::new(), |e| e.other_source(&receipt)))?;
    // From the same files only `--read-as` makes other formats; what is finished was made from those of then.
    let read = plan.tensors.iter().map(|t| (t.name.as_str(), named(t.from))).collect();
    differs(earlier.as_ref().map_or(Vec::new(), |e| e.other_reading(&read)))?;
    let mut outcome = match earlier {
        None => Outcome { receipt: receipt.clone(), kept: 0, damaged: Vec::new() },
        Some(earlier) => verify(plan, &dest, &earlier, &mut receipt, watch)?,
    };
    put_receipt(&dest, &receipt)?;
    write_shards(plan, &dest, &mut receipt, threads, watch)?;
    copy_side(&dest, &side, &receipt)?;
    dest.put(INDEX, shard_index(plan).as_bytes())?;
    receipt.complete = true;
    put_receipt(&dest, &receipt)?;
    outcome.receipt = receipt;
    Ok(outcome)
}

/// The receipt of a run that has read and written nothing.
fn begin(plan: &Plan, source: Source) -> Receipt {
    Receipt {
        schema: 1,
        program: concat!("coli ", env!("CARGO_PKG_VERSION")).into(),
        graph: hash(source.graph.source.text.as_bytes(), &|_| {}),
        options: plan.options.clone(),
        source: Vec::new(),
        complete: false,
        shards: Vec::new(),
    }
}

/// Copies the files that are no weights: what the receipt says, though hours may lie between.
fn copy_side(dest: &Dest, side: &[Side], receipt: &Receipt) -> Result<(), Error> {
    for Side { name, path } in side {
        let bytes = fs::read(path).map_err(Error::io(path))?;
        let found = FileRecord { file: name.clone(), bytes: bytes.len() as u64, sha256: hash(&bytes, &|_| {}) };
        if !receipt.source.contains(&found) {
            return Err(Error::Changed { path: path.display().to_string() });
        }
        dest.put(name, &bytes)?;
    }
    Ok(())
}

/// Every file that is read, a thread a file.
fn hash_source(plan: &Plan, side: &[Side], threads: usize, watch: &dyn Watch) -> Result<Vec<FileRecord>, Error> {
    let weights: Vec<(&str, &[u8])> = plan.index.files().collect();
    watch.begin(Phase::Hash, weights.iter().map(|f| f.1.len() as u64).sum());
    let (next, hashes) = (AtomicUsize::new(0), Mutex::new(vec![String::new(); weights.len()]));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, weights.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, file)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    weights.get(at).map(|file| (at, file))
                } {
                    let hash = hash(file.1, &|n| watch.done(n));
                    hashes.lock().unwrap_or_else(PoisonError::into_inner)[at] = hash;
                }
            });
        }
    });
    let hashes = hashes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut records = Vec::new();
    for ((path, bytes), sha256) in weights.iter().zip(hashes) {
        records.push(FileRecord { file: file_name(Path::new(path)), bytes: bytes.len() as u64, sha256 });
    }
    for Side { name, path } in side {
        if let Some((bytes, sha256)) = hash_file(path, &|_| {})? {
            records.push(FileRecord { file: name.clone(), bytes, sha256 });
        }
    }
    Ok(records)
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |n| n.display().to_string())
}

/// Takes over the shards of an earlier run that are what it says they are.
fn verify(
    plan: &Plan,
    dest: &Dest,
    earlier: &Receipt,
    receipt: &mut Receipt,
    watch: &dyn Watch,
) -> Result<Outcome, Error> {
    watch.begin(Phase::Verify, earlier.shards.iter().map(|s| s.file.bytes).sum());
    let mut damaged = Vec::new();
    for record in &earlier.shards {
        let known = plan.shards.iter().any(|s| s.file == record.file.file && s.bytes == record.file.bytes);
        let found = hash_file(&dest.path(&record.file.file), &|n| watch.done(n))?;
        let same =
            found.is_some_and(|(bytes, sha256)| (bytes, sha256) == (record.file.bytes, record.file.sha256.clone()));
        if known && same {
            receipt.shards.push(record.clone());
        } else {
            damaged.push(record.file.file.clone());
        }
    }
    Ok(Outcome { receipt: receipt.clone(), kept: receipt.shards.len(), damaged })
}

/// Makes the shards that the receipt does not have, and enters each.
fn write_shards(
    plan: &Plan,
    dest: &Dest,
    receipt: &mut Receipt,
    threads: usize,
    watch: &dyn Watch,
) -> Result<(), Error> {
    let has = |receipt: &Receipt, shard: &Shard| receipt.shards.iter().any(|r| r.file.file == shard.file);
    let missing: Vec<&Shard> = plan.shards.iter().filter(|s| !has(receipt, s)).collect();
    missing.iter().try_for_each(|s| dest.clear(&s.file))?;
    dest.check_space(missing.iter().map(|s| s.bytes).sum())?;
    let in_shards = |shard: &Shard| plan.tensors[shard.tensors.clone()].iter().flat_map(|t| &t.pieces);
    watch.begin(Phase::Write, missing.iter().flat_map(|s| in_shards(s)).map(|p| p.data).sum());
    for shard in missing {
        let path = dest.temporary(&shard.file);
        let errors = shard::write(plan, shard, &path, threads, watch)?;
        let (bytes, sha256) = hash_file(&path, &|_| {})?.unwrap_or_default();
        if bytes != shard.bytes {
            return Err(Error::Written { path: path.display().to_string(), need: shard.bytes, found: bytes });
        }
        dest.publish(&shard.file)?;
        let file = FileRecord { file: shard.file.clone(), bytes, sha256 };
        receipt.shards.push(ShardRecord { file, tensors: records(plan, shard, &errors) });
        // A damaged one may be made again behind later ones.
        receipt.shards.sort_by(|a, b| a.file.file.cmp(&b.file.file));
        put_receipt(dest, receipt)?;
    }
    Ok(())
}

/// A format as the receipt names it.
fn named(format: Option<Format>) -> String {
    format.map_or("stored".to_owned(), |f| f.name().into_owned())
}

fn records(plan: &Plan, shard: &Shard, errors: &[Option<f64>]) -> Vec<TensorRecord> {
    let tensors = plan.tensors[shard.tensors.clone()].iter().zip(errors);
    tensors
        .map(|(t, error)| TensorRecord {
            name: t.name.clone(),
            part: t.part,
            from: named(t.from),
            to: named(t.to.or(t.from)),
            bytes_before: t.bytes_before,
            bytes: t.bytes(),
            error: error.unwrap_or(0.0),
        })
        .collect()
}

fn put_receipt(dest: &Dest, receipt: &Receipt) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(receipt)
        .map_err(|why| Error::Receipt { path: RECEIPT.into(), why: why.to_string() })?;
    dest.put(RECEIPT, (text + "\n").as_bytes())
}

/// Which tensor is in which file, as every reader of sharded models expects.
fn shard_index(plan: &Plan) -> String {
    let mut map = Map::new();
    let mut total = 0;
    for shard in &plan.shards {
        for piece in plan.tensors[shard.tensors.clone()].iter().flat_map(|t| &t.pieces) {
            map.insert(piece.name.clone(), shard.file.as_str().into());
            total += piece.bytes;
        }
    }
    let index = json!({"metadata": {"total_size": total}, "weight_map": Value::Object(map)});
    format!("{index:#}\n")
}

/// A file that is copied along.
struct Side {
    name: String,
    path: PathBuf,
}

/// The files of a model that are no weights, sorted.
///
/// # Errors
/// [`Error::Name`], [`Error::Io`].
fn side_files(dir: &Path) -> Result<Vec<Side>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io(dir))? {
        let path = entry.map_err(Error::io(dir))?.path();
        let name = file_name(&path);
        let ending = path.extension().and_then(|e| e.to_str()).is_some_and(|e| SIDE.contains(&e));
        let wanted = ending || name.starts_with("LICENSE") || name.starts_with("NOTICE");
        let hidden = name.starts_with('.') || name == RECEIPT || name.ends_with(".index.json");
        // Follows links: a downloaded snapshot is made of them.
        let small = fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= SIDE_BYTES);
        if wanted && !hidden && small {
            // The receipt has names as text.
            if path.file_name().and_then(|n| n.to_str()).is_none() {
                return Err(Error::Name { path: path.display().to_string() });
            }
            found.push(Side { name, path });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
