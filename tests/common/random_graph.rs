//! Random graphs: pieces of layers in random order, weights from a seed, and steps of several sequences to run.

use super::fixture::rel_l2;
use super::safetensors::write;
use super::stored::Stored;
use coli::graph::{Graph, Node, Role, Row, Value, expand};
use coli::run::{Model, ModelSource, RunError, Session, load::requests};
use coli::spec::{Arch, Config, Source};
use proptest::prelude::*;
use std::fmt::{Debug, Write};
use std::path::Path;

/// Names and values of the widths that the pieces are written in.
pub type Widths = [(&'static str, u64); 12];

/// Widths with few common factors, to find a size used for another. Many are too odd for kernels, some are not.
pub const ODD: Widths = [
    ("d", 12),
    ("ff", 9),
    ("head", 10),
    ("turn", 6),
    ("value", 7),
    ("nope", 6),
    ("rank", 8),
    ("key", 2),
    ("out", 5),
    ("eff", 7),
    ("grouped", 3),
    ("pooled", 8),
];

/// Widths that kernels can work on: matrices have a multiple of eight columns. All but `nope` and `turn` differ.
pub const EIGHTS: Widths = [
    ("d", 16),
    ("ff", 40),
    ("head", 24),
    ("turn", 8),
    ("value", 12),
    ("nope", 8),
    ("rank", 32),
    ("key", 4),
    ("out", 20),
    ("eff", 56),
    ("grouped", 4),
    ("pooled", 48),
];

/// As [`EIGHTS`], with experts wide enough for blocks of 256 columns.
pub const BLOCKS: Widths = {
    let mut widths = EIGHTS;
    let (d, eff) = (0, 9);
    (widths[d].1, widths[eff].1) = (256, 256);
    widths
};

pub const VOCAB: u32 = 20;
pub const SLOTS: u32 = 3;
pub const CHUNK: u32 = 8;
pub const CTX: u32 = 24;

/// A piece of a layer that maps x [Tokens, d] to a new x.
#[derive(Debug, Clone, Copy)]
pub enum Piece {
    Mlp { gelu: bool, bias: bool },
    Attn { kv_heads: u64, half: bool, sink: bool },
    Plain { kv_heads: u64, fused: bool },
    Latent { select: bool, joined: bool },
    Moe { groups: u64, softmax: bool, shared: bool },
    Delta { bounded: bool },
    Window { overlap: bool },
    Hyper,
    Stack,
}

pub fn piece() -> impl Strategy<Value = Piece> {
    let kv_heads = || prop_oneof![Just(1u64), Just(2), Just(4)];
    let flag = any::<bool>;
    prop_oneof![
        (flag(), flag()).prop_map(|(gelu, bias)| Piece::Mlp { gelu, bias }),
        (kv_heads(), flag(), flag()).prop_map(|(kv_heads, half, sink)| Piece::Attn { kv_heads, half, sink }),
        (kv_heads(), flag()).prop_map(|(kv_heads, fused)| Piece::Plain { kv_heads, fused }),
        (flag(), flag()).prop_map(|(select, joined)| Piece::Latent { select, joined }),
        (1..3u64, flag(), flag()).prop_map(|(groups, softmax, shared)| Piece::Moe { groups, softmax, shared }),
        flag().prop_map(|bounded| Piece::Delta { bounded }),
        flag().prop_map(|overlap| Piece::Window { overlap }),
        Just(Piece::Hyper),
        Just(Piece::Stack),
    ]
}

/// States and steps of a piece; `p` makes names unique, `h` is its normed input and `y` what it adds to x.
type Text = (String, String);

fn mlp(p: usize, gelu: bool, bias: bool) -> Text {
    let kind = if gelu { "gelu" } else { "silu" };
    let bias = if bias { format!(r#", bias: "ub{p}""#) } else { String::new() };
    let body = format!(
        r#"g: Linear(of: h, w: "g{p}", out: "ff"), u: Linear(of: h, w: "u{p}"{bias}, out: "ff"),
           a: Glu(gate: g, up: u, kind: {kind}), y: Linear(of: a, w: "d{p}", out: "d"),"#
    );
    (String::new(), body)
}

/// Two attentions over one query: near keys with values of their own, and all keys as values.
fn attn(p: usize, kv: u64, half: bool, sink: bool) -> Text {
    let layout = if half { "half" } else { "interleaved" };
    let sink = if sink { format!(r#", sink: "s{p}""#) } else { String::new() };
    let state = format!(
        r#"k{p}: Rows(width: "{kv} * head"), v{p}: Ring(width: "{kv} * value", window: "5"),
           r{p}: Ring(width: "{kv} * head", window: "5"),"#
    );
    let body = format!(
        r#"q: Linear(of: h, w: "q{p}", out: ["4", "head"]), q: RmsNorm(of: q, eps: "eps"),
           q: Rope(of: q, at: "2", dims: "turn", theta: "100", in_layout: {layout}, out_layout: same),
           k: Linear(of: h, w: "k{p}", out: ["{kv}", "head"]), kr: RingAppend(of: k, to: r{p}),
           v: Linear(of: h, w: "v{p}", out: "{kv} * value"), v: RingAppend(of: v, to: v{p}),
           k: CacheAppend(of: k, to: k{p}),
           near: Attn(q: q, over: [Seg(k: kr, v: v)], scale: "scale"{sink}),
           far: Attn(q: q, over: [Seg(kv: k)], scale: "scale"),
           c: Concat(of: [near, far]), y: Linear(of: c, w: "o{p}", out: "d"),"#
    );
    (state, body)
}

/// The usual attention. Fused: q, k and v are slices of one product, and q is not made dense by a norm.
fn plain(p: usize, kv: u64, fused: bool) -> Text {
    let state = format!(r#"k{p}: Rows(width: "{kv} * head"), v{p}: Rows(width: "{kv} * value"),"#);
    let qkv = if fused {
        format!(
            r#"a: Linear(of: h, w: "a{p}", out: "(4 + {kv}) * head + {kv} * value"),
               q: Slice(of: a, at: "{kv} * head", len: "4 * head"), q: View(of: q, shape: ["4", "head"]),
               k: Slice(of: a, len: "{kv} * head"), v: Slice(of: a, at: "(4 + {kv}) * head", len: "{kv} * value"),"#
        )
    } else {
        format!(
            r#"q: Linear(of: h, w: "q{p}", out: ["4", "head"]), q: RmsNorm(of: q, w: "qn{p}", eps: "eps"),
               q: Rope(of: q, theta: "100", in_layout: half, out_layout: same),
               k: Linear(of: h, w: "k{p}", out: ["{kv}", "head"]), k: RmsNorm(of: k, w: "kn{p}", eps: "eps"),
               k: Rope(of: k, theta: "100", in_layout: half, out_layout: same),
               v: Linear(of: h, w: "v{p}", bias: "vb{p}", out: "{kv} * value"),"#
        )
    };
    let body = format!(
        r#"{qkv} k: CacheAppend(of: k, to: k{p}), v: CacheAppend(of: v, to: v{p}),
           o: Attn(q: q, over: [Seg(k: k, v: v)], scale: "scale"), gz: Linear(of: h, w: "gz{p}", out: ["4", "value"]),
           o: MulSigmoid(of: o, z: gz), y: Linear(of: o, w: "o{p}", out: "d"),"#
    );
    (state, body)
}

fn latent(p: usize, select: bool, joined: bool) -> Text {
    let mut state = format!(r#"c{p}: Rows(width: "rank + key"),"#);
    let (mut index, mut sel) = (String::new(), "");
    if select {
        let _ = write!(state, r#"i{p}: Rows(width: "8"),"#);
        index = format!(
            r#"iq: Linear(of: h, w: "iq{p}", out: ["8", "8"]), ik: Linear(of: h, w: "ik{p}", out: "8"),
               ik: LayerNorm(of: ik, w: "in{p}", bias: "ib{p}", eps: "eps"), ik: CacheAppend(of: ik, to: i{p}),
               iw: Linear(of: h, w: "iw{p}", out: "8"), s: IndexScore(q: iq, k: ik, weights: iw, scale: "scale"),
               sel: TopkSelect(of: s, k: "4"),"#
        );
        sel = ", select: sel";
    }
    let mut kv = format!(r#"kv: Linear(of: h, w: "kv{p}", out: "rank + key"),"#);
    if joined {
        let _ = write!(
            kv,
            r#"c: Slice(of: kv, len: "rank"), c: RmsNorm(of: c, w: "kn{p}", eps: "eps"), kr: Slice(of: kv, at: "rank", len: "key"),
               kr: Rope(of: kr, theta: "100", in_layout: interleaved, out_layout: half), kv: Concat(of: [c, kr]),"#
        );
    }
    let body = format!(
        r#"{index} q: Linear(of: h, w: "q{p}", out: ["2", "nope + key"]),
           qn: Slice(of: q, len: "nope"), qr: Slice(of: q, at: "nope", len: "key"),
           {kv} kv: CacheAppend(of: kv, to: c{p}), qa: MlaAbsorbQ(of: qn, w: "b{p}", v_dim: "out", rank: "rank"),
           l: AttnLatent(q: qa, q_rope: qr, kv: kv{sel}, scale: "scale"),
           v: MlaExpandV(of: l, w: "b{p}", nope: "nope", v_dim: "out"), y: Linear(of: v, w: "o{p}", out: "d"),"#
    );
    (state, body)
}

fn moe(p: usize, groups: u64, softmax: bool, shared: bool) -> Text {
    let (score, bias) = if softmax { ("softmax", String::new()) } else { ("sigmoid", format!(r#", bias: "cb{p}""#)) };
    let mut body = format!(
        r#"z: RouterLogits(of: h, w: "r{p}", experts: "6"),
           route: RouterTopk(of: z{bias}, k: "2", score: {score}, groups: "{groups}", top_groups: "1", renorm: "true", scale: "1.5"),
           y: MoeExperts(of: h, route: route, ff: "eff", kind: silu_clamped, limit: "0.4", gate: "e{p}.{{e}}.g", up: "e{p}.{{e}}.u", down: "e{p}.{{e}}.d"),"#
    );
    if shared {
        let _ = write!(
            body,
            r#"g: Linear(of: h, w: "g{p}", out: "ff"), u: Linear(of: h, w: "u{p}", out: "ff"), a: Glu(gate: g, up: u, kind: silu),
               s: Linear(of: a, w: "d{p}", out: "d"), y: Add(a: y, b: s),"#
        );
    }
    (String::new(), body)
}

/// Its sums may nearly cancel, and a norm would then enlarge their rounding errors without limit: hence the soft norms.
fn delta(p: usize, bounded: bool) -> Text {
    let state = format!(r#"w{p}: Window(len: "3", width: "8"), m{p}: Matrix(heads: "2", k: "4", v: "3"),"#);
    let kind = if bounded { r#"bounded, bound: "-5""# } else { "softplus" };
    let body = format!(
        r#"q: Linear(of: h, w: "q{p}", out: ["2", "4"]), q: CausalConv1d(of: q, w: "cw{p}", to: w{p}, act: silu), q: L2Norm(of: q, eps: "soft"),
           k: Linear(of: h, w: "k{p}", out: ["2", "4"]), k: L2Norm(of: k, eps: "soft", scale: "scale"),
           v: Linear(of: h, w: "v{p}", out: ["2", "3"]), z: Linear(of: h, w: "z{p}", out: ["2", "4"]),
           g: KdaGate(of: z, a_log: "al{p}", kind: {kind}), b: Linear(of: h, w: "be{p}", out: "2"), b: Sigmoid(of: b),
           o: DeltaRule(q: q, k: k, v: v, g: g, beta: b, to: m{p}), gz: Linear(of: h, w: "gz{p}", out: ["2", "3"]),
           o: RmsNormGated(of: o, z: gz, w: "on{p}", eps: "soft", gate: silu), o: MulSigmoid(of: o, z: gz),
           y: Linear(of: o, w: "o{p}", out: "d"),"#
    );
    (state, body)
}

/// Near rows and pooled older ones in one softmax; where the pools overlap, of the older ones a choice.
fn window(p: usize, overlap: bool) -> Text {
    let (halves, len, select) = if overlap { (2, 6, ", select: sel") } else { (1, 3, "") };
    let state = format!(
        r#"pw{p}: Window(len: "{len}", width: "2 * {halves} * pooled"), pc{p}: Rows(width: "pooled", every: "3"),
           pr{p}: Ring(width: "pooled", window: "4"),"#
    );
    let index = format!(
        r#"iw: Linear(of: h, w: "iw{p}", out: "2"), s: IndexScore(q: q, k: c, weights: iw, scale: "scale"),
           sel: TopkSelect(of: s, k: "2"),"#
    );
    let index = if overlap { index } else { String::new() };
    let body = format!(
        r#"c: Linear(of: h, w: "c{p}", out: "{halves} * pooled"), g: Linear(of: h, w: "g{p}", out: "{halves} * pooled"),
           c: WindowPool(kv: c, gate: g, ape: "ape{p}", to: pw{p}, every: "3", overlap: "{overlap}"), c: RmsNorm(of: c, w: "cn{p}", eps: "eps"),
           c: Rope(of: c, theta: "50", in_layout: interleaved, out_layout: half, yarn_factor: "4", yarn_orig: "16", yarn_fast: "32", yarn_slow: "1"),
           c: CacheAppend(of: c, to: pc{p}), q: Linear(of: h, w: "q{p}", out: ["2", "pooled"]),
           {index} r: Linear(of: h, w: "r{p}", out: "pooled"), r: RingAppend(of: r, to: pr{p}),
           o: Attn(q: q, over: [Seg(kv: r), Seg(kv: c{select})], scale: "scale", sink: "s{p}"),
           o: Rope(of: o, theta: "50", in_layout: interleaved, out_layout: same, direction: inverse),
           o: LinearGrouped(of: o, w: "og{p}", groups: "2", out: "grouped"), y: Linear(of: o, w: "o{p}", out: "d"),"#
    );
    (state, body)
}

fn hyper(p: usize) -> Text {
    let body = format!(
        r#"X: Linear(of: h, w: "x{p}", out: ["3", "d"]),
           mix: HcWeights(of: X, fn: "hf{p}", base: "hb{p}", scale: "hs{p}", eps: "eps", norm_eps: "eps", iters: "3"),
           c: HcCollapse(of: X, mix: mix), X: HcExpand(of: c, x: X, mix: mix),
           y: HcHead(of: X, fn: "af{p}", base: "ab{p}", scale: "as{p}", eps: "eps", norm_eps: "eps"),"#
    );
    (String::new(), body)
}

fn stack(p: usize) -> Text {
    let body = format!(
        r#"sums: AttnResPush(of: h, to: sums), y: AttnResMix(of: x, stack: sums, w: "rn{p}", proj: "rp{p}", eps: "eps"),"#
    );
    (String::new(), body)
}

fn text(piece: Piece, p: usize) -> Text {
    match piece {
        Piece::Mlp { gelu, bias } => mlp(p, gelu, bias),
        Piece::Attn { kv_heads, half, sink } => attn(p, kv_heads, half, sink),
        Piece::Plain { kv_heads, fused } => plain(p, kv_heads, fused),
        Piece::Latent { select, joined } => latent(p, select, joined),
        Piece::Moe { groups, softmax, shared } => moe(p, groups, softmax, shared),
        Piece::Delta { bounded } => delta(p, bounded),
        Piece::Window { overlap } => window(p, overlap),
        Piece::Hyper => hyper(p),
        Piece::Stack => stack(p),
    }
}

/// A graph file with the pieces in two layers.
fn graph_text(pieces: &[Piece], widths: &Widths) -> String {
    let (mut blocks, mut states, mut run, mut config) = (String::new(), String::new(), String::new(), String::new());
    for (name, _) in widths {
        let _ = write!(config, r#"{name}: "{name}","#);
    }
    for (p, piece) in pieces.iter().enumerate() {
        let (state, body) = text(*piece, p);
        let _ = writeln!(blocks, r#"p{p}: {{ h: RmsNorm(of: x, w: "n{p}", eps: "eps"), {body} x: Add(a: x, b: y) }},"#);
        states += &state;
        let _ = write!(run, "p{p},");
    }
    format!(
        r#"Arch(model_type: ["random"], config: {{ layers: "layers", {config} eps: "1e-5", soft: "0.01", scale: "0.3" }},
        state: {{ {states} }}, stacks: {{ sums: Stack(of: "d", max: "99") }},
        blocks: {{ e: {{ x: EmbedRow(of: tokens, w: "embed", rows: "{VOCAB}", out: "d") }},
        {blocks}
        end: {{ n: AttnResMix(of: x, stack: sums, w: "rn", proj: "rp", eps: "eps"), logits: LmHead(of: n, w: "head", out: "{VOCAB}") }} }},
        programs: {{ main: [e, Repeat(var: l, count: "layers", weights: "l{{l}}.", carry: [x, sums], run: [{run}]), end] }})"#
    )
}

/// Numbers in (-1, 1) from a seed.
pub fn numbers(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed | 1;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Writes the weights that a graph asks for, random, each in the format that `stored` gives its first name.
fn write_weights(dir: &Path, graph: &Graph, seed: u64, stored: &mut dyn FnMut(&str) -> Stored) {
    let mut number = numbers(seed);
    let mut tensors = vec![];
    for r in requests(graph) {
        let shape = r.shape.iter().map(|d| *d as usize).collect::<Vec<_>>();
        let stored = stored(&r.names[0]).for_shape(&shape);
        for e in 0..r.experts.unwrap_or(1) {
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| number()).collect();
            let name = format!("{}.weight", r.names[0].replace("{e}", &e.to_string()));
            tensors.extend(stored.tensors(&name, &shape, &values));
        }
    }
    write(&dir.join("model.safetensors"), &tensors);
}

/// A graph file and a config with random weights. The directory lives as long as the model.
pub fn model_from(
    text: &str,
    config: &str,
    seed: u64,
    stored: &mut dyn FnMut(&str) -> Stored,
) -> (tempfile::TempDir, Model) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    let arch = Arch::parse(Source::new("made.ron", text)).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let graph = expand(&arch, &Config::parse("config.json", config.as_bytes()).unwrap(), "main");
    write_weights(dir.path(), &graph.unwrap_or_else(|e| panic!("{e}\n{text}")), seed, stored);
    let model = Model::load(&arch, ModelSource::Dir(dir.path().into())).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (dir, model)
}

/// A model of the pieces, its weights in three random formats: pipelines for all would cost most of a test's time.
pub fn model(pieces: &[Piece], widths: &Widths, seed: u64) -> (tempfile::TempDir, Model) {
    model_in(&Stored::ALL, pieces, widths, seed)
}

/// As [`model`], with three of these formats.
pub fn model_in(from: &[Stored], pieces: &[Piece], widths: &Widths, seed: u64) -> (tempfile::TempDir, Model) {
    let numbered: String = widths.iter().map(|(name, value)| format!(r#", "{name}": {value}"#)).collect();
    let config = format!(r#"{{"model_type": "random", "layers": 2{numbered}}}"#);
    let mut number = numbers(seed ^ 0x5707ed);
    let mut pick = |n: usize| ((number() + 1.0) / 2.0 * n as f32) as usize % n;
    let formats = [0; 3].map(|_| from[pick(from.len())]);
    let mut stored = |name: &str| match formats[pick(3)] {
        // Experts have E8 all or none, and nothing else has it.
        Stored::E8 if !name.contains("{e}") => Stored::Int8Row,
        _ if name.contains("{e}") && formats.contains(&Stored::E8) => Stored::E8,
        other => other,
    };
    model_from(&graph_text(pieces, widths), &config, seed, &mut stored)
}

/// Rows per sequence of a step.
pub type Counts<const N: usize> = (Role, [u32; N]);

/// Uneven steps in both roles, with some sequences paused.
pub const STEPS: [Counts<{ SLOTS as usize }>; 7] = [
    (Role::Prompt, [3, 0, 1]),
    (Role::Decode, [1, 4, 0]),
    (Role::Prompt, [0, 2, 6]),
    (Role::Decode, [1, 0, 0]),
    (Role::Decode, [5, 2, 1]),
    (Role::Prompt, [1, 0, 0]),
    (Role::Decode, [1, 1, 1]),
];

/// Values that nodes made, by number of the step and path.
pub type Values = Vec<((usize, String), Value)>;

/// Every node's value that a session shows, and the logits.
pub fn run<const N: usize>(session: &mut Session, steps: &[Counts<N>]) -> Result<(Values, Vec<f32>), RunError> {
    let (mut values, mut logits) = (vec![], vec![]);
    let mut at = [0u32; N];
    let vocab = session.limits().vocab;
    for (n, (role, counts)) in steps.iter().enumerate() {
        let mut rows = vec![];
        // Rows of the sequences alternate.
        for i in 0..counts.iter().copied().max().unwrap_or(0) {
            for (slot, _) in counts.iter().enumerate().filter(|(_, count)| i < **count) {
                let position = at[slot];
                let token = (position * 37 + slot as u32 * 11) % vocab;
                rows.push(Row { token, position, slot: slot as u32, logits: position.is_multiple_of(2) });
                at[slot] += 1;
            }
        }
        let mut watch = |node: &Node, value: &Value| values.push(((n, node.path()), value.clone()));
        logits.extend(session.step(*role, rows, &mut watch)?);
    }
    Ok((values, logits))
}

/// f32 sums of some tens of terms against f64 sums, over two layers of up to five pieces.
pub const TOLERANCE: f64 = 1e-4;

/// Relative L2 of what a device made against the oracle; 0 for choices, which must be exact.
pub fn difference(name: &dyn Debug, got: &Value, want: &Value) -> f64 {
    match (got, want) {
        (Value::Tensor(g), Value::Tensor(w)) => tensor_difference(g, w),
        (Value::Scores(g), Value::Scores(w)) => {
            let lengths = |rows: &[Vec<f32>]| rows.iter().map(Vec::len).collect::<Vec<_>>();
            assert_eq!(lengths(g), lengths(w), "{name:?}");
            tensor_difference(&g.concat(), &w.concat())
        }
        (Value::Selection(g), Value::Selection(w)) => {
            assert_eq!(g, w, "{name:?}");
            0.0
        }
        (Value::Route { ids: g, weights: gw }, Value::Route { ids: w, weights: ww }) => {
            assert_eq!(g, w, "{name:?}");
            tensor_difference(gw, ww)
        }
        (Value::Stack(g), Value::Stack(w)) => {
            assert_eq!(g.len(), w.len(), "{name:?}");
            g.iter().zip(w).map(|(g, w)| tensor_difference(g, w)).fold(0.0, f64::max)
        }
        (Value::Cache(g), Value::Cache(w)) => {
            assert_eq!(g, w, "{name:?}");
            0.0
        }
        (g, w) => panic!("{name:?}: {g:?} and {w:?}"),
    }
}

fn tensor_difference(got: &[f32], want: &[f32]) -> f64 {
    // No rows, or nothing but zeros: then nothing but zeros is right.
    if got == want { 0.0 } else { rel_l2(got, want) }
}
