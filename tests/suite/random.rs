//! Random graphs: expand, check, and run to the same values on the oracle and the CPU.

use crate::common::safetensors::{Tensor, write};
use crate::support::worst_row;
use coli::graph::{Role, Row, Value, expand};
use coli::run::{Device, Model, ModelSource, Session, Sizes, load::requests};
use coli::spec::{Arch, Config, Source};
use proptest::prelude::*;
use std::fmt::Write;

/// A piece of a layer that maps x [Tokens, d] to a new x.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Mlp { gelu: bool },
    Attn { kv_heads: u64, half: bool, sink: bool },
    Latent { select: bool },
    Moe { groups: u64, softmax: bool },
    Delta { bounded: bool },
    Window { overlap: bool },
    Hyper,
    Stack,
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        any::<bool>().prop_map(|gelu| Piece::Mlp { gelu }),
        (prop_oneof![Just(1u64), Just(2), Just(4)], any::<bool>(), any::<bool>())
            .prop_map(|(kv_heads, half, sink)| Piece::Attn { kv_heads, half, sink }),
        any::<bool>().prop_map(|select| Piece::Latent { select }),
        (prop_oneof![Just(1u64), Just(2)], any::<bool>()).prop_map(|(groups, softmax)| Piece::Moe { groups, softmax }),
        any::<bool>().prop_map(|bounded| Piece::Delta { bounded }),
        any::<bool>().prop_map(|overlap| Piece::Window { overlap }),
        Just(Piece::Hyper),
        Just(Piece::Stack),
    ]
}

/// Text of a block, and of the states it needs. `p` makes names unique.
fn block(piece: Piece, p: usize) -> (String, String) {
    let mut state = String::new();
    let body = match piece {
        Piece::Mlp { gelu } => format!(
            r#"g: Linear(of: h, w: "g{p}", out: "ff"), u: Linear(of: h, w: "u{p}", bias: "ub{p}", out: "ff"),
               a: Glu(gate: g, up: u, kind: {}), y: Linear(of: a, w: "d{p}", out: "d"),"#,
            if gelu { "gelu" } else { "silu" }
        ),
        Piece::Attn { kv_heads, half, sink } => {
            let _ = write!(
                state,
                r#"k{p}: Rows(width: "{} * 8"), v{p}: Ring(width: "{} * 4", window: "5"),"#,
                kv_heads, kv_heads
            );
            let _ = write!(state, r#"r{p}: Ring(width: "{} * 8", window: "5"),"#, kv_heads);
            let layout = if half { "half" } else { "interleaved" };
            let sink = if sink { format!(r#", sink: "s{p}""#) } else { String::new() };
            format!(
                r#"q: Linear(of: h, w: "q{p}", out: ["4", "8"]), q: RmsNorm(of: q, eps: "eps"),
                   q: Rope(of: q, at: "2", dims: "6", theta: "100", in_layout: {layout}, out_layout: same),
                   k: Linear(of: h, w: "k{p}", out: ["{kv_heads}", "8"]), kr: RingAppend(of: k, to: r{p}),
                   v: Linear(of: h, w: "v{p}", out: "{kv_heads} * 4"), v: RingAppend(of: v, to: v{p}),
                   k: CacheAppend(of: k, to: k{p}),
                   near: Attn(q: q, over: [Seg(k: kr, v: v)], scale: "scale"{sink}),
                   far: Attn(q: q, over: [Seg(kv: k)], scale: "scale"),
                   c: Concat(of: [near, far]), y: Linear(of: c, w: "o{p}", out: "d"),"#
            )
        }
        Piece::Latent { select } => {
            let _ = write!(state, r#"c{p}: Rows(width: "12"), i{p}: Rows(width: "8"),"#);
            let (index, sel) = match select {
                true => (
                    format!(
                        r#"iq: Linear(of: h, w: "iq{p}", out: ["8", "8"]), ik: Linear(of: h, w: "ik{p}", out: "8"),
                           ik: LayerNorm(of: ik, w: "in{p}", bias: "ib{p}", eps: "eps"), ik: CacheAppend(of: ik, to: i{p}),
                           iw: Linear(of: h, w: "iw{p}", out: "8"), s: IndexScore(q: iq, k: ik, weights: iw, scale: "scale"),
                           sel: TopkSelect(of: s, k: "4"),"#
                    ),
                    ", select: sel",
                ),
                false => {
                    state = format!(r#"c{p}: Rows(width: "12"),"#);
                    (String::new(), "")
                }
            };
            format!(
                r#"{index} q: Linear(of: h, w: "q{p}", out: ["2", "10"]), qn: Slice(of: q, len: "6"), qr: Slice(of: q, at: "6", len: "4"),
                   kv: Linear(of: h, w: "kv{p}", out: "12"), kv: CacheAppend(of: kv, to: c{p}),
                   qa: MlaAbsorbQ(of: qn, w: "b{p}", v_dim: "5", rank: "8"),
                   l: AttnLatent(q: qa, q_rope: qr, kv: kv{sel}, scale: "scale"),
                   v: MlaExpandV(of: l, w: "b{p}", nope: "6", v_dim: "5"), y: Linear(of: v, w: "o{p}", out: "d"),"#
            )
        }
        Piece::Moe { groups, softmax } => {
            let (score, bias) =
                if softmax { ("softmax", String::new()) } else { ("sigmoid", format!(r#", bias: "cb{p}""#)) };
            format!(
                r#"z: RouterLogits(of: h, w: "r{p}", experts: "6"),
                   route: RouterTopk(of: z{bias}, k: "2", score: {score}, groups: "{groups}", top_groups: "1", renorm: "true", scale: "1.5"),
                   y: MoeExperts(of: h, route: route, ff: "7", kind: silu_clamped, limit: "0.4", gate: "e{p}.{{e}}.g", up: "e{p}.{{e}}.u", down: "e{p}.{{e}}.d"),"#
            )
        }
        Piece::Delta { bounded } => {
            let _ = write!(state, r#"w{p}: Window(len: "3", width: "8"), m{p}: Matrix(heads: "2", k: "4", v: "3"),"#);
            let kind = if bounded { r#"bounded, bound: "-5""# } else { "softplus" };
            format!(
                r#"q: Linear(of: h, w: "q{p}", out: ["2", "4"]), q: CausalConv1d(of: q, w: "cw{p}", to: w{p}, act: silu), q: L2Norm(of: q, eps: "eps"),
                   k: Linear(of: h, w: "k{p}", out: ["2", "4"]), k: L2Norm(of: k, eps: "eps", scale: "scale"),
                   v: Linear(of: h, w: "v{p}", out: ["2", "3"]), z: Linear(of: h, w: "z{p}", out: ["2", "4"]),
                   g: KdaGate(of: z, a_log: "al{p}", kind: {kind}), b: Linear(of: h, w: "be{p}", out: "2"), b: Sigmoid(of: b),
                   o: DeltaRule(q: q, k: k, v: v, g: g, beta: b, to: m{p}), gz: Linear(of: h, w: "gz{p}", out: ["2", "3"]),
                   o: RmsNormGated(of: o, z: gz, w: "on{p}", eps: "eps", gate: silu), o: MulSigmoid(of: o, z: gz),
                   y: Linear(of: o, w: "o{p}", out: "d"),"#
            )
        }
        Piece::Window { overlap } => {
            let (w, len) = if overlap { (16, 6) } else { (8, 3) };
            let _ =
                write!(state, r#"pw{p}: Window(len: "{len}", width: "2 * {w}"), pc{p}: Rows(width: "8", every: "3"),"#);
            format!(
                r#"c: Linear(of: h, w: "c{p}", out: "{w}"), g: Linear(of: h, w: "g{p}", out: "{w}"),
                   c: WindowPool(kv: c, gate: g, ape: "ape{p}", to: pw{p}, every: "3", overlap: "{overlap}"), c: RmsNorm(of: c, w: "cn{p}", eps: "eps"),
                   c: Rope(of: c, theta: "50", in_layout: interleaved, out_layout: half, yarn_factor: "4", yarn_orig: "16", yarn_fast: "32", yarn_slow: "1"),
                   c: CacheAppend(of: c, to: pc{p}), q: Linear(of: h, w: "q{p}", out: ["2", "8"]),
                   o: Attn(q: q, over: [Seg(kv: c)], scale: "scale", sink: "s{p}"),
                   o: Rope(of: o, theta: "50", in_layout: interleaved, out_layout: same, direction: inverse),
                   o: LinearGrouped(of: o, w: "og{p}", groups: "2", out: "3"), y: Linear(of: o, w: "o{p}", out: "d"),"#
            )
        }
        Piece::Hyper => format!(
            r#"X: Linear(of: h, w: "x{p}", out: ["3", "d"]),
               mix: HcWeights(of: X, fn: "hf{p}", base: "hb{p}", scale: "hs{p}", eps: "eps", norm_eps: "eps", iters: "3"),
               c: HcCollapse(of: X, mix: mix), X: HcExpand(of: c, x: X, mix: mix),
               y: HcHead(of: X, fn: "af{p}", base: "ab{p}", scale: "as{p}", eps: "eps", norm_eps: "eps"),"#
        ),
        Piece::Stack => format!(
            r#"sums: AttnResPush(of: h, to: sums), y: AttnResMix(of: x, stack: sums, w: "rn{p}", proj: "rp{p}", eps: "eps"),"#
        ),
    };
    (format!("p{p}: {{ h: RmsNorm(of: x, w: \"n{p}\", eps: \"eps\"), {body} x: Add(a: x, b: y) }},\n"), state)
}

fn graph_text(pieces: &[Piece]) -> String {
    let (mut blocks, mut states, mut run) = (String::new(), String::new(), String::new());
    for (p, piece) in pieces.iter().enumerate() {
        let (block, state) = block(*piece, p);
        blocks += &block;
        states += &state;
        let _ = write!(run, "p{p},");
    }
    format!(
        r#"Arch(model_type: ["random"], config: {{ layers: "layers", d: "d", ff: "ff", eps: "1e-5", scale: "0.3" }},
        state: {{ {states} }}, stacks: {{ sums: Stack(of: "d", max: "99") }},
        blocks: {{ e: {{ x: EmbedRow(of: tokens, w: "embed", rows: "20", out: "d") }},
        {blocks}
        end: {{ n: AttnResMix(of: x, stack: sums, w: "rn", proj: "rp", eps: "eps"), logits: LmHead(of: n, w: "head", out: "20") }} }},
        programs: {{ main: [e, Repeat(var: l, count: "layers", weights: "l{{l}}.", carry: [x, sums], run: [{run}]), end] }})"#
    )
}

/// A model directory with weights from a hash of their names.
fn model(text: &str, seed: u64) -> (tempfile::TempDir, Model) {
    let dir = tempfile::tempdir().unwrap();
    let config = r#"{"model_type": "random", "layers": 2, "d": 12, "ff": 9}"#;
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    let arch = Arch::parse(Source::new("random.ron", text)).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let graph = expand(&arch, &Config::parse("config.json", config.as_bytes()).unwrap(), "main");
    let graph = graph.unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut state = seed | 1;
    let mut tensors = vec![];
    for r in requests(&graph) {
        for e in 0..r.experts.unwrap_or(1) {
            let n: u64 = r.shape.iter().product();
            let values: Vec<f32> = (0..n)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 40) as f32 / (1 << 23) as f32 - 1.0
                })
                .collect();
            let shape = r.shape.iter().map(|d| *d as usize).collect::<Vec<_>>();
            let name = format!("{}.weight", r.names[0].replace("{e}", &e.to_string()));
            let tensor =
                if n % 2 == 0 { Tensor::from_f32_as_bf16(&shape, &values) } else { Tensor::from_f32(&shape, &values) };
            tensors.push((name, tensor));
        }
    }
    write(&dir.path().join("model.safetensors"), &tensors);
    let model = Model::load(&arch, ModelSource::Dir(dir.path().into())).unwrap_or_else(|e| panic!("{e}"));
    (dir, model)
}

/// Every node's values on a device, and the logits; tokens of two sequences in uneven steps.
fn run(model: &Model, device: Device) -> (Vec<(String, Value)>, Vec<f32>) {
    let mut s = Session::new(model, device, Sizes { ctx: 16, slots: 2, chunk: 5 });
    let (mut values, mut logits) = (vec![], vec![]);
    let mut at = [0u32; 2];
    for counts in [[3, 0], [1, 4], [5, 2], [1, 1]] {
        let mut rows = vec![];
        for (slot, n) in counts.into_iter().enumerate() {
            for _ in 0..n {
                let position = at[slot];
                rows.push(Row {
                    token: (position * 7 + slot as u32 * 3) % 20,
                    position,
                    slot: slot as u32,
                    logits: position % 2 == 0,
                });
                at[slot] += 1;
            }
        }
        logits.extend(s.step(Role::Decode, rows, &mut |n, v| values.push((n.path(), v.clone()))).unwrap());
    }
    (values, logits)
}

/// f32 sums of some tens of terms against f64 sums, over two layers of up to five pieces.
const TOLERANCE: f64 = 1e-4;

fn compare(name: &str, a: &Value, b: &Value) {
    match (a, b) {
        (Value::Tensor(a), Value::Tensor(b)) if !a.is_empty() => {
            let e = crate::common::fixture::rel_l2(b, a);
            assert!(e < TOLERANCE, "{name}: {e:.1e}");
        }
        (Value::Tensor(a), Value::Tensor(b)) => assert_eq!(a.len(), b.len(), "{name}"),
        (Value::Scores(a), Value::Scores(b)) => {
            for (a, b) in a.iter().zip(b.iter()) {
                assert_eq!(a.len(), b.len(), "{name}");
                let scale = a.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
                assert!(a.iter().zip(b).all(|(x, y)| (x - y).abs() <= 1e-4 * scale), "{name}");
            }
        }
        (Value::Selection(a), Value::Selection(b)) => assert_eq!(a, b, "{name}"),
        (Value::Route { ids: a, .. }, Value::Route { ids: b, .. }) => assert_eq!(a, b, "{name}"),
        (Value::Stack(a), Value::Stack(b)) => assert_eq!(a.len(), b.len(), "{name}"),
        (Value::Cache(a), Value::Cache(b)) => assert_eq!(a, b, "{name}"),
        (a, b) => panic!("{name}: {a:?} and {b:?}"),
    }
}

proptest! {
    // A fixed seed: a near tie between experts would be a false alarm, and must not come and go.
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(20261130), ..ProptestConfig::default() })]
    #[test]
    fn oracle_and_cpu_agree(pieces in prop::collection::vec(piece(), 1..6), seed in any::<u64>()) {
        let (_dir, model) = model(&graph_text(&pieces), seed);
        let (want, want_logits) = run(&model, Device::Oracle);
        let (got, got_logits) = run(&model, Device::Cpu);
        prop_assert_eq!(want.len(), got.len());
        for ((name, a), (other, b)) in want.iter().zip(&got) {
            prop_assert_eq!(name, other);
            compare(name, a, b);
        }
        prop_assert!(worst_row(&got_logits, &want_logits, 20) < TOLERANCE);
    }
}
