//! A toy model whose weights are made up from its graph.

use super::*;
use crate::graph::{Node, Role, Row, expand};
use crate::ops::{Kv, WeightRole};
use crate::spec::{Arch, Config, Source};
use crate::weights::{Index, Request};
use std::fmt::Write;
use std::sync::Weak;

/// All states, a stack, both kinds of routing.
const TOY: &str = r#"
Arch(
    model_type: ["toy"],
    config: { layers: "2", d: "8", vocab: "11", eps: "0.001", m: "2", experts: "4", mixed: "l == 1", theta: "100" },
    state: {
        conv: Window(len: "2", width: "d"),
        delta: Matrix(heads: "2", k: "4", v: "4"),
        near: Ring(width: "4", window: "3"),
        pool: Window(len: "2 * m", width: "2 * d"),
        old: Rows(width: "4", every: "m"),
    },
    stacks: { sums: Stack(of: "d", max: "layers") },
    blocks: {
        embed: { x: EmbedRow(of: tokens, w: "embed", rows: "vocab", out: "d") },
        mix: {
            h: AttnResMix(of: x, stack: sums, w: "norm", proj: "proj", eps: "eps"),
            sums: AttnResPush(of: x, to: sums),
            h: RmsNorm(of: h, w: "norm", eps: "eps"),
        },
        linear: {
            v: CausalConv1d(of: h, w: "conv", to: conv, act: silu),
            v: View(of: v, shape: ["2", "4"]),
            q: Linear(of: h, w: "q", out: ["2", "4"]),
            q: L2Norm(of: q, eps: "eps"),
            g: KdaGate(of: v, a_log: "a_log", kind: softplus),
            b: Linear(of: h, w: "b", out: "2"),
            b: Sigmoid(of: b),
            o: DeltaRule(q: q, k: q, v: v, g: g, beta: b, to: delta),
        },
        pooled: {
            q: Linear(of: h, w: "q", out: ["2", "4"]),
            q: Rope(of: q, theta: "theta", in_layout: half, out_layout: half),
            k: Linear(of: h, w: "k", out: "4"),
            k: RingAppend(of: k, to: near),
            c: WindowPool(kv: h, gate: h, ape: "ape", to: pool, every: "m", overlap: "true"),
            c: Rope(of: c, theta: "theta", in_layout: half, out_layout: half),
            c: CacheAppend(of: c, to: old),
            w: Linear(of: h, w: "b", out: "2"),
            s: IndexScore(q: q, k: c, weights: w, scale: "1"),
            s: TopkSelect(of: s, k: "2"),
            o: Attn(q: q, over: [Seg(kv: k), Seg(kv: c, select: s)], scale: "0.5", sink: "sink"),
        },
        out: {
            y: Linear(of: o, w: "out", out: "d"),
            x: Add(a: x, b: y),
            z: RouterLogits(of: x, w: "router", experts: "experts"),
        },
        score: {
            r: RouterTopk(of: z, bias: "bias", k: "2", score: softmax, groups: "2", top_groups: "1", renorm: "true"),
        },
        table: { r: RouterTopk(of: z, tokens: tokens, table: "table", vocab: "vocab", k: "2", score: sigmoid) },
        moe: {
            y: MoeExperts(of: x, route: r, ff: "6", kind: silu, gate: "e.{e}.gate", up: "e.{e}.up", down: "e.{e}.down"),
            x: Add(a: x, b: y),
        },
        head: { logits: LmHead(of: x, w: "head", out: "vocab") },
    },
    programs: { main: [
        embed,
        Repeat(var: l, count: "layers", weights: "l{l}.", carry: [x, sums], run: [
            mix, Pick(by: "mixed", yes: pooled, no: linear), out, Pick(by: "mixed", yes: score, no: table), moe,
        ]),
        head,
    ] },
)"#;

fn toy() -> Arc<Graph> {
    let arch = Arch::parse(Source::new("toy.ron", TOY)).unwrap_or_else(|e| panic!("{e}"));
    let config = Config::parse("config.json", br#"{"model_type": "toy"}"#).unwrap();
    Arc::new(expand(&arch, &config, "main").unwrap_or_else(|e| panic!("{e}")))
}

/// A safetensors file with a value for every weight; `change` may edit a tensor's values.
fn weights(graph: &Graph, change: impl Fn(&str, &mut [f32])) -> Arc<Bound> {
    let (mut header, mut data) = (String::from("{"), Vec::<u8>::new());
    for w in &graph.weights {
        for e in 0..w.need.experts.unwrap_or(1) {
            let name = w.need.names[0].replace("{e}", &e.to_string());
            let n = w.need.shape.iter().product::<u64>() as usize;
            let table = w.need.role == WeightRole::Table;
            let seed = name.bytes().fold(7u64, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(b)));
            let value = |i: usize| ((seed % 1009 + 17 * i as u64) % 97) as f32 / 48.0 - 1.0;
            let mut values: Vec<f32> =
                (0..n).map(|i| if table { ((i * 3 + i / 2) % 4) as f32 } else { value(i) }).collect();
            change(&name, &mut values);
            let at = data.len();
            match table {
                true => data.extend(values.iter().flat_map(|v| (*v as i64).to_le_bytes())),
                false => data.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            }
            let dtype = if table { "I64" } else { "F32" };
            let comma = if at > 0 { "," } else { "" };
            let (shape, end) = (&w.need.shape, data.len());
            write!(header, r#"{comma}"{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{at},{end}]}}"#)
                .unwrap();
        }
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    let index = Index::from_bytes("toy", file.leak()).unwrap();
    let request = |w: &crate::graph::Weight| Request {
        names: w.need.names.clone(),
        shape: w.need.shape.clone(),
        at_least: w.need.at_least,
        experts: w.need.experts,
    };
    let requests: Vec<Request> = graph.weights.iter().map(request).collect();
    Arc::new(index.bind(&requests, &[]).unwrap())
}

const LIMITS: Limits = Limits { vocab: 11, ctx: 32, slots: 3, chunk: 32, kv: Kv::F32 };
const TOKENS: [u32; 13] = [1, 5, 2, 2, 9, 10, 0, 3, 7, 4, 8, 6, 1];

fn cpu() -> Cpu {
    let graph = toy();
    let weights = weights(&graph, |_, _| {});
    Cpu::new(graph, weights, LIMITS)
}

fn row(slot: u32, position: usize) -> Row {
    Row { token: TOKENS[(position + slot as usize) % 13], position: position as u32, slot, logits: true }
}

/// Bits of each row's logits.
fn step(cpu: &mut Cpu, rows: Vec<Row>) -> Vec<Vec<u32>> {
    let step = Step::new(Role::Prompt, rows, LIMITS, cpu.states().lengths()).unwrap();
    let logits = cpu.step(&step, &mut |_, _| {}).unwrap();
    logits.chunks(11).map(|l| l.iter().map(|v| v.to_bits()).collect()).collect()
}

#[test]
fn chunks_and_neighbours_do_not_change_bits() {
    let whole = step(&mut cpu(), (0..13).map(|p| row(1, p)).collect());
    for chunk in [1, 2, 5] {
        let mut cpu = cpu();
        let parts = (0..13).collect::<Vec<_>>();
        let got: Vec<_> =
            parts.chunks(chunk).flat_map(|c| step(&mut cpu, c.iter().map(|p| row(1, *p)).collect())).collect();
        assert_eq!(got, whole, "chunks of {chunk}");
    }
    // Three sequences in turn, of which slot 1 is the one compared.
    let mut cpu = cpu();
    let rows = |range: std::ops::Range<usize>| range.flat_map(|p| [row(2, p), row(1, p), row(0, p)]).collect();
    let mut got = step(&mut cpu, rows(0..6));
    got.extend(step(&mut cpu, rows(6..13)));
    assert_eq!(got.into_iter().skip(1).step_by(3).collect::<Vec<_>>(), whole);
    assert_eq!(cpu.states().lengths(), [13; 3]);
}

#[test]
fn threads_do_not_change_bits() {
    let run = |n: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        pool.install(|| step(&mut cpu(), (0..13).map(|p| row(0, p)).collect()))
    };
    let one = run(1);
    assert_eq!(one, run(3));
    assert!(one.iter().flatten().all(|b| f32::from_bits(*b).is_finite()));
}

#[test]
fn a_new_sequence_sees_nothing_of_an_old_one() {
    let clean = step(&mut cpu(), (0..9).map(|p| row(0, p)).collect());
    let mut cpu = cpu();
    // What a sequence leaves behind if only its length is set back.
    for state in 0..cpu.graph.states.len() {
        (0..4).for_each(|r| cpu.states_mut().row_mut(state, 0, r).fill(3.5));
    }
    assert_eq!(step(&mut cpu, (0..9).map(|p| row(0, p)).collect()), clean);
}

#[test]
fn caches_of_f16_take_half_the_memory() {
    let graph = toy();
    let bytes = |kv| {
        let states = States::new(&graph, Limits { kv, ..LIMITS });
        (0..graph.states.len()).map(|s| states.bytes(s)).collect::<Vec<_>>()
    };
    for ((state, full), half) in graph.states.iter().zip(bytes(Kv::F32)).zip(bytes(Kv::F16)) {
        let cache = ["near", "old"].contains(&state.name.as_str());
        assert_eq!(half, if cache { full / 2 } else { full }, "{}", state.name);
    }
}

#[test]
fn only_rows_that_want_logits_get_them() {
    let all = step(&mut cpu(), (0..5).map(|p| row(0, p)).collect());
    let some = step(&mut cpu(), (0..5).map(|p| Row { logits: p % 2 == 1, ..row(0, p) }).collect());
    assert_eq!(some, [all[1].clone(), all[3].clone()]);
    assert!(step(&mut cpu(), vec![Row { logits: false, ..row(0, 0) }]).is_empty());
}

#[test]
fn values_are_dropped_behind_their_last_reader() {
    let mut made: Vec<Weak<Vec<f32>>> = vec![];
    let (mut nodes, mut most) = (0, 0);
    let mut watch = |_: &Node, value: &Value| {
        nodes += 1;
        if let Value::Tensor(values) = value {
            made.push(Arc::downgrade(values));
        }
        most = most.max(made.iter().filter(|w| w.strong_count() > 0).count());
    };
    let mut cpu = cpu();
    let first = Step::new(Role::Prompt, vec![row(0, 0)], LIMITS, &[0; 3]).unwrap();
    cpu.step(&first, &mut watch).unwrap();
    assert_eq!(nodes, cpu.graph.dag.node_count());
    // Two entries of the stack, what a layer is working on, and no layer that is done.
    assert!(made.len() > 30 && most <= 9, "{most} of {} values alive at once", made.len());
}

fn failing(change: impl Fn(&str, &mut [f32])) -> CpuError {
    let graph = toy();
    let weights = weights(&graph, change);
    let mut cpu = Cpu::new(graph, weights, LIMITS);
    let first = Step::new(Role::Prompt, vec![row(0, 0), row(0, 1)], LIMITS, &[0; 3]).unwrap();
    let error = cpu.step(&first, &mut |_, _| {}).unwrap_err();
    assert_eq!(cpu.states().lengths(), [0; 3]);
    error
}

#[test]
fn a_broken_weight_is_named() {
    let break_at = |wanted: &'static str, i: usize, v: f32| {
        move |name: &str, values: &mut [f32]| {
            if name == wanted {
                values[i] = v;
            }
        }
    };
    let expect = |node: &str, row, weight: &str, at: (usize, usize)| CpuError::NonFinite {
        node: node.into(),
        row,
        weight: Some((weight.into(), at.0, at.1)),
    };
    assert_eq!(failing(break_at("l0.q", 9, f32::NAN)), expect("l0.linear.q", 0, "l0.q", (1, 1)));
    assert_eq!(failing(break_at("embed", 5 * 8 + 2, f32::INFINITY)), expect("embed.x", 1, "embed", (5, 2)));
    assert_eq!(failing(break_at("l1.bias", 3, f32::NAN)), expect("l1.score.r", 0, "l1.bias", (0, 3)));
    assert_eq!(failing(break_at("l0.e.2.up", 0, f32::NAN)), expect("l0.moe.y", 0, "l0.e.2.up", (0, 0)));
    let text = failing(break_at("l0.q", 9, f32::NAN)).to_string();
    assert!(text.contains("`l0.q` holds NaN or infinity at [1, 1]"), "{text}");
}

#[test]
fn an_overflow_names_the_node_alone() {
    let large = |name: &str, values: &mut [f32]| {
        if name == "head" {
            values.fill(f32::MAX);
        }
    };
    let error = failing(large);
    assert!(matches!(&error, CpuError::NonFinite { node, weight: None, .. } if node == "head.logits"), "{error}");
}

#[test]
fn a_routing_table_is_checked() {
    let set = |id: f32| {
        move |name: &str, values: &mut [f32]| {
            if name == "l0.table" {
                values[11] = id;
            }
        }
    };
    for id in [4, -1] {
        let want = CpuError::Table { node: "l0.table.r".into(), token: 5, id, experts: 4 };
        assert_eq!(failing(set(id as f32)), want);
    }
}

#[test]
fn a_step_made_for_other_lengths_is_refused() {
    let late = Step::new(Role::Prompt, vec![row(0, 4)], LIMITS, &[4, 0, 0]).unwrap();
    let error = cpu().step(&late, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, CpuError::Step(_)), "{error}");
}
