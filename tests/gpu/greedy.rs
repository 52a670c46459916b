//! Tokens that the device picks: those of the host, from the same logits.

use crate::common::fixture::{Fixture, fixture};
use crate::common::random_graph::model_from;
use crate::common::safetensors::write;
use crate::common::stored::Stored;
use crate::device::{Gpu, with};
use crate::support::{argmax, load};
use coli::graph::{Role, Row};
use coli::ops::Kv;
use coli::plan::place::{Place, Rule};
use coli::run::vulkan::{Lane, Options, Span};
use coli::run::{Model, ModelSource, Session, Sizes, Want};
use coli::spec::{Arch, Source};

fn session(gpu: &Gpu, model: &Model, sizes: Sizes, options: &Options) -> Session {
    Session::on_vulkan(model, gpu.device.clone(), sizes, options).unwrap_or_else(|e| panic!("{e}"))
}

fn row(token: u32, position: usize, slot: u32) -> Row {
    Row { token, position: position as u32, slot, logits: true }
}

/// The node that makes the logits, on the CPU: then the host picks.
fn head_on_cpu(model: &Model) -> Options {
    let head = model.graph.resource(model.graph.logits).producer.unwrap();
    let rules = vec![Rule { pattern: model.graph.dag[head].path(), place: Place::Cpu }];
    Options { rules, ..Options::default() }
}

/// Sessions on one device follow one another: each counts on from the last submit that it knows.
fn continues(gpu: &Gpu, f: &Fixture, model: &Model, options: &Options) {
    let sizes = Sizes { ctx: f.ids.len() as u32, slots: 1, chunk: 16, kv: Kv::F32 };
    let vocab = f.vocab as u32;
    let (prompt, rest) = f.ids.split_at(f.prompt_len);
    let mut s = session(gpu, model, sizes, options);
    let mut want = s.append(0, prompt, Want::Last, &mut |_| {}).unwrap();
    for token in &rest[..rest.len() - 1] {
        let fed = row(*token, s.len(0) as usize, 0);
        want.extend(s.step(Role::Decode, vec![fed], &mut |_, _| {}).unwrap());
    }
    assert_eq!(want.chunks(f.vocab).map(argmax).collect::<Vec<_>>(), rest, "{}", f.name);
    // All by tokens, then every other step by logits, which have the same bits as ever.
    for logits_every in [usize::MAX, 2] {
        let mut s = session(gpu, model, sizes, options);
        let mut tokens = vec![s.append_greedy(0, prompt, vocab, &mut |_| {}).unwrap().unwrap()];
        while tokens.len() < rest.len() {
            let fed = vec![row(tokens[tokens.len() - 1], s.len(0) as usize, 0)];
            if tokens.len() % logits_every == 0 {
                let logits = s.step(Role::Decode, fed, &mut |_, _| {}).unwrap();
                let at = tokens.len() * f.vocab;
                assert!(logits == want[at..at + f.vocab], "{}: other bits at {}", f.name, tokens.len());
                tokens.push(argmax(&logits));
            } else {
                tokens.extend(s.greedy(Role::Decode, fed, vocab).unwrap());
            }
        }
        assert_eq!(tokens, rest, "{}", f.name);
    }
}

#[test]
fn fixtures_continue_as_recorded() {
    with(|gpu| {
        for name in ["qwen3", "glm_moe_dsa", "deepseek_v4"] {
            let f = fixture(name);
            let model = load(&f);
            continues(gpu, &f, &model, &Options::default());
            continues(gpu, &f, &model, &head_on_cpu(&model));
        }
    });
}

/// A token costs one submit and one wait, and the logits stay where they are.
#[test]
fn one_submit_and_one_wait_a_token() {
    with(|gpu| {
        let f = fixture("qwen3");
        let model = load(&f);
        let sizes = Sizes { ctx: f.ids.len() as u32, slots: 1, chunk: 64, kv: Kv::F32 };
        let mut s = session(gpu, &model, sizes, &Options { timed: true, ..Options::default() });
        let token = s.append_greedy(0, &f.ids[..4], f.vocab as u32, &mut |_| {}).unwrap().unwrap();
        s.spans();
        s.greedy(Role::Decode, vec![row(token, 4, 0)], f.vocab as u32).unwrap();
        let greedy = s.spans();
        s.step(Role::Decode, vec![row(token, 5, 0)], &mut |_, _| {}).unwrap();
        let by_logits = s.spans();
        let count = |spans: &[Span], lane, part: &str| {
            spans.iter().filter(|s| s.lane == lane && (s.name.contains(part) || s.kind == part)).count()
        };
        for (spans, [tokens, logits]) in [(&greedy, [1, 0]), (&by_logits, [0, 1])] {
            assert_eq!((count(spans, Lane::Host, "submit"), count(spans, Lane::Host, "wait")), (1, 1), "{spans:#?}");
            assert_eq!(count(spans, Lane::Device, "argmax"), tokens);
            assert_eq!(count(spans, Lane::Device, "token to host"), tokens);
            assert_eq!(count(spans, Lane::Device, "logits to host"), logits);
        }
    });
}

/// Steps of several rows in both roles, not all of which want a token, by both endings.
fn rows_of(gpu: &Gpu, model: &Model, vocab: usize, options: &Options, what: &str) {
    let sizes = Sizes { ctx: 16, slots: 2, chunk: 16, kv: Kv::F32 };
    const STEPS: [(Role, [usize; 2]); 3] = [(Role::Prompt, [7, 4]), (Role::Decode, [1, 0]), (Role::Decode, [3, 5])];
    let rows = |s: &Session, counts: [usize; 2]| -> Vec<Row> {
        let of_slot = |(slot, count): (u32, usize)| {
            (s.len(slot)..).take(count).map(move |position| {
                let token = (position * 7919 + slot * 31) % vocab as u32;
                Row { token, position, slot, logits: position % 3 != 2 }
            })
        };
        (0..).zip(counts).flat_map(of_slot).collect()
    };
    // Half of the rows of a vocabulary may be padding.
    let among = |role| if role == Role::Prompt { vocab / 2 + 1 } else { vocab };
    let mut want = vec![];
    let mut s = session(gpu, model, sizes, options);
    for (role, counts) in STEPS {
        let fed = rows(&s, counts);
        let logits = s.step(role, fed, &mut |_, _| {}).unwrap();
        want.push(logits.chunks(vocab).map(|row| argmax(&row[..among(role)])).collect::<Vec<_>>());
    }
    let mut s = session(gpu, model, sizes, options);
    for ((role, counts), want) in STEPS.into_iter().zip(&want) {
        let fed = rows(&s, counts);
        assert_eq!(s.greedy(role, fed, among(role) as u32).unwrap(), *want, "{what}, {role:?} {counts:?}");
    }
    assert!(want.concat().len() > 10);
}

#[test]
fn vocabularies_of_any_size() {
    with(|gpu| {
        // Two-bit weights of eight columns are often equal.
        for (vocab, format) in [
            (1, Stored::F32),
            (2, Stored::F32),
            (97, Stored::Int2Row),
            (2049, Stored::Int2Row),
            (4096, Stored::F32),
            (154_881, Stored::F32),
            (154_881, Stored::Int2Row),
        ] {
            let text = format!(
                r#"Arch(model_type: ["made"], config: {{}}, state: {{}}, blocks: {{ t: {{
                    e: EmbedRow(of: tokens, w: "e", rows: "{vocab}", out: "8"), logits: LmHead(of: e, w: "w", out: "{vocab}"),
                }} }}, programs: {{ main: [t] }})"#
            );
            let (_dir, model) = model_from(&text, r#"{"model_type": "made"}"#, 20261203, &mut |_| format);
            let what = format!("{vocab} logits from {}", format.name());
            rows_of(gpu, &model, vocab, &Options::default(), &what);
            rows_of(gpu, &model, vocab, &head_on_cpu(&model), &what);
        }
    });
}

/// Logits of token 0 are finite; of token 1 one is infinite, of token 2 minus infinite; of token 3 the sum of both, which is
/// NaN, or infinite where the second product is not rounded.
fn overflowing() -> (tempfile::TempDir, Model) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), r#"{"model_type": "made"}"#).unwrap();
    let (mut e, mut w) = (vec![0.0; 5 * 8], vec![0.25; 5 * 8]);
    for token in 0..4 {
        e[8 * token + token] = 2.0;
    }
    e[8 * 3 + 4] = 2.0;
    w[8 * 3 + 1] = 3e38;
    w[8 * 4 + 2] = -3e38;
    (w[8 * 2 + 3], w[8 * 2 + 4]) = (3e38, -3e38);
    let tensors = [("e.weight", e), ("w.weight", w)].map(|(name, v)| Stored::F32.tensors(name, &[5, 8], &v));
    write(&dir.path().join("model.safetensors"), &tensors.into_iter().flatten().collect::<Vec<_>>());
    let text = r#"Arch(model_type: ["made"], config: {}, state: {}, blocks: { t: {
        e: EmbedRow(of: tokens, w: "e", rows: "5", out: "8"), logits: LmHead(of: e, w: "w", out: "5"),
    } }, programs: { main: [t] })"#;
    let arch = Arch::parse(Source::new("made.ron", text.to_string())).unwrap_or_else(|e| panic!("{e}"));
    let model = Model::load(&arch, ModelSource::Dir(dir.path().into())).unwrap_or_else(|e| panic!("{e}"));
    (dir, model)
}

/// The same error as by logits, whichever ids may be chosen; lengths stay, and the next step works.
#[test]
fn a_logit_that_is_not_finite_is_an_error() {
    with(|gpu| {
        let (_dir, model) = overflowing();
        let sizes = Sizes { ctx: 8, slots: 1, chunk: 8, kv: Kv::F32 };
        for options in [Options::default(), head_on_cpu(&model)] {
            let mut s = session(gpu, &model, sizes, &options);
            for bad in 1..4 {
                for tokens in [vec![bad], vec![0, bad, 0]] {
                    let rows: Vec<Row> = tokens.iter().enumerate().map(|(i, t)| row(*t, i, 0)).collect();
                    let want = s.step(Role::Decode, rows.clone(), &mut |_, _| {}).unwrap_err().to_string();
                    for among in [1, 5] {
                        let error = s.greedy(Role::Decode, rows.clone(), among).unwrap_err().to_string();
                        assert_eq!(error, want, "{tokens:?}");
                        let on_host = error.contains("made NaN or infinity");
                        assert!(on_host || error.contains("a value that is not finite"), "{error}");
                    }
                    assert_eq!(s.len(0), 0);
                }
            }
            assert_eq!(s.greedy(Role::Decode, vec![row(0, 0, 0), row(0, 1, 0)], 5).unwrap(), [0, 0]);
            assert_eq!(s.len(0), 2);
        }
    });
}
