//! Regenerates a random-weight checkpoint from its recipe, byte for byte.
//!
//! A recipe (`tests/tools/make_recipes.py`) lists the tensors of each file with the kind of their random
//! values and the hash of their bytes; only the output head is stored. Every tensor is an independent
//! splitmix64 stream started at the hash of `SEED:NAME`, so nothing depends on an order of drawing.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::safetensors::{self, Tensor};

#[derive(Deserialize)]
struct Recipe {
    seed: u64,
    files: Vec<RecipeFile>,
}

#[derive(Deserialize)]
struct RecipeFile {
    file: String,
    /// In the order of the file's data.
    tensors: Vec<Entry>,
}

/// One line of a recipe.
#[derive(Deserialize)]
struct Entry {
    name: String,
    shape: Vec<usize>,
    kind: String,
    gain: f64,
    mean: f64,
    hash: String,
}

/// Writes the checkpoint files of the recipe in `fixture` to the existing folder `to`.
///
/// Panics if a tensor's bytes differ from those that the recipe was made from.
pub fn write_checkpoint(fixture: &Path, to: &Path) {
    let text = fs::read(fixture.join("recipe.json")).expect("recipe.json");
    let recipe: Recipe = serde_json::from_slice(&text).expect("recipe.json");
    let head = fixture.join("head.safetensors");
    let stored = if head.exists() { safetensors::read(&head) } else { Vec::new() };
    for file in &recipe.files {
        let mut tensors = Vec::with_capacity(file.tensors.len());
        for entry in &file.tensors {
            let tensor = match entry.kind.as_str() {
                "stored" => stored.iter().find(|(name, _)| *name == entry.name).expect("stored tensor").1.clone(),
                _ => draw(entry, recipe.seed),
            };
            let hash = format!("{:016x}", fnv1a64(&tensor.data));
            assert_eq!(hash, entry.hash, "{} of {} was not regenerated exactly", entry.name, fixture.display());
            tensors.push((entry.name.clone(), tensor));
        }
        safetensors::write(&to.join(&file.file), &tensors);
    }
}

/// FNV-1a, 64 bits.
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The splitmix64 outputs for a start value.
pub fn splitmix64(start: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |step: u64| {
        let z = start.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// A random tensor. The arithmetic is in f64 and rounded once to f32, then to bf16 if that is stored.
fn draw(entry: &Entry, seed: u64) -> Tensor {
    let words = splitmix64(fnv1a64(format!("{seed}:{}", entry.name).as_bytes()));
    if entry.kind == "tid2eid" {
        return draw_expert_table(&entry.shape, entry.gain as usize, words);
    }
    let fan_in: usize = entry.shape[1..].iter().product();
    let (factor, mean) = match entry.kind.as_str() {
        "lin" => ((3.0 / fan_in as f64).sqrt() * entry.gain, 0.0),
        "emb" => (3.0_f64.sqrt() * entry.gain, 0.0),
        "norm" => (0.3, 1.0),
        "uni" => (entry.gain, entry.mean),
        other => panic!("{}: kind {other} cannot be regenerated", entry.name),
    };
    let count = entry.shape.iter().product();
    let values: Vec<f32> = words.take(count).map(|word| (mean + factor * unit(word)) as f32).collect();
    match entry.kind.as_str() {
        "uni" => Tensor::from_f32(&entry.shape, &values),
        _ => Tensor::from_f32_as_bf16(&entry.shape, &values),
    }
}

/// The upper 24 bits of a word as a number in (-1, 1).
fn unit(word: u64) -> f64 {
    ((word >> 40) as f64 + 0.5) / f64::from(1 << 23) - 1.0
}

/// Per token the experts with the smallest of that row's random words, smallest first.
fn draw_expert_table(shape: &[usize], experts: usize, mut words: impl Iterator<Item = u64>) -> Tensor {
    let mut table = Vec::with_capacity(shape[0] * shape[1]);
    for _ in 0..shape[0] {
        let mut row: Vec<(u64, i64)> = words.by_ref().zip(0_i64..).take(experts).collect();
        row.sort_unstable();
        table.extend(row[..shape[1]].iter().map(|(_, expert)| *expert));
    }
    Tensor::from_i64(shape, &table)
}
