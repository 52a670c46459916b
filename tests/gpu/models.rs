//! Every fixture on the device against its reference: tokens and choices exact, 1e-4 relative L2 per row of logits.
//!
//! 1e-4: the device sums in f32 in another order, and the references are f32 themselves.

use crate::common::fixture::{Fixture, fixture};
use crate::device::{Gpu, with};
use crate::support::{argmax, load, worst_row};
use coli::graph::{Role, Row};
use coli::run::vulkan::Options;
use coli::run::{Model, Session, Sizes, Want};

const TOLERANCE: f64 = 1e-4;

fn session(gpu: &Gpu, model: &Model, f: &Fixture, slots: u32, chunk: u32) -> Session {
    let sizes = Sizes { ctx: f.ids.len() as u32, slots, chunk };
    Session::on_vulkan(model, gpu.device.clone(), sizes, &Options::default())
        .unwrap_or_else(|e| panic!("{}: {e}", f.name))
}

fn check(f: &Fixture, got: &[f32], from: usize, what: &str) {
    let rows = got.len() / f.vocab;
    let want = &f.logits[from * f.vocab..(from + rows) * f.vocab];
    let worst = worst_row(got, want, f.vocab);
    println!("{} {what}: worst row {worst:.2e}", f.name);
    assert!(worst < TOLERANCE, "{} {what}: {worst:.1e}", f.name);
    for (row, (g, w)) in got.chunks(f.vocab).zip(want.chunks(f.vocab)).enumerate() {
        assert_eq!(argmax(g), argmax(w), "{} {what}: token after row {}", f.name, from + row);
    }
}

fn prompt_and_decode(gpu: &Gpu, f: &Fixture, model: &Model) {
    let mut s = session(gpu, model, f, 1, 64);
    let logits = s.append(0, &f.ids[..f.prompt_len], Want::All, &mut |_| {}).unwrap();
    check(f, &logits, 0, "prompt in chunks of 64");
    let mut decoded = vec![];
    for (i, token) in f.ids[f.prompt_len..].iter().enumerate() {
        let row = Row { token: *token, position: (f.prompt_len + i) as u32, slot: 0, logits: true };
        decoded.extend(s.step(Role::Decode, vec![row], &mut |_, _| {}).unwrap());
    }
    check(f, &decoded, f.prompt_len, "decoded");
}

fn everything(name: &str) {
    with(|gpu| {
        let f = fixture(name);
        let model = load(&f);
        prompt_and_decode(gpu, &f, &model);
    });
}

macro_rules! fixtures {
    ($($name:ident),*) => { $(#[test] fn $name() { everything(stringify!($name)); })* };
}
fixtures!(glm_moe_dsa, glm_moe_dsa_w256, kimi_linear, kimi_k3, deepseek_v4, deepseek_v4_native, qwen3, qwen3_moe);
