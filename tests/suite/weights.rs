//! Weights that do not fit a graph are named, at the word of the graph file that asks for them.

use crate::common::fixture::fixture;
use crate::common::safetensors::{Tensor, Tensors, read, write};
use crate::support::{arch, snapshots};
use coli::cli::report_text;
use coli::ops::Kv;
use coli::run::{Device, LoadError, Model, ModelSource, RunError, Session, Sizes, Want};
use std::path::Path;

/// A copy of the qwen3_moe fixture with its tensors changed.
fn changed(change: impl FnOnce(&mut Tensors)) -> tempfile::TempDir {
    let f = fixture("qwen3_moe");
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(f.dir.join("config.json"), dir.path().join("config.json")).unwrap();
    let mut tensors = read(&f.dir.join("model.safetensors"));
    change(&mut tensors);
    write(&dir.path().join("model.safetensors"), &tensors);
    dir
}

fn load(dir: &Path) -> Result<Model, LoadError> {
    Model::load(&arch("qwen3_moe"), ModelSource::Dir(dir.into()))
}

fn refused(name: &str, change: impl FnOnce(&mut Tensors)) {
    let dir = changed(change);
    let Err(LoadError::Report(report)) = load(dir.path()) else { panic!("{name}: not refused") };
    let text = report_text(&report, false).replace(&dir.path().display().to_string(), "MODEL");
    snapshots(|| insta::assert_snapshot!(format!("weights-{name}"), text));
}

fn find<'a>(tensors: &'a mut Tensors, name: &str) -> &'a mut (String, Tensor) {
    tensors.iter_mut().find(|t| t.0 == name).unwrap()
}

const Q: &str = "model.layers.1.self_attn.q_proj.weight";

#[test]
fn missing_wrong_and_unused() {
    refused("missing", |t| t.retain(|t| t.0 != Q));
    refused("renamed", |t| find(t, Q).0 = "model.layers.1.self_attn.q_projj.weight".into());
    refused("missing-experts", |t| t.retain(|t| !t.0.contains("layers.2.mlp.experts.1")));
    refused("shape", |t| find(t, Q).1.shape = vec![128, 384]);
    refused("unused", |t| t.push(("model.layers.9.extra.weight".into(), Tensor::from_f32(&[2], &[1.0, 2.0]))));
}

/// A tensor's bytes replaced by E8 of its shape, all zeros.
fn as_e8(tensors: &mut Tensors, name: &str) {
    let (_, tensor) = find(tensors, name);
    let bytes = tensor.shape[0] * tensor.shape[1].div_ceil(256) * 98;
    *tensor = Tensor::new("U8", &[bytes], vec![0; bytes]);
    tensors.push((format!("{name}.qs"), Tensor::new("F32", &[1], vec![0; 4])));
}

/// Only the products of experts rotate their input, and a layer's experts are rotated all or none.
#[test]
fn rotated_weights_have_their_place() {
    refused("rotated-linear", |t| as_e8(t, Q));
    refused("rotated-embedding", |t| as_e8(t, "model.embed_tokens.weight"));
    refused("rotated-mixture", |t| as_e8(t, "model.layers.1.mlp.experts.3.down_proj.weight"));
    let dir = changed(|t| {
        let experts = t.iter().filter(|t| t.0.contains("layers.1.mlp.experts.")).map(|t| t.0.clone());
        experts.collect::<Vec<_>>().iter().for_each(|name| as_e8(t, name));
    });
    load(dir.path()).unwrap_or_else(|e| panic!("{e}"));
}

/// A weight that is not a number is named when it is met, and the session stays usable.
#[test]
fn nan_is_named() {
    let dir = changed(|t| {
        let data = &mut find(t, "model.layers.1.mlp.experts.3.down_proj.weight").1.data;
        data[2..4].copy_from_slice(&0x7fc0u16.to_le_bytes());
    });
    let model = load(dir.path()).unwrap_or_else(|e| panic!("{e}"));
    let f = fixture("qwen3_moe");
    for device in [Device::Oracle, Device::Cpu] {
        let mut s = Session::new(&model, device, Sizes { ctx: 96, slots: 1, chunk: 96, kv: Kv::F32 });
        let error = s.append(0, &f.ids, Want::Last, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("model.layers.1.mlp.experts.3.down_proj.weight"), "{error}");
        assert_eq!(s.len(0), 0);
    }
}

#[test]
fn rows_that_do_not_fit() {
    let f = fixture("qwen3_moe");
    let model = crate::support::load(&f);
    let mut s = Session::new(&model, Device::Cpu, Sizes { ctx: 8, slots: 1, chunk: 4, kv: Kv::F32 });
    let long = s.append(0, &f.ids[..9], Want::Last, &mut |_| {}).unwrap_err();
    assert!(matches!(long, RunError::Step(_)) && long.to_string().contains("--ctx"), "{long}");
    assert_eq!(s.len(0), 0, "a refused prompt left rows behind");
    let outside = s.append(0, &[320], Want::Last, &mut |_| {}).unwrap_err();
    assert!(outside.to_string().contains("vocabulary of 320"), "{outside}");
}
