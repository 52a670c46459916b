//! The tiny random-weight checkpoints of `tests/fixtures` with the outputs of an independent implementation.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;

use super::generate;
use super::safetensors::{self, Tensor};

/// All fixtures.
pub const ALL: [&str; 8] = [
    "glm_moe_dsa",
    "glm_moe_dsa_w256",
    "kimi_linear",
    "kimi_k3",
    "deepseek_v4",
    "deepseek_v4_native",
    "qwen3",
    "qwen3_moe",
];

/// Files of `tests/fixtures/NAME` that are no part of the checkpoint.
const NOT_CHECKPOINT: [&str; 4] = ["recipe.json", "head.safetensors", "reference.json", "reference.safetensors"];

/// In a generated folder: the hash of what it was generated from.
const STAMP: &str = "generated_from.hash";

/// A checkpoint and its reference.
pub struct Fixture {
    pub name: String,
    /// The checkpoint, in the layout of the published model.
    pub dir: PathBuf,
    pub prompt_len: usize,
    /// The prompt, then the greedy continuation.
    pub ids: Vec<u32>,
    /// `[ids.len(), vocab]`; row t predicts token t + 1.
    pub logits: Vec<f32>,
    pub vocab: usize,
    pub tokenizer_tests: Vec<TokenizerTest>,
    pub reference: Reference,
}

/// A text and its token ids.
#[derive(Clone, Debug, Deserialize)]
pub struct TokenizerTest {
    pub text: String,
    pub ids: Vec<u32>,
}

/// The tensors of `reference.safetensors`; `tests/fixtures/README.md` says what they mean.
pub struct Reference {
    tensors: BTreeMap<String, Tensor>,
}

impl Reference {
    pub fn read(path: &Path) -> Self {
        Self { tensors: safetensors::read(path).into_iter().collect() }
    }

    /// Shape and values, if there is such a tensor and it is of floats.
    pub fn f32(&self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        let tensor = self.tensors.get(name)?;
        Some((tensor.shape.clone(), tensor.f32()?))
    }

    /// Shape and values, if there is such a tensor and it is of integers.
    pub fn i32(&self, name: &str) -> Option<(Vec<usize>, Vec<i32>)> {
        let tensor = self.tensors.get(name)?;
        Some((tensor.shape.clone(), tensor.i32()?))
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }
}

/// `reference.json`.
#[derive(Deserialize)]
struct Record {
    prompt_len: usize,
    total_len: usize,
    prompt_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    tokenizer_tests: Vec<TokenizerTest>,
}

/// A fixture by name; its checkpoint is generated first if it is not a committed one.
pub fn fixture(name: &str) -> Fixture {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let reference = Reference::read(&committed.join("reference.safetensors"));
    let text = fs::read(committed.join("reference.json")).expect("reference.json");
    let record: Record = serde_json::from_slice(&text).expect("reference.json");
    let (shape, logits) = reference.f32("logits").expect("logits");
    let ids = [record.prompt_ids, record.greedy_ids].concat();
    assert_eq!(ids.len(), record.total_len, "{name}");
    assert_eq!(shape[0], record.total_len, "{name}");
    let dir = if committed.join("recipe.json").exists() {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fixtures");
        generated(&committed, &cache, name)
    } else {
        committed
    };
    Fixture {
        name: name.to_owned(),
        dir,
        prompt_len: record.prompt_len,
        ids,
        logits,
        vocab: shape[1],
        tokenizer_tests: record.tokenizer_tests,
        reference,
    }
}

/// Relative L2 distance, `|got - want| / |want|`.
pub fn rel_l2(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let pairs = || got.iter().zip(want).map(|(g, w)| (f64::from(*g), f64::from(*w)));
    let error: f64 = pairs().map(|(g, w)| (g - w).powi(2)).sum();
    let norm: f64 = pairs().map(|(_, w)| w.powi(2)).sum();
    (error / norm).sqrt()
}

/// The folder `cache/NAME` with the checkpoint, generated unless it is already there and current.
///
/// A file lock serialises test threads and processes. The checkpoint is written to another folder and
/// renamed, so an interrupted run leaves no half-written one under its name.
fn generated(committed: &Path, cache: &Path, name: &str) -> PathBuf {
    fs::create_dir_all(cache).expect("cache folder");
    let lock = File::create(cache.join(format!("{name}.lock"))).expect("lock file");
    lock.lock().expect("lock"); // released when this function returns
    let (dir, stamp) = (cache.join(name), stamp(committed));
    if fs::read_to_string(dir.join(STAMP)).is_ok_and(|found| found == stamp) {
        return dir;
    }
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let fresh = cache.join(format!("{name}.{}.{serial}", process::id()));
    fs::create_dir_all(&fresh).expect("temporary folder");
    generate::write_checkpoint(committed, &fresh);
    for file in files(committed).iter().filter(|file| !NOT_CHECKPOINT.contains(&file.as_str())) {
        fs::copy(committed.join(file), fresh.join(file)).expect("copy");
    }
    fs::write(fresh.join(STAMP), stamp).expect("stamp");
    if dir.exists() {
        fs::remove_dir_all(&dir).expect("remove the outdated checkpoint");
    }
    fs::rename(&fresh, &dir).expect("rename");
    dir
}

/// A hash of all committed files that a generated checkpoint depends on.
fn stamp(committed: &Path) -> String {
    let mut hashes = String::new();
    for file in files(committed).iter().filter(|file| !file.starts_with("reference.")) {
        let bytes = fs::read(committed.join(file)).expect("committed file");
        hashes += &format!("{file} {:016x}\n", generate::fnv1a64(&bytes));
    }
    hashes
}

/// The names of the files in a folder, sorted.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("fixture folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8 name")).collect();
    names.sort();
    names
}
