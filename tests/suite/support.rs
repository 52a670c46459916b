//! Loading fixtures into the library.

use crate::common::fixture::{Fixture, rel_l2};
use coli::run::{Model, ModelSource};
use coli::spec::{Arch, Source};
use std::path::PathBuf;

pub fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The graph file that describes a fixture.
pub fn graph_of(fixture: &str) -> &'static str {
    match fixture {
        "kimi_linear" => "kimi_linear",
        "kimi_k3" => "kimi_k3",
        "qwen3" => "qwen3",
        "qwen3_moe" => "qwen3_moe",
        f if f.starts_with("glm") => "glm52",
        _ => "deepseek_v4_flash",
    }
}

pub fn arch(name: &str) -> Arch {
    let path = root(&format!("graphs/{name}.ron"));
    let text = std::fs::read_to_string(&path).unwrap();
    Arch::parse(Source::new(format!("{name}.ron"), text)).unwrap_or_else(|e| panic!("{e}"))
}

pub fn load(f: &Fixture) -> Model {
    Model::load(&arch(graph_of(&f.name)), ModelSource::Dir(f.dir.clone())).unwrap_or_else(|e| panic!("{}: {e}", f.name))
}

/// Worst relative L2 over rows.
pub fn worst_row(got: &[f32], want: &[f32], width: usize) -> f64 {
    assert_eq!(got.len(), want.len());
    got.chunks(width).zip(want.chunks(width)).map(|(g, w)| rel_l2(g, w)).fold(0.0, f64::max)
}

pub fn argmax(row: &[f32]) -> u32 {
    coli::text::argmax(row).unwrap()
}

/// Snapshots lie in one folder at the top, to be reviewed together.
pub fn snapshots(f: impl FnOnce()) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(f);
}
