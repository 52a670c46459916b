//! Caches of f16 on the device: whole models against the oracle, bits, snapshots, and values that are too large.
//!
//! Both round the same values when they are written, but values that differ in their last bits may lie on either side of the
//! middle between two f16 and round apart. The device's are off by 1e-6 or so where the spacing is 5e-4 to 1e-3, so that is a value
//! in some hundreds, and by more in later layers, which see what was rounded apart before. At worst all are: 3e-4 in the mean.

use crate::common::caches::{CACHES, SELECTED, VOCAB, too_large};
use crate::common::fixture::{Fixture, fixture};
use crate::device::{Gpu, with};
use crate::support::{argmax, load, worst_row};
use coli::graph::{Role, Row, StateError};
use coli::ops::Kv;
use coli::plan::place::{Place, Rule};
use coli::run::vulkan::Options;
use coli::run::{Device, Model, RunError, Session, Sizes, Want};

const TOLERANCE: f64 = 1e-3;

fn session(gpu: &Gpu, model: &Model, sizes: Sizes, options: &Options) -> Session {
    Session::on_vulkan(model, gpu.device.clone(), sizes, options).unwrap_or_else(|e| panic!("{e}"))
}

fn row(token: u32, position: usize, slot: u32) -> Row {
    Row { token, position: position as u32, slot, logits: true }
}

fn step(s: &mut Session, role: Role, rows: Vec<Row>) -> Vec<f32> {
    s.step(role, rows, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// Rows of a prompt's step: few, so that rings wrap.
const CHUNK: usize = 40;

/// Prompt rows of a sequence in pieces, the first of them given, then decoded ones, the last two positions beside another slot's.
fn run(s: &mut Session, f: &Fixture, slot: u32, first: &[usize]) -> Vec<f32> {
    let (mut logits, mut at, mut pieces) = (vec![], 0, first.iter());
    let rows = |range: std::ops::Range<usize>| range.map(|i| row(f.ids[i], i, slot)).collect::<Vec<_>>();
    while at < f.prompt_len {
        let n = pieces.next().copied().unwrap_or(CHUNK).min(f.prompt_len - at);
        logits.extend(step(s, Role::Prompt, rows(at..at + n)));
        at += n;
    }
    for i in at..f.ids.len() - 2 {
        logits.extend(step(s, Role::Decode, rows(i..i + 1)));
    }
    s.reset(1 - slot).unwrap();
    let both = [rows(f.ids.len() - 2..f.ids.len()), vec![row(f.ids[0], 0, 1 - slot)]].concat();
    logits.extend(step(s, Role::Decode, both));
    logits.truncate(f.ids.len() * f.vocab);
    s.reset(1 - slot).unwrap();
    logits
}

fn everything(name: &str) {
    with(|gpu| {
        let f = fixture(name);
        let model = load(&f);
        let sizes = |kv| Sizes { ctx: f.ids.len() as u32, slots: 2, chunk: CHUNK as u32, kv };
        let whole = |kv| Session::new(&model, Device::Oracle, sizes(kv)).append(0, &f.ids, Want::All, &mut |_| {});
        let (want, exact) = (whole(Kv::F16).unwrap(), whole(Kv::F32).unwrap());
        let mut s = session(gpu, &model, sizes(Kv::F16), &Options::default());
        let got = run(&mut s, &f, 0, &[]);
        let (apart, rounded) = (worst_row(&got, &want, f.vocab), worst_row(&want, &exact, f.vocab));
        println!("{name}: worst row {apart:.1e} from the oracle, which is {rounded:.1e} from f32");
        assert!(apart < TOLERANCE, "{name}: {apart:.1e}");
        for (i, (g, w)) in got.chunks(f.vocab).zip(want.chunks(f.vocab)).enumerate() {
            assert_eq!(argmax(g), argmax(w), "{name}: token after row {i}");
        }
        let again = run(&mut s, &f, 1, &[1, 7]);
        assert!(again == got, "{name}: other bits in chunks, in another slot");
        let cut = f.ids.len() - 3;
        s.reset(0).unwrap();
        s.append(0, &f.ids[..f.prompt_len], Want::Last, &mut |_| {}).unwrap();
        s.append(0, &f.ids[f.prompt_len..cut], Want::Last, &mut |_| {}).unwrap();
        let saved = s.snapshot(0).unwrap();
        let next = step(&mut s, Role::Decode, vec![row(f.ids[cut], cut, 0)]);
        s.restore(1, &saved).unwrap();
        let restored = step(&mut s, Role::Decode, vec![row(f.ids[cut], cut, 1)]);
        assert!(next == restored, "{name}: other bits after restore");
        let refused = Session::new(&model, Device::Cpu, sizes(Kv::F32)).restore(0, &saved).unwrap_err();
        assert!(matches!(refused, RunError::State(StateError::Kv { of: Kv::F16, kv: Kv::F32 })), "{refused}");
    });
}

#[test]
fn glm_moe_dsa_in_halves() {
    everything("glm_moe_dsa");
}

#[test]
fn qwen3_in_halves() {
    everything("qwen3");
}

#[test]
fn kimi_linear_in_halves() {
    everything("kimi_linear");
}

#[test]
fn deepseek_v4_in_halves() {
    everything("deepseek_v4");
}

/// A short session of which the processor has no part.
fn all_on_device(gpu: &Gpu, model: &Model, kv: Kv) -> Session {
    let rules = model.graph.nodes().map(|(_, n)| Rule { pattern: n.path(), place: Place::Gpu }).collect();
    session(gpu, model, Sizes { ctx: 8, slots: 1, chunk: 8, kv }, &Options { rules, ..Options::default() })
}

/// Nothing that comes of what a cache cannot hold is taken for a result, by the kernels of prompts and of one and several rows.
#[test]
fn what_a_cache_cannot_hold_is_an_error() {
    with(|gpu| {
        for (cache, _) in CACHES {
            let (_dir, model) = too_large(cache);
            let tried = |kv| {
                let mut s = all_on_device(gpu, &model, kv);
                let rows = |n: usize| (0..n).map(|p| row(p as u32 % VOCAB, p, 0)).collect::<Vec<_>>();
                let mut tried = vec![];
                for role in [Role::Prompt, Role::Decode] {
                    s.reset(0).unwrap();
                    tried.push(s.step(role, rows(5), &mut |_, _| {}).map(|l| l.iter().all(|x| x.is_finite())));
                }
                s.reset(0).unwrap();
                // Positions that are all selected need no scores.
                let before = if cache == "index" { SELECTED as usize } else { 0 };
                if before > 0 {
                    step(&mut s, Role::Prompt, rows(before));
                }
                let last = rows(before + 1).split_off(before);
                tried.push(s.step(Role::Decode, last, &mut |_, _| {}).map(|l| l.iter().all(|x| x.is_finite())));
                tried
            };
            assert!(tried(Kv::F32).into_iter().all(|done| done.unwrap()), "{cache}");
            for (i, done) in tried(Kv::F16).into_iter().enumerate() {
                let error = done.expect_err(&format!("{cache}, step {i}")).to_string();
                assert!(error.contains("not finite") && error.contains("--kv f32"), "{cache}, step {i}: {error}");
            }
        }
    });
}

/// Rows that want no logits are not looked at, so that their cache may hold what is no number: the processor must not get it.
#[test]
fn what_a_cache_cannot_hold_is_not_saved() {
    with(|gpu| {
        for (cache, _) in CACHES {
            let (_dir, model) = too_large(cache);
            let mut s = all_on_device(gpu, &model, Kv::F16);
            let rows = (0..5).map(|p| Row { logits: false, ..row(p as u32 % VOCAB, p, 0) }).collect();
            step(&mut s, Role::Prompt, rows);
            let refused = s.snapshot(0).unwrap_err();
            assert!(matches!(refused, RunError::State(StateError::NotFinite { slot: 0, row: 0, .. })), "{refused}");
            assert!(refused.to_string().contains("--kv f32"), "{refused}");
            let refused = s.snapshot(1).unwrap_err();
            assert!(matches!(refused, RunError::State(StateError::Slot { slot: 1, slots: 1 })), "{refused}");
        }
    });
}
