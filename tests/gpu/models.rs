//! Every fixture on the device against its reference: tokens and choices exact, 1e-4 relative L2 per row of logits.
//!
//! 1e-4: the device sums in f32 in another order, and the references are f32 themselves.

use crate::common::fixture::{Fixture, fixture};
use crate::device::{Gpu, with};
use crate::support::{Choices, argmax, interleaved, load, worst_row};
use coli::graph::{Role, Row};
use coli::ops::Kv;
use coli::plan::place::{Place, Rule};
use coli::run::vulkan::{Fault, Options};
use coli::run::{Device, Model, RunError, Session, Sizes, Want};

const TOLERANCE: f64 = 1e-4;

fn session(gpu: &Gpu, model: &Model, sizes: Sizes, options: &Options) -> Session {
    Session::on_vulkan(model, gpu.device.clone(), sizes, options).unwrap_or_else(|e| panic!("{e}"))
}

fn sizes(f: &Fixture, slots: u32, chunk: u32) -> Sizes {
    Sizes { ctx: f.ids.len() as u32, slots, chunk, kv: Kv::F32 }
}

fn row(token: u32, position: usize, slot: u32) -> Row {
    Row { token, position: position as u32, slot, logits: true }
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

/// The prompt by the prompt kernels, the rest by the decode kernels.
fn run(s: &mut Session, f: &Fixture) -> Vec<f32> {
    let mut logits = s.append(0, &f.ids[..f.prompt_len], Want::All, &mut |_| {}).unwrap();
    for (i, token) in f.ids.iter().enumerate().skip(f.prompt_len) {
        logits.extend(s.step(Role::Decode, vec![row(*token, i, 0)], &mut |_, _| {}).unwrap());
    }
    logits
}

/// Logits, experts and positions of every row, prompt and decoded.
fn choices(gpu: &Gpu, f: &Fixture, model: &Model) {
    let options = Options { observe: true, ..Options::default() };
    let mut s = session(gpu, model, sizes(f, 1, f.ids.len() as u32), &options);
    let mut seen = Choices::default();
    let rows = f.ids.iter().enumerate().map(|(i, t)| row(*t, i, 0)).collect();
    let logits = s.step(Role::Prompt, rows, &mut |n, v| seen.see(n, v)).unwrap();
    check(f, &logits, 0, "all rows by prompt kernels");
    seen.check(f, "on the device", TOLERANCE);
    let mut s = session(gpu, model, sizes(f, 1, 64), &options);
    let mut seen = Choices::default();
    let mut logits = vec![];
    for (i, token) in f.ids.iter().enumerate() {
        logits.extend(s.step(Role::Decode, vec![row(*token, i, 0)], &mut |n, v| seen.see(n, v)).unwrap());
    }
    check(f, &logits, 0, "all rows by decode kernels");
    seen.check(f, "decoded on the device", TOLERANCE);
}

/// Saved on the device, restored into both slots: the same bits as without.
fn save_and_restore(gpu: &Gpu, f: &Fixture, model: &Model) {
    let mut s = session(gpu, model, sizes(f, 2, 64), &Options::default());
    let cut = f.prompt_len - 7;
    s.append(0, &f.ids[..cut], Want::Last, &mut |_| {}).unwrap();
    let saved = s.snapshot(0).unwrap();
    let want = s.append(0, &f.ids[cut..cut + 4], Want::All, &mut |_| {}).unwrap();
    for slot in [0, 1] {
        s.restore(slot, &saved).unwrap();
        let got = s.append(slot, &f.ids[cut..cut + 4], Want::All, &mut |_| {}).unwrap();
        assert!(got == want, "{}: other bits after restore into slot {slot}", f.name);
    }
}

/// Three sequences in every decode step, each with the bits it has alone.
fn three_slots(gpu: &Gpu, f: &Fixture, model: &Model) {
    let n = 40;
    let sequences = [f.ids[..n].to_vec(), f.ids.iter().rev().take(n).copied().collect(), f.ids[2..n + 2].to_vec()];
    let mut alone = session(gpu, model, sizes(f, 1, 64), &Options::default());
    let want: Vec<Vec<f32>> = sequences
        .iter()
        .map(|ids| {
            alone.reset(0).unwrap();
            let step = |(i, t): (usize, &u32)| alone.step(Role::Decode, vec![row(*t, i, 0)], &mut |_, _| {}).unwrap();
            ids.iter().enumerate().flat_map(step).collect()
        })
        .collect();
    let mut s = session(gpu, model, sizes(f, 3, 64), &Options::default());
    let got = interleaved(&mut s, &sequences, f.vocab);
    for slot in 0..3 {
        assert!(got[slot] == want[slot], "{}: other bits in slot {slot}", f.name);
    }
}

/// Nodes moved to the CPU change no token.
fn placements(gpu: &Gpu, f: &Fixture, model: &Model) {
    let last = model.graph.layers - 1;
    for pattern in ["*.routed".to_string(), format!("l{last}.*"), "*.x".into()] {
        if !model.graph.nodes().any(|(_, n)| coli::names::glob::matches(&pattern, &n.path())) {
            continue;
        }
        let rules = vec![Rule { pattern: pattern.clone(), place: Place::Cpu }];
        let mut s = session(gpu, model, sizes(f, 1, 64), &Options { rules, ..Options::default() });
        check(f, &run(&mut s, f), 0, &format!("with {pattern} on the CPU"));
    }
}

/// Passes of a level in another order: the same bits.
fn shuffled(gpu: &Gpu, f: &Fixture, model: &Model) {
    let times = std::env::var("COLI_SHUFFLES").ok().and_then(|n| n.parse().ok()).unwrap_or(1u64);
    let mut want = None;
    for shuffle in 0..=times {
        let mut s = session(gpu, model, sizes(f, 1, 64), &Options { shuffle, ..Options::default() });
        let logits = run(&mut s, f);
        match &want {
            None => {
                check(f, &logits, 0, "prompt, then decoded");
                want = Some(logits);
            }
            Some(w) => assert!(*w == logits, "{}: other bits in shuffle {shuffle}", f.name),
        }
    }
    println!("{}: the same bits in {times} shuffled orders", f.name);
}

fn everything(name: &str) {
    with(|gpu| {
        let f = fixture(name);
        let model = load(&f);
        shuffled(gpu, &f, &model);
        choices(gpu, &f, &model);
        save_and_restore(gpu, &f, &model);
        three_slots(gpu, &f, &model);
        placements(gpu, &f, &model);
    });
}

macro_rules! fixtures {
    ($($name:ident),*) => { $(#[test] fn $name() { everything(stringify!($name)); })* };
}
fixtures!(glm_moe_dsa, glm_moe_dsa_w256, kimi_linear, kimi_k3, deepseek_v4, deepseek_v4_native, qwen3, qwen3_moe);

/// Prompts of every length around the borders of tiles, chunks and workgroups, against the oracle.
#[test]
fn lengths() {
    with(|gpu| {
        let f = fixture("glm_moe_dsa");
        let model = load(&f);
        let ids: Vec<u32> = f.ids.iter().cycle().take(258).copied().collect();
        let sizes = Sizes { ctx: 258, slots: 1, chunk: 128, kv: Kv::F32 };
        let mut oracle = Session::new(&model, Device::Oracle, sizes);
        let want = oracle.append(0, &ids, Want::All, &mut |_| {}).unwrap();
        let mut s = session(gpu, &model, sizes, &Options::default());
        for n in [1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 255, 256, 257] {
            s.reset(0).unwrap();
            let mut got = s.append(0, &ids[..n], Want::Last, &mut |_| {}).unwrap();
            got.extend(s.step(Role::Decode, vec![row(ids[n], n, 0)], &mut |_, _| {}).unwrap());
            let want = &want[(n - 1) * f.vocab..(n + 1) * f.vocab];
            let worst = worst_row(&got, want, f.vocab);
            assert!(worst < TOLERANCE, "prompt of {n}: {worst:.1e}");
        }
    });
}

/// Every fault ends in an error with a name, in time, and what it breaks stays broken for that device only.
#[test]
fn faults() {
    with(|gpu| {
        let f = fixture("qwen3");
        let model = load(&f);
        let last = "last passed: `tied_head.logits to host`";
        let faults: [(&str, &[&str], &str); 4] = [
            ("lost@2", &["device was lost (vkQueueSubmit2)", last], "device was lost"),
            (
                "submit@2",
                &["vkQueueSubmit2", "compute queue", "ERROR_OUT_OF_DEVICE_MEMORY"],
                "takes no work since a submit failed",
            ),
            ("memory@2", &["no memory for `injected` (256 bytes"], ""),
            ("stuck@2", &["has been still", last], ""),
        ];
        for (fault, parts, again) in faults {
            let options = Options { fault: Fault::parse(fault), debug: true, ..Options::default() };
            let mut s = Session::on_vulkan(&model, gpu.another(), sizes(&f, 1, 64), &options).unwrap();
            s.append(0, &f.ids[..4], Want::Last, &mut |_| {}).unwrap();
            s.append(0, &f.ids[4..5], Want::Last, &mut |_| {}).unwrap();
            let start = std::time::Instant::now();
            let error = s.append(0, &f.ids[5..6], Want::Last, &mut |_| {}).unwrap_err();
            assert!(matches!(error, RunError::Vulkan(_)), "{fault}: {error}");
            let text = error.to_string();
            assert!(parts.iter().all(|p| text.contains(p)), "{fault}: {text}");
            assert!(start.elapsed().as_secs() < 5 && s.len(0) == 5, "{fault}");
            let next = s.append(0, &f.ids[5..6], Want::Last, &mut |_| {});
            match again {
                "" => assert!(next.is_ok(), "{fault}: {:?}", next.err()),
                again => assert!(next.unwrap_err().to_string().contains(again), "{fault}"),
            }
        }
    });
}

/// Breadcrumbs behind every pass, and poison under every transient, change no bit.
#[test]
fn debugging() {
    with(|gpu| {
        let f = fixture("glm_moe_dsa");
        let model = load(&f);
        let logits = |debug| {
            let options = Options { debug, ..Options::default() };
            run(&mut session(gpu, &model, sizes(&f, 1, 64), &options), &f)
        };
        assert!(logits(true) == logits(false));
    });
}
