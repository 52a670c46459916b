//! The shader part of the build: GLSL in, embedded SPIR-V with its interface out.
//!
//! Every `*.comp` of a directory is compiled for Vulkan 1.2, once per weight format if its first line asks for that
//! (`// formats: f32 bf16`), or once more for caches of another type than f32 (`// caches: f16`). Those of formats of bytes that
//! take inputs in digits have a twin `.plain` that takes them as they are, for devices without dot products of bytes. `shaders.rs` is
//! written to the output directory for `src/vk/shader.rs` to include.
//! A compiled variant is named by a hash of all that went into it, so a build compiles what changed and nothing else.

mod compile;
mod emit;
mod reflect;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The formats that define BYTES.
const BYTES: [&str; 4] = ["i8", "i4", "i4g", "e8"];

/// One kernel, or one kernel for one weight format or type of caches.
pub struct Variant {
    /// `linear` or `linear.bf16`.
    pub name: String,
    pub path: PathBuf,
    /// `FORMAT_BF16` or `CACHES_F16`, and `PLAIN`, for the source to ask for.
    pub defines: Vec<String>,
}

/// A compiled variant: where its SPIR-V lies and what its interface is.
pub struct Compiled {
    pub name: String,
    pub file: String,
    pub bytes: usize,
    pub interface: reflect::Interface,
}

/// Compiles the shaders of `shader_dir` and writes `out_dir/shaders.rs`. A failure ends the build script.
pub fn build(shader_dir: &Path, out_dir: &Path) {
    println!("cargo::rerun-if-changed={}", shader_dir.display());
    if let Err(messages) = try_build(shader_dir, out_dir) {
        for message in messages {
            eprintln!("{message}\n");
            // Cargo shows one line an error; the whole text is in the output of the build script.
            let first = message.lines().filter(|l| !l.trim().is_empty()).take(3).collect::<Vec<_>>().join(" | ");
            println!("cargo::error={first}");
        }
        std::process::exit(1);
    }
}

fn try_build(shader_dir: &Path, out_dir: &Path) -> Result<(), Vec<String>> {
    let variants = variants(shader_dir).map_err(|e| vec![e])?;
    let cache = out_dir.join("spirv");
    std::fs::create_dir_all(&cache).map_err(|e| vec![format!("{}: {e}", cache.display())])?;
    let compiled = compile_all(&variants, &cache)?;
    forget_stale(&cache, &compiled);
    let target = out_dir.join("shaders.rs");
    std::fs::write(&target, emit::source(&compiled)).map_err(|e| vec![format!("{}: {e}", target.display())])
}

/// The variants of every `*.comp`, by name.
fn variants(shader_dir: &Path) -> Result<Vec<Variant>, String> {
    let entries = std::fs::read_dir(shader_dir).map_err(|e| format!("{}: {e}", shader_dir.display()))?;
    let mut variants = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| format!("{}: {e}", shader_dir.display()))?.path();
        if path.extension().is_none_or(|x| x != "comp") {
            continue;
        }
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let made = |kind: &str, of: &str| Variant {
            name: format!("{stem}.{of}"),
            path: path.clone(),
            defines: vec![format!("{kind}_{}", of.to_uppercase())],
        };
        let formats = listed(&text, "formats:");
        variants.extend(formats.iter().map(|f| made("FORMAT", f)));
        if text.contains("#include \"digits.glsl\"") {
            let plain = |f: &&str| {
                let Variant { name, path, defines } = made("FORMAT", f);
                Variant { name: name + ".plain", path, defines: [defines, vec!["PLAIN".into()]].concat() }
            };
            variants.extend(formats.iter().filter(|f| BYTES.contains(f)).map(plain));
        }
        variants.extend(listed(&text, "caches:").iter().map(|c| made("CACHES", c)));
        if formats.is_empty() {
            variants.push(Variant { name: stem, path, defines: vec![] });
        }
    }
    variants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(variants)
}

/// The variants that the first line asks for, if it begins so.
fn listed<'a>(text: &'a str, begin: &str) -> Vec<&'a str> {
    let first = text.lines().next().and_then(|l| l.trim().strip_prefix("//"));
    let list = first.and_then(|l| l.trim().strip_prefix(begin));
    list.map_or(vec![], |l| l.split_whitespace().collect())
}

/// Compiles on all cores; every failing shader is reported, not only the first.
fn compile_all(variants: &[Variant], cache: &Path) -> Result<Vec<Compiled>, Vec<String>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs().min(variants.len()) {
            scope.spawn(|| {
                while let Some(variant) = variants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match compile::variant(variant, cache) {
                        Ok(compiled) => lock(&done).push(compiled),
                        Err(message) => lock(&failed).push(format!("shader {}: {message}", variant.name)),
                    }
                }
            });
        }
    });
    let mut failed = std::mem::take(&mut *lock(&failed));
    if !failed.is_empty() {
        failed.sort();
        return Err(failed);
    }
    let mut done = std::mem::take(&mut *lock(&done));
    done.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(done)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// As many threads as cargo was told to use.
fn jobs() -> usize {
    let told = std::env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok());
    told.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Removes variants of earlier builds; a file that cannot be removed does no harm.
fn forget_stale(cache: &Path, compiled: &[Compiled]) {
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        if !compiled.iter().any(|c| *c.file == *entry.file_name()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
