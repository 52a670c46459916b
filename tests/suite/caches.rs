//! Caches of f16 on the oracle and the CPU.
//!
//! Both round the same values, so from the same inputs every node agrees as it does in f32. Each by itself, they drift apart:
//! where the two differ in a last bit, and lie on either side of the middle between two f16, they round apart, by one f16. That
//! is a value in some thousands at first, and more in each layer behind. Were all rounded apart, each would be off by 3e-4 in the mean.

use crate::common::caches::{CACHES, VOCAB, too_large};
use crate::common::fixture::{Fixture, fixture};
use crate::common::random_graph::difference;
use crate::support::{argmax, interleaved, load, worst_row};
use coli::formats::activation::Activations;
use coli::graph::{Node, Role, Row, Snapshot, StateError, TooLarge, Value};
use coli::ops::{Kv, Op};
use coli::oracle::OracleError;
use coli::run::cpu::CpuError;
use coli::run::{Device, Lockstep, Model, RunError, Session, Sizes, Want};

const DEVICES: [Device; 2] = [Device::Oracle, Device::Cpu];
/// Of a node from the oracle's inputs, by relative L2.
const TOLERANCE: f64 = 1e-5;
/// Of a row of logits, each by itself.
const DRIFTED: f64 = 5e-4;
/// Between caches of f16 and of f32: some rounding, not much of it.
const ROUNDED: std::ops::Range<f64> = 1e-5..2e-2;

fn session(model: &Model, device: Device, f: &Fixture, chunk: u32, kv: Kv) -> Session {
    Session::new(model, device, Sizes { ctx: f.ids.len() as u32, slots: 3, chunk, kv })
}

fn append(s: &mut Session, slot: u32, ids: &[u32]) -> Vec<f32> {
    s.append(slot, ids, Want::All, &mut |_| {}).unwrap()
}

/// Wherever a prompt is cut, saved and restored, or mixed with others, a row has the same bits.
fn bits(f: &Fixture, model: &Model, device: Device, whole: &[f32]) {
    let what = format!("{} on {}", f.name, device.name());
    let cut = f.ids.len() / 2;
    let mut s = session(model, device, f, 7, Kv::F16);
    assert!(append(&mut s, 0, &f.ids[..cut]) == whole[..cut * f.vocab], "{what}: other bits in chunks");
    let saved: Snapshot = s.snapshot(0).unwrap();
    for slot in [2, 0] {
        s.restore(slot, &saved).unwrap();
        let got = append(&mut s, slot, &f.ids[cut..cut + 9]);
        assert!(got == whole[cut * f.vocab..(cut + 9) * f.vocab], "{what}: other bits after restore");
    }
    let refused = session(model, device, f, 7, Kv::F32).restore(0, &saved).unwrap_err();
    assert!(matches!(refused, RunError::State(StateError::Kv { of: Kv::F16, kv: Kv::F32 })), "{refused}");
    assert!(refused.to_string().contains("--kv f16"), "{refused}");
    (0..3).for_each(|slot| s.reset(slot).unwrap());
    let ids = f.ids[..20].to_vec();
    let got = interleaved(&mut s, &[ids.clone(), f.ids[5..25].to_vec(), ids], f.vocab);
    assert!(got[0] == whole[..20 * f.vocab] && got[2] == got[0], "{what}: other bits among others");
}

/// The worst difference of a node from the inputs that the oracle has; choices are the same.
fn node_by_node(f: &Fixture, model: &Model) -> f64 {
    let n = f.ids.len() as u32;
    let mut pair = Lockstep::new(model, Sizes { ctx: n, slots: 1, chunk: n, kv: Kv::F16 }, Activations::F32);
    let row = |(i, token): (usize, &u32)| Row { token: *token, position: i as u32, slot: 0, logits: true };
    let rows: Vec<Row> = f.ids.iter().enumerate().map(row).collect();
    let (mut worst, mut seen) = (0.0f64, 0);
    let mut compare = |node: &Node, want: &Value, got: &Value| {
        worst = worst.max(difference(&node.path(), got, want));
        seen += usize::from(matches!(node.op, Op::Attn { .. } | Op::AttnLatent { .. }));
    };
    pair.step(Role::Prompt, rows, &mut compare).unwrap();
    assert!(seen > 0, "{}: no attention was seen", f.name);
    worst
}

fn everything(name: &str) {
    let f = fixture(name);
    let model = load(&f);
    let run = |device, kv| append(&mut session(&model, device, &f, 64, kv), 0, &f.ids);
    let [oracle, cpu] = DEVICES.map(|device| run(device, Kv::F16));
    let (apart, rounded) = (worst_row(&cpu, &oracle, f.vocab), worst_row(&cpu, &run(Device::Cpu, Kv::F32), f.vocab));
    println!("{name}: {apart:.1e} from the oracle, {rounded:.1e} from f32");
    assert!(apart < DRIFTED, "{name}: {apart:.1e}");
    let exact = node_by_node(&f, &model);
    assert!(exact < TOLERANCE, "{name}: {exact:.1e}");
    assert!(ROUNDED.contains(&rounded), "{name}: {rounded:.1e}");
    for (row, (a, b)) in oracle.chunks(f.vocab).zip(cpu.chunks(f.vocab)).enumerate() {
        assert_eq!(argmax(a), argmax(b), "{name}: token after row {row}");
    }
    for (device, whole) in DEVICES.into_iter().zip([oracle, cpu]) {
        bits(&f, &model, device, &whole);
    }
}

macro_rules! fixtures {
    ($($name:ident),*) => { $(#[test] fn $name() { everything(stringify!($name)); })* };
}
fixtures!(glm_moe_dsa, kimi_linear, deepseek_v4, qwen3);

#[test]
fn what_a_cache_cannot_hold_is_an_error() {
    for (cache, node) in CACHES {
        let (_dir, model) = too_large(cache);
        for device in DEVICES {
            let row = |p: u32| Row { token: p % VOCAB, position: p, slot: 0, logits: true };
            let rows: Vec<Row> = (0..5).map(row).collect();
            let run = |kv| {
                let mut s = Session::new(&model, device, Sizes { ctx: 8, slots: 1, chunk: 8, kv });
                let done = s.step(Role::Prompt, rows.clone(), &mut |_, _| {});
                (s.len(0), done)
            };
            let (len, done) = run(Kv::F32);
            assert!(len == 5 && done.unwrap().iter().all(|x| x.is_finite()), "{cache}");
            let (len, done) = run(Kv::F16);
            let error = done.unwrap_err();
            let (RunError::Oracle(OracleError::TooLarge(found)) | RunError::Cpu(CpuError::TooLarge(found))) = &error
            else {
                panic!("{cache} on {}: {error}", device.name())
            };
            let TooLarge { node: at, row, value } = found;
            assert!(at == node && *row == 0 && value.abs() > 65504.0 && len == 0, "{cache}: {error}");
            assert!(error.to_string().contains("run it with --kv f32"), "{error}");
        }
    }
}
