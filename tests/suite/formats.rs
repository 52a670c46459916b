//! A whole model whose experts are stored rotated.

use crate::common::fixture::{Fixture, fixture};
use crate::common::safetensors::{Tensor, Tensors, read, write};
use crate::support::{arch, worst_row};
use coli::formats::rotation::Rotation;
use coli::formats::{Format, encode};
use coli::ops::Kv;
use coli::run::{Device, Model, ModelSource, Session, Sizes, Want};

/// The fixture with its experts in E8, and with the f32 matrices that those bytes stand for.
fn both(f: &Fixture) -> [Tensors; 2] {
    let (mut rotated, mut plain) = (vec![], vec![]);
    for (name, tensor) in read(&f.dir.join("model.safetensors")) {
        if !name.contains(".mlp.experts.") {
            rotated.push((name.clone(), tensor.clone()));
            plain.push((name, tensor));
            continue;
        }
        let (rows, cols) = (tensor.shape[0], tensor.shape[1]);
        let bytes = encode(Format::E8, cols, &tensor.f32().unwrap()).unwrap();
        let view = bytes.view(Format::E8, rows, cols).unwrap();
        let (mut values, rotation) = (vec![0.0; rows * cols], Rotation::new(cols));
        for (row, values) in values.chunks_mut(cols).enumerate() {
            view.decode_row(row, values);
            rotation.inverse(values);
        }
        plain.push((name.clone(), Tensor::from_f32(&[rows, cols], &values)));
        rotated.push((format!("{name}.qs"), Tensor::new("F32", &[1], bytes.scales)));
        rotated.push((name, Tensor::new("U8", &[bytes.data.len()], bytes.data)));
    }
    [rotated, plain]
}

fn model(f: &Fixture, tensors: &Tensors) -> (tempfile::TempDir, Model) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(f.dir.join("config.json"), dir.path().join("config.json")).unwrap();
    write(&dir.path().join("model.safetensors"), tensors);
    let loaded = Model::load(&arch("glm52"), ModelSource::Dir(dir.path().into()));
    (dir, loaded.unwrap_or_else(|e| panic!("{e}")))
}

/// Logits of all positions.
fn run(f: &Fixture, model: &Model, device: Device, chunk: u32) -> Vec<f32> {
    let mut s = Session::new(model, device, Sizes { ctx: f.ids.len() as u32, slots: 1, chunk, kv: Kv::F32 });
    s.append(0, &f.ids, Want::All, &mut |_| {}).unwrap()
}

#[test]
fn rotated_experts_are_the_experts_they_stand_for() {
    let f = fixture("glm_moe_dsa_w256");
    let [rotated, plain] = both(&f);
    let ((_a, rotated), (_b, plain)) = (model(&f, &rotated), model(&f, &plain));
    let all = f.ids.len() as u32;
    let want = run(&f, &plain, Device::Oracle, all);
    for device in [Device::Oracle, Device::Cpu] {
        let got = run(&f, &rotated, device, all);
        let worst = worst_row(&got, &want, f.vocab);
        println!("{}: worst row {worst:.2e}", device.name());
        assert!(worst < 1e-5, "{}: {worst:.2e}", device.name());
        for chunk in [1, 7] {
            assert!(run(&f, &rotated, device, chunk) == got, "{}: other bits in chunks of {chunk}", device.name());
        }
    }
    // What the format costs, so that a rotation left out twice would be noticed: far from nothing, far from noise.
    let cost = worst_row(&want, &f.logits, f.vocab);
    assert!((1e-3..0.5).contains(&cost), "{cost}");
}
