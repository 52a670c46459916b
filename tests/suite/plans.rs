//! Plans of published configurations, as snapshots.

use crate::support::{arch, root, snapshots};
use coli::graph::{Graph, expand};
use coli::ops::Kv;
use coli::plan::{Shape, summarize};
use coli::spec::Config;

fn graph(file: &str, config: &str) -> Graph {
    let text = std::fs::read(root(&format!("tests/configs/{config}.json"))).unwrap();
    let config = Config::parse(&format!("{config}.json"), &text).unwrap();
    expand(&arch(file), &config, "main").unwrap_or_else(|e| panic!("{e}"))
}

/// What `coli plan` takes if it is not told.
fn shape() -> Shape {
    Shape::new(128, 4096)
}

fn plan(file: &str, config: &str) -> coli::plan::Summary {
    let summary = summarize(&graph(file, config), None, &shape());
    snapshots(|| insta::assert_snapshot!(format!("plan-{config}"), summary.to_string()));
    summary
}

/// Tenths of a billion, rounded: as model cards print.
fn tenths(n: u64) -> u64 {
    (n + 50_000_000) / 100_000_000
}

fn layers(g: &coli::plan::Summary) -> Vec<usize> {
    g.kinds.iter().map(|k| k.layers.len()).collect()
}

#[test]
fn glm52() {
    let s = plan("glm52", "glm52");
    assert_eq!((tenths(s.parameters), tenths(s.active_parameters)), (7434, 403));
    assert_eq!(layers(&s), [3, 57, 18]);
    assert_eq!(s.state_bytes_per_token, 190_464.0);
}

#[test]
fn kimi_k3() {
    let s = plan("kimi_k3", "kimi_k3");
    assert_eq!(s.parameters / 10_000_000_000, 277);
    assert_eq!(s.active_parameters / 100_000_000, 1041);
    let count = |name: &str| s.states.iter().find(|st| st.name == name).unwrap().layers;
    assert_eq!((count("kv_cache"), count("delta")), (24, 69));
    // Half of what caches take, and all of what is recurrent.
    let halves = summarize(&graph("kimi_k3", "kimi_k3"), None, &Shape { kv: Kv::F16, ..shape() });
    assert_eq!(halves.state_bytes_per_token * 2.0, s.state_bytes_per_token);
    assert_eq!(halves.state_bytes_fixed, s.state_bytes_fixed);
    let text = halves.to_string();
    let states: Vec<&str> = text.lines().skip_while(|l| !l.starts_with("state")).take(1 + s.states.len()).collect();
    snapshots(|| insta::assert_snapshot!("plan-kimi_k3-kv-f16", states.join("\n")));
}

#[test]
fn deepseek_v4_flash() {
    let s = plan("deepseek_v4_flash", "deepseek_v4_flash");
    assert_eq!(s.parameters / 1_000_000_000, 284);
    assert_eq!(s.active_parameters / 1_000_000_000, 13);
    assert_eq!(s.state_bytes_per_token, 13_760.0);
    // Rings have room for the chunk, as far as the context goes.
    let ring = |s: &coli::plan::Summary| s.states.iter().find(|st| st.name == "recent").unwrap().bytes_fixed;
    assert_eq!(ring(&s), 43 * 512 * 4 * (128 + 128 - 1));
    let short = summarize(&graph("deepseek_v4_flash", "deepseek_v4_flash"), None, &Shape { ctx: 100, ..shape() });
    assert_eq!(ring(&short), 43 * 512 * 4 * 100);
}

#[test]
fn kimi_linear() {
    let s = plan("kimi_linear", "kimi_linear");
    assert_eq!((s.parameters / 1_000_000_000, s.active_parameters / 1_000_000_000), (49, 3));
}

#[test]
fn qwen3() {
    assert_eq!(plan("qwen3", "qwen3_8b").parameters / 100_000_000, 81);
    let moe = plan("qwen3_moe", "qwen3_30b_a3b");
    assert_eq!((moe.parameters / 100_000_000, moe.active_parameters / 100_000_000), (305, 30));
}

/// Full and shared indexer layers by the published rule: offset 3, every fourth.
#[test]
fn glm52_chooses_positions_in_21_layers() {
    let g = graph("glm52", "glm52");
    let full: Vec<u32> = g.states.iter().filter(|s| s.name == "ix_cache").map(|s| s.layer.unwrap()).collect();
    let want: Vec<u32> = (0..78).filter(|l| *l < 3 || (*l >= 6 && (*l - 6) % 4 == 0)).collect();
    assert_eq!(full, want);
}

#[test]
fn dot_of_two_layers() {
    let g = graph("glm52", "glm52");
    let text = coli::graph::dot::dot(&g, |l| l == Some(2) || l == Some(3));
    snapshots(|| insta::assert_snapshot!("dot-glm52-layers-2-3", text));
}
