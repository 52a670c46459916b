//! int8 activations: the CPU against the oracle, which has the definition in code of its own.

use crate::common::random_graph::{
    BLOCKS, CHUNK, CTX, EIGHTS, ODD, SLOTS, TOLERANCE, VOCAB, difference, model_in, piece,
};
use crate::common::stored::Stored;
use crate::support::{arch, argmax, root, worst_row};
use coli::formats::Format;
use coli::formats::activation::Activations;
use coli::graph::{Node, Role, Row, Value};
use coli::ops::{Kv, Op};
use coli::run::{Device, Lockstep, Model, ModelSource, Session, Sizes, Want};
use coli::text::{DirFiles, Tokenizer};
use proptest::prelude::*;

/// Formats whose products take int8 inputs.
const CODED: [Stored; 7] = [
    Stored::Int8Row,
    Stored::Int4Row,
    Stored::Int4Grouped,
    Stored::Int2Row,
    Stored::Int3G64,
    Stored::Mxfp4,
    Stored::E8,
];

/// What a node may differ by when its inputs are the oracle's.
fn bound(model: &Model, node: &Node) -> f64 {
    let coded = |f: Format| {
        let groups = matches!(f, Format::Int4Grouped { group } if group % 16 == 0);
        let rows = matches!(f, Format::Int8Row | Format::Int4Row | Format::Int2Row);
        groups || rows || matches!(f, Format::Int3G64 | Format::Mxfp4 | Format::E8)
    };
    let weight = node.weights.first().and_then(|w| model.weights.format(w.0 as usize));
    match &node.op {
        // Every operation of these is defined, so there is nothing to differ by.
        Op::Linear { .. } | Op::LmHead { .. } | Op::LinearGrouped { .. } | Op::MlaExpandV { .. }
            if weight.is_some_and(coded) =>
        {
            0.0
        }
        // Activated in f32 here and in f64 there, then rounded to int8: a last bit may decide a code or two of a few.
        Op::MoeExperts { .. } => 2.0 / 127.0,
        _ => TOLERANCE,
    }
}

fn rows(counts: [u32; SLOTS as usize], at: &mut [u32; SLOTS as usize]) -> Vec<Row> {
    let mut rows = vec![];
    for i in 0..counts.iter().copied().max().unwrap_or(0) {
        for (slot, _) in counts.iter().enumerate().filter(|(_, count)| i < **count) {
            let (position, slot32) = (at[slot], slot as u32);
            let token = (position * 37 + slot32 * 11) % VOCAB;
            rows.push(Row { token, position, slot: slot32, logits: position.is_multiple_of(2) });
            at[slot] += 1;
        }
    }
    rows
}

fn in_step(model: &Model) -> Result<(), TestCaseError> {
    let mut pair = Lockstep::new(model, Sizes { ctx: CTX, slots: SLOTS, chunk: CHUNK, kv: Kv::F32 }, Activations::Int8);
    let (mut at, mut wrong) = ([0; SLOTS as usize], vec![]);
    for (role, counts) in [(Role::Prompt, [3, 0, 1]), (Role::Decode, [1, 4, 0]), (Role::Prompt, [1, 1, 6])] {
        let mut see = |node: &Node, want: &Value, got: &Value| {
            let (bound, error) = (bound(model, node), difference(&node.path(), got, want));
            if error > bound {
                wrong.push(format!("{}: {error:.1e}", node.path()));
            }
        };
        pair.step(role, rows(counts, &mut at), &mut see).unwrap();
    }
    prop_assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(20261202), ..ProptestConfig::default() })]
    #[test]
    fn random_graphs_node_by_node(pieces in prop::collection::vec(piece(), 1..4), seed in any::<u64>(), widths in 0..3usize) {
        let (_dir, model) = model_in(&CODED, &pieces, [&ODD, &EIGHTS, &BLOCKS][widths], seed);
        in_step(&model)?;
    }
}

fn container() -> (Model, Tokenizer) {
    let dir = root("tests/models/dictionary-glm52-int4");
    let model = Model::load(&arch("glm52"), ModelSource::Dir(dir.clone())).unwrap_or_else(|e| panic!("{e}"));
    (model, Tokenizer::load(&DirFiles(dir)).unwrap())
}

const QUESTION: &str = "[gMASK]<sop><|user|>What does quickly mean?<|assistant|><think></think>";

/// The demo model's own weights: int8 everywhere, experts int4.
#[test]
fn the_container_node_by_node() {
    let (model, tokenizer) = container();
    let ids = tokenizer.encode(QUESTION).unwrap();
    let sizes = Sizes { ctx: 64, slots: 1, chunk: 64, kv: Kv::F32 };
    let mut pair = Lockstep::new(&model, sizes, Activations::Int8);
    let rows = ids.iter().enumerate().map(|(i, t)| Row { token: *t, position: i as u32, slot: 0, logits: true });
    let (mut exact, mut experts) = (0, 0.0f64);
    let mut see = |node: &Node, want: &Value, got: &Value| {
        let (bound, error) = (bound(&model, node), difference(&node.path(), got, want));
        assert!(error <= bound, "{}: {error:.1e}", node.path());
        exact += usize::from(bound == 0.0);
        if matches!(node.op, Op::MoeExperts { .. }) {
            experts = experts.max(error);
        }
    };
    pair.step(Role::Prompt, rows.collect(), &mut see).unwrap();
    println!("{exact} nodes in bits, experts within {experts:.1e}");
    assert!(exact > 50);
}

/// All the way, each with its own values. A code that rounds the other way changes later ones, so the two drift apart,
/// but by less than int8 is away from f32. The same answer, and on the CPU the same bits in any chunks.
#[test]
fn the_container_from_end_to_end() {
    let (model, tokenizer) = container();
    let ids = tokenizer.encode(QUESTION).unwrap();
    let session = |device, activations, chunk| {
        Session::with_activations(&model, device, Sizes { ctx: 64, slots: 1, chunk, kv: Kv::F32 }, activations)
    };
    let prompt = |device, activations, chunk| {
        session(device, activations, chunk).append(0, &ids, Want::All, &mut |_| {}).unwrap()
    };
    let vocab = model.graph.vocab as usize;
    let want = prompt(Device::Oracle, Activations::Int8, 64);
    let got = prompt(Device::Cpu, Activations::Int8, 64);
    let cost = worst_row(&want, &prompt(Device::Oracle, Activations::F32, 64), vocab);
    let drift = worst_row(&got, &want, vocab);
    println!("int8 costs {cost:.1e}, codes that round the other way {drift:.1e}");
    assert!(cost > 1e-3 && drift < cost, "{cost:.1e} {drift:.1e}");
    for chunk in [1, 7] {
        assert!(prompt(Device::Cpu, Activations::Int8, chunk) == got, "other bits in chunks of {chunk}");
    }
    for device in [Device::Oracle, Device::Cpu] {
        let mut s = session(device, Activations::Int8, 64);
        let mut next = argmax(&s.append(0, &ids, Want::Last, &mut |_| {}).unwrap());
        let mut answer = vec![];
        while next != 4039 && answer.len() < 30 {
            answer.push(next);
            next = argmax(&s.append(0, &[next], Want::Last, &mut |_| {}).unwrap());
        }
        let text = tokenizer.decode(&answer, true).unwrap();
        assert_eq!(text, "The adverb quickly means: with rapid movements.", "{}", device.name());
    }
}
