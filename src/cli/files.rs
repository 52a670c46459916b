//! Graph files, models and texts by what the user typed.

use super::demo;
use super::failure::Failure;
use crate::run::ModelSource;
use crate::spec::{Arch, Source};
use crate::text::Files;
use std::io::Read;
use std::path::Path;

macro_rules! graph {
    ($name:literal) => {
        ($name, include_str!(concat!("../../graphs/", $name, ".ron")))
    };
}

/// Graph files that travel inside the program, usable by bare name from any folder.
const BUILT_IN: [(&str, &str); 6] = [
    graph!("deepseek_v4_flash"),
    graph!("glm52"),
    graph!("kimi_k3"),
    graph!("kimi_linear"),
    graph!("qwen3"),
    graph!("qwen3_moe"),
];

/// Reads a graph file, or one of the built-in ones by name (`glm52`).
pub fn graph(name: &str) -> Result<Arch, Failure> {
    let source = match (std::fs::read_to_string(name), BUILT_IN.iter().find(|b| b.0 == name)) {
        (Ok(text), _) => Source::new(name, text),
        (Err(_), Some((name, text))) => Source::new(format!("{name} (built in)"), *text),
        (Err(e), None) => {
            let known: Vec<&str> = BUILT_IN.iter().map(|b| b.0).collect();
            let why = format!("{e}; give the path of a graph file, or one of the built-in {}", known.join(", "));
            return Err(Failure::File { path: name.into(), source: std::io::Error::new(e.kind(), why) });
        }
    };
    Ok(Arch::parse(source)?)
}

/// The model of `--model`, or the embedded one.
pub fn model(dir: Option<&Path>) -> Result<ModelSource, Failure> {
    match dir {
        Some(dir) => Ok(ModelSource::Dir(dir.to_path_buf())),
        None => {
            demo::source().ok_or_else(|| Failure::Usage("this build has no embedded model: give --model DIR".into()))
        }
    }
}

/// A text file, or stdin for `-`.
pub fn text(path: &Path) -> Result<String, Failure> {
    let read = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|source| Failure::File { path: path.display().to_string(), source })
}

impl Files for ModelSource {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, std::io::Error> {
        ModelSource::read(self, name)
    }

    fn label(&self) -> String {
        ModelSource::label(self)
    }
}

/// `32k`, `4096`: a count with an optional binary suffix.
pub fn parse_count(text: &str) -> Result<u32, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let n: u32 = digits.parse().map_err(|_| format!("`{text}` is not a number such as 4096 or 32k"))?;
    match n.checked_mul(factor) {
        Some(n) if n > 0 => Ok(n),
        _ => Err(format!("`{text}` must be between 1 and {}", u32::MAX)),
    }
}
