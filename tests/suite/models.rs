//! Whole models against recorded outputs of independent implementations.
//!
//! Tolerance 1e-5 relative L2 per row of logits: two to three times the recorded f32 reference's own error
//! against f64 (tests/fixtures/README.md). Experts, selected positions and tokens must be the same.

use crate::common::fixture::{ALL, Fixture, fixture};
use crate::support::{Choices, argmax, interleaved, load, worst_row};
use coli::graph::{Role, Row, StateError};
use coli::ops::Kv;
use coli::run::{Device, Model, RunError, Session, Sizes, Want};

const TOLERANCE: f64 = 1e-5;
const DEVICES: [Device; 2] = [Device::Oracle, Device::Cpu];

fn session(model: &Model, device: Device, f: &Fixture, slots: u32, chunk: u32) -> Session {
    Session::new(model, device, Sizes { ctx: f.ids.len() as u32, slots, chunk, kv: Kv::F32 })
}

fn rows(ids: &[u32], slot: u32) -> Vec<Row> {
    ids.iter().enumerate().map(|(i, t)| Row { token: *t, position: i as u32, slot, logits: true }).collect()
}

fn check_logits(f: &Fixture, got: &[f32], what: &str) {
    let worst = worst_row(got, &f.logits, f.vocab);
    println!("{what}: worst row of logits {worst:.2e}");
    assert!(worst < TOLERANCE, "{what}: {worst:.2e}");
    for (row, (g, w)) in got.chunks(f.vocab).zip(f.logits.chunks(f.vocab)).enumerate() {
        assert_eq!(argmax(g), argmax(w), "{what}: token after row {row}");
    }
}

/// One step with everything.
fn in_one_go(f: &Fixture, model: &Model, device: Device) -> Vec<f32> {
    let what = format!("{} on {}", f.name, device.name());
    let mut s = session(model, device, f, 1, f.ids.len() as u32);
    let mut choices = Choices::default();
    let logits = s.step(Role::Prompt, rows(&f.ids, 0), &mut |n, v| choices.see(n, v)).unwrap();
    check_logits(f, &logits, &what);
    choices.check(f, &what, TOLERANCE);
    logits
}

/// Chunks give the same bits as one go: a row does not depend on its neighbours.
fn in_chunks(f: &Fixture, model: &Model, device: Device, whole: &[f32]) {
    for chunk in [1, 7, 64] {
        let mut s = session(model, device, f, 1, chunk);
        let logits = s.append(0, &f.ids, Want::All, &mut |_| {}).unwrap();
        assert!(logits == whole, "{} on {} in chunks of {chunk}: other bits", f.name, device.name());
    }
}

fn greedy(f: &Fixture, model: &Model, device: Device) {
    let mut s = session(model, device, f, 1, 64);
    let mut logits = s.append(0, &f.ids[..f.prompt_len], Want::Last, &mut |_| {}).unwrap();
    for (i, want) in f.ids[f.prompt_len..].iter().enumerate() {
        let next = argmax(&logits);
        assert_eq!(next, *want, "{} on {}: token {i}", f.name, device.name());
        if s.len(0) < f.ids.len() as u32 {
            logits = s.append(0, &[next], Want::Last, &mut |_| {}).unwrap();
        }
    }
}

/// Saved and restored at several positions, also into another slot, with other tokens in between.
fn save_and_restore(f: &Fixture, model: &Model, device: Device, whole: &[f32]) {
    let n = f.ids.len();
    let mut s = session(model, device, f, 2, 64);
    let mut at = 0;
    let mut cuts = [1, 5, 31, 64, n / 2 + 3, n - 3];
    cuts.sort_unstable();
    for cut in cuts {
        s.append(0, &f.ids[at..cut], Want::Last, &mut |_| {}).unwrap();
        let saved = s.snapshot(0).unwrap();
        assert_eq!(saved.len() as usize, cut);
        let astray: Vec<u32> = f.ids[..2].to_vec();
        s.append(0, &astray, Want::Last, &mut |_| {}).unwrap();
        s.restore(0, &saved).unwrap();
        s.restore(1, &saved).unwrap();
        for slot in [1, 0] {
            let next = s.append(slot, &f.ids[cut..cut + 1], Want::Last, &mut |_| {}).unwrap();
            let want = &whole[cut * f.vocab..(cut + 1) * f.vocab];
            assert!(next == want, "{} on {}: other bits after restore at {cut}", f.name, device.name());
        }
        at = cut + 1;
    }
}

/// Three sequences whose rows alternate in a step, each with the bits it has alone.
fn three_slots(f: &Fixture, model: &Model, device: Device, whole: &[f32]) {
    let n = 48;
    let other: Vec<u32> = f.ids.iter().rev().copied().collect();
    let alone = |ids: &[u32]| {
        let mut s = session(model, device, f, 1, 64);
        s.append(0, ids, Want::All, &mut |_| {}).unwrap()
    };
    let sequences = [f.ids[..n].to_vec(), other[..n].to_vec(), f.ids[3..n + 3].to_vec()];
    let want = [whole[..n * f.vocab].to_vec(), alone(&sequences[1]), alone(&sequences[2])];
    let mut s = session(model, device, f, 3, 64);
    let got = interleaved(&mut s, &sequences, f.vocab);
    for slot in 0..3 {
        assert!(got[slot] == want[slot], "{} on {}: other bits in slot {slot}", f.name, device.name());
    }
}

/// Sequences of caches can be cut; recurrent ones say that they cannot.
fn truncate(f: &Fixture, model: &Model, device: Device, whole: &[f32]) {
    let mut s = session(model, device, f, 1, 64);
    s.append(0, &f.ids[..40], Want::Last, &mut |_| {}).unwrap();
    match (s.truncate(0, 20), f.name.as_str()) {
        (Ok(()), n) if n.starts_with("glm") || n.starts_with("qwen3") => {
            let again = s.append(0, &f.ids[20..21], Want::Last, &mut |_| {}).unwrap();
            assert!(again == whole[20 * f.vocab..21 * f.vocab], "{}: other bits after a cut", f.name);
        }
        (Err(RunError::State(StateError::Recurrent { .. })), n)
            if n.starts_with("kimi") || n.starts_with("deepseek") =>
        {
            let next = s.append(0, &f.ids[40..41], Want::Last, &mut |_| {}).unwrap();
            assert!(next == whole[40 * f.vocab..41 * f.vocab], "{}: a refused cut changed the state", f.name);
        }
        (other, n) => panic!("{n}: {other:?}"),
    }
    s.truncate(0, 0).unwrap();
    let first = s.append(0, &f.ids[..1], Want::Last, &mut |_| {}).unwrap();
    assert!(first == whole[..f.vocab], "{}: other bits after starting again", f.name);
}

fn everything(name: &str) {
    assert!(ALL.contains(&name));
    let f = fixture(name);
    let model = load(&f);
    for device in DEVICES {
        let whole = in_one_go(&f, &model, device);
        in_chunks(&f, &model, device, &whole);
        greedy(&f, &model, device);
        save_and_restore(&f, &model, device, &whole);
        three_slots(&f, &model, device, &whole);
        truncate(&f, &model, device, &whole);
    }
}

macro_rules! fixtures {
    ($($name:ident),*) => { $(#[test] fn $name() { everything(stringify!($name)); })* };
}
fixtures!(glm_moe_dsa, glm_moe_dsa_w256, kimi_linear, kimi_k3, deepseek_v4, deepseek_v4_native, qwen3, qwen3_moe);

#[test]
fn tokenizers_of_the_fixtures() {
    for name in ALL {
        let f = fixture(name);
        let t = coli::text::Tokenizer::load(&coli::text::DirFiles(f.dir.clone())).unwrap();
        for test in &f.tokenizer_tests {
            assert_eq!(t.encode(&test.text).unwrap(), test.ids, "{name}: {:?}", test.text);
        }
    }
}
