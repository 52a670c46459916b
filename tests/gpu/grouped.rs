//! Experts of a prompt's rows, tile by tile, against the oracle: in each weight format, with routes as uneven as they get.
//! And a row's bits: alone, in other tiles, beside other rows.

use crate::common::random_graph::{Counts, difference, model_from, numbers, run};
use crate::common::safetensors::{Tensor, write};
use crate::common::stored::Stored;
use crate::device::{Gpu, with};
use coli::graph::{Role, Row, Value, WeightId, expand};
use coli::ops::Kv;
use coli::plan::{Shape, compile};
use coli::run::load::requests;
use coli::run::vulkan::Options;
use coli::run::{Device, Model, ModelSource, Session, Sizes};
use coli::spec::{Arch, Config, Source};

const ROWS: usize = 130;
const SIZES: Sizes = Sizes { ctx: 300, slots: 2, chunk: ROWS as u32 + 6, kv: Kv::F32 };

/// Items of an expert around the border of a tile of 32, and several tiles.
const STEPS: [Counts<2>; 4] = [
    (Role::Prompt, [1, 0]),
    (Role::Prompt, [30, 1]),
    (Role::Prompt, [32, 1]),
    (Role::Prompt, [100, ROWS as u32 - 100]),
];

/// Worst relative L2 of any value on llvmpipe is a third of this.
const BOUND: f64 = 2.5e-6;

/// Two mixtures in a row: of few among some experts, and of all, where each expert has all rows. The bias makes some experts
/// almost everybody's choice and others nobody's.
fn graph_text(format: Stored, [inp, ff]: [u64; 2], [experts, k]: [u64; 2]) -> String {
    // Their scales are found by names that end like this.
    let end = if matches!(format, Stored::Mxfp4 | Stored::Fp8 | Stored::Fp8Ue8m0) { ".weight" } else { "" };
    let of = |n: u64| format!(r#"gate: "w{n}g.{{e}}{end}", up: "w{n}u.{{e}}{end}", down: "w{n}d.{{e}}{end}""#);
    // E8 is for experts alone.
    let linear = if format == Stored::E8 { "s".to_string() } else { format!("ws{end}") };
    format!(
        r#"Arch(model_type: ["grouped"], config: {{ eps: "1e-5" }}, state: {{}}, blocks: {{ t: {{
        a: EmbedRow(of: tokens, w: "a", rows: "97", out: "{inp}"), n: RmsNorm(of: a, w: "n", eps: "eps"),
        q: L2Norm(of: a, eps: "eps", scale: "3"), z: RouterLogits(of: q, w: "r", experts: "{experts}"),
        few: RouterTopk(of: z, bias: "b", k: "{k}", score: sigmoid, renorm: "true"),
        all: RouterTopk(of: z, k: "{experts}", score: softmax),
        x: MoeExperts(of: n, route: few, ff: "{ff}", kind: silu, {}), s: Linear(of: n, w: "{}", out: "{inp}"),
        x: Add(a: x, b: s), x: Add(a: a, b: x), m: RmsNorm(of: x, eps: "eps"),
        y: MoeExperts(of: m, route: all, ff: "{ff}", kind: gelu, {}),
        logits: LmHead(of: y, w: "h", out: "97") }} }}, programs: {{ main: [t] }})"#,
        of(1),
        linear,
        of(2)
    )
}

fn model(format: Stored, widths: [u64; 2], chosen: [u64; 2]) -> (tempfile::TempDir, Model) {
    let stored = |name: &str| if name.starts_with('w') { format } else { Stored::F32 };
    let config = r#"{"model_type": "grouped"}"#;
    model_from(&graph_text(format, widths, chosen), config, 20261203, &mut |name| stored(name))
}

fn on_device(gpu: &Gpu, model: &Model, observe: bool, without_matrices: bool) -> Session {
    let options = Options { observe, without_matrices, ..Options::default() };
    Session::on_vulkan(model, gpu.device.clone(), SIZES, &options).unwrap_or_else(|e| panic!("{e}"))
}

/// How many rows chose each expert.
fn chosen(ids: &[u32], experts: u64) -> Vec<usize> {
    (0..experts as u32).map(|e| ids.iter().filter(|id| **id == e).count()).collect()
}

/// Every value of every step against the oracle.
fn compare(gpu: &Gpu, format: Stored, model: &Model, [experts, k]: [u64; 2], without_matrices: bool) {
    let (want, _) = run(&mut Session::new(model, Device::Oracle, SIZES), &STEPS).unwrap();
    let (got, _) = run(&mut on_device(gpu, model, true, without_matrices), &STEPS).unwrap();
    let mut worst = 0.0f64;
    let mut seen = 0;
    for (name, value) in &got {
        let (_, wanted) = want.iter().find(|(n, _)| n == name).unwrap();
        let e = difference(name, value, wanted);
        assert!(e < BOUND, "{}: {name:?} {e:.1e}", format.name());
        worst = worst.max(e);
        seen += usize::from(matches!(&name.1[..], "t.y" | "t.x#3"));
        if let (Value::Route { ids, .. }, true) = (value, name == &(STEPS.len() - 1, "t.few".to_string())) {
            let counts = chosen(ids, experts);
            let uneven = counts.contains(&0) && [1..32, 65..ROWS].iter().all(|r| counts.iter().any(|n| r.contains(n)));
            assert!(uneven || k == experts, "not as uneven as the test wants: {counts:?}");
        }
    }
    assert_eq!(seen, 2 * STEPS.len(), "the sums were not seen");
    println!("{}: {} values, worst difference {worst:.1e}", format.name(), got.len());
}

/// Logits of rows with these tokens in one step from position 0 on.
fn bits(s: &mut Session, tokens: &[u32]) -> Vec<u32> {
    s.reset(0).unwrap();
    let row = |(i, token): (usize, &u32)| Row { token: *token, position: i as u32, slot: 0, logits: true };
    let rows = tokens.iter().enumerate().map(row).collect();
    let logits = s.step(Role::Prompt, rows, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Nothing here depends on a row's position, so a row has the same bits wherever it stands.
fn same_bits(gpu: &Gpu, format: Stored, model: &Model, without_matrices: bool) {
    let mut s = on_device(gpu, model, false, without_matrices);
    let tokens: Vec<u32> = (0..ROWS as u32).map(|i| i * 37 % 97).collect();
    let vocab = model.graph.vocab as usize;
    let want = bits(&mut s, &tokens);
    assert!(want[..vocab] != want[vocab..2 * vocab], "rows that do not differ show nothing");
    for i in [0, 31, 32, 77, ROWS - 1] {
        let alone = bits(&mut s, &tokens[i..=i]);
        assert!(alone == want[i * vocab..(i + 1) * vocab], "{}: other bits of row {i} alone", format.name());
    }
    for (i, piece) in [0..33, 33..40, 40..ROWS].into_iter().enumerate() {
        let got = bits(&mut s, &tokens[piece.clone()]);
        assert!(got == want[piece.start * vocab..piece.end * vocab], "{}: other bits in piece {i}", format.name());
    }
}

fn check(format: Stored) {
    // Not all of a workgroup's outputs; whole blocks of 256 where the format is made of them.
    let widths = if format == Stored::E8 { [512, 256] } else { [320, 192] };
    let chosen = [9, 3];
    let (_dir, model) = model(format, widths, chosen);
    with(|gpu| {
        // By tiles of multiply-adds, and by cooperative matrices where the device has them; these two formats never go by those.
        let ways: &[bool] = if matches!(format, Stored::F32 | Stored::Bf16) { &[true] } else { &[true, false] };
        for &without_matrices in ways {
            compare(gpu, format, &model, chosen, without_matrices);
            same_bits(gpu, format, &model, without_matrices);
        }
    });
}

macro_rules! formats {
    ($($name:ident: $format:ident),*) => { $(#[test] fn $name() { check(Stored::$format); })* };
}
formats!(
    f32: F32, bf16: Bf16, f16: F16, int8: Int8Row, int4: Int4Row, int4_grouped: Int4Grouped, int2: Int2Row, int3: Int3G64,
    mxfp4: Mxfp4, fp8: Fp8, fp8_ue8m0: Fp8Ue8m0, e8: E8
);

/// More outputs than products are kept of at a time: two slices, the second narrower. Sixteen ranks.
#[test]
fn slices() {
    let (format, chosen) = (Stored::Int4Row, [16, 16]);
    let (_dir, model) = model(format, [4160, 8], chosen);
    let formats = |w: WeightId| model.weights.format(w.0 as usize);
    let shape = Shape::new(SIZES.chunk, SIZES.ctx);
    let plan = compile(&model.graph, &formats, &[], Role::Prompt, shape).unwrap();
    let named = |name: &str| plan.lowered.passes.iter().any(|p| p.name == name);
    assert!(named("t.x products 2") && !named("t.x products 3"));
    with(|gpu| compare(gpu, format, &model, chosen, true));
}

/// A table of experts by token, read on the CPU: nothing keeps it from naming an expert twice.
fn table_model(dir: &std::path::Path) -> Model {
    let text = r#"Arch(model_type: ["table"], config: {}, state: {}, blocks: { t: {
        a: EmbedRow(of: tokens, w: "a", rows: "97", out: "64"), z: RouterLogits(of: a, w: "r", experts: "5"),
        route: RouterTopk(of: z, table: "table", tokens: tokens, vocab: "97", k: "3", score: sigmoid),
        y: MoeExperts(of: a, route: route, ff: "64", kind: silu, gate: "g.{e}", up: "u.{e}", down: "d.{e}"),
        logits: LmHead(of: y, w: "h", out: "97") } }, programs: { main: [t] })"#;
    let config = r#"{"model_type": "table"}"#;
    let arch = Arch::parse(Source::new("table.ron", text)).unwrap_or_else(|e| panic!("{e}"));
    let graph = expand(&arch, &Config::parse("config.json", config.as_bytes()).unwrap(), "main");
    let mut number = numbers(20261204);
    let mut tensors = vec![];
    for r in requests(&graph.unwrap_or_else(|e| panic!("{e}"))) {
        let shape: Vec<usize> = r.shape.iter().map(|d| *d as usize).collect();
        for e in 0..r.experts.unwrap_or(1) {
            let name = r.names[0].replace("{e}", &e.to_string());
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| number()).collect();
            // Two of three are expert 0 or 1.
            let ids: Vec<i64> = values.iter().map(|v| ((v.abs() * 13.0) as i64 - 8).max((*v < 0.0).into())).collect();
            let table = name == "table";
            tensors
                .push((name, if table { Tensor::from_i64(&shape, &ids) } else { Tensor::from_f32(&shape, &values) }));
        }
    }
    std::fs::write(dir.join("config.json"), config).unwrap();
    write(&dir.join("model.safetensors"), &tensors);
    Model::load(&arch, ModelSource::Dir(dir.into())).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn experts_twice_in_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let model = table_model(dir.path());
    let (want, _) = run(&mut Session::new(&model, Device::Oracle, SIZES), &STEPS).unwrap();
    let twice = |ids: &[u32]| ids[0] == ids[1] || ids[1] == ids[2] || ids[0] == ids[2];
    let found = want.iter().filter_map(|(_, v)| match v {
        Value::Route { ids, .. } => Some(ids.chunks(3).filter(|ids| twice(ids)).count()),
        _ => None,
    });
    assert!(found.sum::<usize>() > ROWS / 4, "no row names an expert twice");
    with(|gpu| {
        let (got, _) = run(&mut on_device(gpu, &model, true, true), &STEPS).unwrap();
        let mut seen = 0;
        for (name, value) in &got {
            let (_, wanted) = want.iter().find(|(n, _)| n == name).unwrap();
            let e = difference(name, value, wanted);
            assert!(e < BOUND, "{name:?} {e:.1e}");
            seen += usize::from(name.1 == "t.y");
        }
        assert_eq!(seen, STEPS.len());
    });
}
