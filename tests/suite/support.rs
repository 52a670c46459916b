//! Loading fixtures into the library.

use crate::common::fixture::{Fixture, rel_l2};
use coli::graph::{Node, Role, Row, Value};
use coli::ops::Op;
use coli::run::{Model, ModelSource, Session};
use coli::spec::{Arch, Source};
use std::collections::BTreeMap;
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

/// Decodes three sequences in slots 0 to 2, slot `i` with `i + 1` rows a step in an order that changes.
/// Returns all logits of each.
pub fn interleaved(s: &mut Session, sequences: &[Vec<u32>; 3], vocab: usize) -> [Vec<f32>; 3] {
    let mut got = [vec![], vec![], vec![]];
    let mut at = [0; 3];
    for turn in 0.. {
        let mut rows = vec![];
        for k in 0..6 {
            let slot = [0, 1, 2, 2, 1, 2][(k + turn) % 6];
            if let Some(token) = sequences[slot].get(at[slot]) {
                rows.push(Row { token: *token, position: at[slot] as u32, slot: slot as u32, logits: true });
                at[slot] += 1;
            }
        }
        if rows.is_empty() {
            break;
        }
        let logits = s.step(Role::Decode, rows.clone(), &mut |_, _| {}).unwrap();
        rows.iter().zip(logits.chunks(vocab)).for_each(|(r, l)| got[r.slot as usize].extend_from_slice(l));
    }
    got
}

/// Snapshots lie in one folder at the top, to be reviewed together.
pub fn snapshots(f: impl FnOnce()) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(f);
}

/// Chosen experts and positions of each layer, as sets per row.
#[derive(Default, Debug)]
pub struct Choices {
    experts: BTreeMap<u32, Vec<Vec<i32>>>,
    weights: BTreeMap<u32, Vec<f32>>,
    selected: BTreeMap<u32, Vec<Vec<i32>>>,
}

impl Choices {
    pub fn see(&mut self, node: &Node, value: &Value) {
        let Some(layer) = node.layer else { return };
        match (value, &node.op) {
            (Value::Route { ids, weights }, Op::RouterTopk(r)) => {
                for (ids, weights) in ids.chunks(r.k).zip(weights.chunks(r.k)) {
                    let mut pairs: Vec<(i32, f32)> =
                        ids.iter().map(|i| *i as i32).zip(weights.iter().copied()).collect();
                    pairs.sort_by_key(|p| p.0);
                    self.experts.entry(layer).or_default().push(pairs.iter().map(|p| p.0).collect());
                    self.weights.entry(layer).or_default().extend(pairs.iter().map(|p| p.1));
                }
            }
            (Value::Selection(s), _) => {
                let sets = s.iter().map(|set| set.iter().map(|t| *t as i32).collect());
                self.selected.entry(layer).or_default().extend(sets);
            }
            _ => {}
        }
    }

    /// Compares with the reference; -1 there is a pick that fell on a masked position.
    pub fn check(&self, f: &Fixture, what: &str, tolerance: f64) {
        let mut compared = 0;
        for name in f.reference.names() {
            let Some((kind, rest)) = name.split_once('.') else { continue };
            let Some((layer, part)) = rest.split_once('.') else { continue };
            let got = match (kind, part) {
                ("moe", "expert_ids") => &self.experts[&layer.parse().unwrap()],
                ("dsa", "topk") => &self.selected[&layer.parse().unwrap()],
                _ => continue,
            };
            let (shape, want) = f.reference.i32(name).unwrap();
            for (row, want) in want.chunks(shape[1]).enumerate() {
                let want: Vec<i32> = want.iter().copied().filter(|t| *t >= 0).collect();
                assert_eq!(got[row], want, "{what}: {name}, row {row}");
            }
            compared += 1;
        }
        for (layer, got) in &self.weights {
            if let Some((shape, want)) = f.reference.f32(&format!("moe.{layer}.expert_weights")) {
                let worst = worst_row(got, &want, shape[1]);
                assert!(worst < tolerance, "{what}: expert weights of layer {layer} differ by {worst:.1e}");
            }
        }
        assert!(compared > 0 || f.name == "qwen3", "{what}: nothing was compared");
    }
}
