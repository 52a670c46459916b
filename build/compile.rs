//! One variant: expand its includes, look it up by hash, else compile it with glslang.

use super::{Compiled, Variant, reflect, tables};
use glslang::error::GlslangError;
use glslang::include::{IncludeHandler, IncludeResult, IncludeType};
use glslang::{
    Compiler, CompilerOptions, Shader, ShaderInput, ShaderSource, ShaderStage, SourceLanguage, SpirvVersion, Target,
    VulkanVersion,
};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Belongs to the hash: raise it when the options below change.
const OPTIONS: &str = "glslang 0.9.1, vulkan 1.2, spir-v 1.5, 1";

/// Every file that a shader includes, by the name in its `#include`.
type Includes = BTreeMap<String, String>;

/// Compiles a variant, or takes it from the cache, and reflects it.
pub fn variant(variant: &Variant, cache: &Path) -> Result<Compiled, String> {
    let source = std::fs::read_to_string(&variant.path).map_err(|e| e.to_string())?;
    let mut includes = Includes::new();
    let dir = variant.path.parent().unwrap_or(Path::new("."));
    collect_includes(&source, dir, &mut includes)?;
    let file = format!("{}-{}.spv", variant.name, hash(&source, &includes, &variant.defines));
    let path = cache.join(&file);
    let words = match read_words(&path) {
        Some(words) => words,
        None => {
            let words = compile(variant, &source, includes)?;
            write_words(&path, &words).map_err(|e| format!("{}: {e}", path.display()))?;
            words
        }
    };
    let interface = reflect::interface(&words)?;
    Ok(Compiled { name: variant.name.clone(), file, bytes: words.len() * 4, interface })
}

/// Reads what `#include "x"` lines name, and what those files include in turn. Includes in dead branches count too.
fn collect_includes(source: &str, dir: &Path, found: &mut Includes) -> Result<(), String> {
    for line in source.lines() {
        let Some(rest) = line.trim_start().strip_prefix('#').and_then(|r| r.trim_start().strip_prefix("include"))
        else {
            continue;
        };
        let Some(name) = rest.split('"').nth(1) else {
            return Err(format!("cannot read `{}`: write #include \"file.glsl\"", line.trim()));
        };
        if found.contains_key(name) {
            continue;
        }
        let text = match name {
            tables::NAME => tables::glsl(),
            _ => std::fs::read_to_string(dir.join(name)).map_err(|e| format!("#include \"{name}\": {e}"))?,
        };
        found.insert(name.to_owned(), text.clone());
        collect_includes(&text, dir, found)?;
    }
    Ok(())
}

/// 128 bits over everything that decides the SPIR-V.
fn hash(source: &str, includes: &Includes, defines: &[String]) -> String {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, OPTIONS, source, includes, defines).hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(0), half(1))
}

fn read_words(path: &Path) -> Option<Vec<u32>> {
    let bytes = std::fs::read(path).ok()?;
    Some(bytes.chunks_exact(4).map(|c| u32::from_ne_bytes([c[0], c[1], c[2], c[3]])).collect())
}

/// Written beside and renamed, so that an interrupted build leaves no half file under a valid name.
fn write_words(path: &Path, words: &[u32]) -> std::io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let part = path.with_extension("part");
    std::fs::write(&part, bytes)?;
    std::fs::rename(&part, path)
}

/// Hands glslang the files that were read already.
struct Handler(Includes);

impl IncludeHandler for Handler {
    fn include(&mut self, _: IncludeType, name: &str, _: &str, _: usize) -> Option<IncludeResult> {
        self.0.get(name).map(|data| IncludeResult { name: name.to_owned(), data: data.clone() })
    }
}

fn compile(variant: &Variant, source: &str, includes: Includes) -> Result<Vec<u32>, String> {
    let compiler = Compiler::acquire().ok_or("glslang does not start")?;
    let options = CompilerOptions {
        source_language: SourceLanguage::GLSL,
        target: Target::Vulkan { version: VulkanVersion::Vulkan1_2, spirv_version: SpirvVersion::SPIRV1_5 },
        ..CompilerOptions::default()
    };
    let defines: Vec<(&str, Option<&str>)> = variant.defines.iter().map(|d| (d.as_str(), Some("1"))).collect();
    let source = ShaderSource::from(source);
    let mut handler = Handler(includes);
    let input = ShaderInput::new(&source, ShaderStage::Compute, &options, Some(&defines), Some(&mut handler));
    let input = input.map_err(|e| message(variant, &e))?;
    let shader = Shader::new(compiler, input).parse().map_err(|e| message(variant, &e))?;
    for warning in shader.get_log().lines().filter(|l| l.starts_with("WARNING")) {
        println!("cargo::warning=shader {}: {warning}", variant.name);
    }
    shader.compile().map_err(|e| message(variant, &e))
}

/// The file and glslang's own lines, without the name of the phase and empty logs.
fn message(variant: &Variant, error: &GlslangError) -> String {
    let text = error.to_string();
    let lines = text.lines().map(|l| l.trim_end_matches("DebugLog:").trim_end_matches("Log:").trim());
    let lines = lines.filter(|l| !l.is_empty());
    format!("{}\n{}", variant.path.display(), lines.collect::<Vec<_>>().join("\n"))
}
