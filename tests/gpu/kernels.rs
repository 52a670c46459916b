//! Every kernel against the oracle: each operator that has one, in each weight format that it reads, in both roles, in graphs of
//! little else. Widths, counts and lengths lie on both sides of the borders of blocks, tiles and workgroups.
//!
//! What the oracle makes of the last step is also a snapshot per format, with the worst difference seen on llvmpipe as the
//! operator's bound. The device is compared with the oracle, never with the snapshot, and may miss by three bounds.

#[path = "attention_cases.rs"]
mod attention;
#[path = "cache_cases.rs"]
mod cache_cases;
#[path = "kernel_cases.rs"]
mod cases;

use crate::common::random_graph::{Counts, Values, difference, model_from, run};
use crate::common::stored::Stored;
use crate::device::{Gpu, with};
use crate::support::snapshots;
use attention::SEGMENTS;
use cache_cases::HALVES;
use cases::{Case, PLAIN, READERS, ROTATED};
use coli::graph::{Node, Role, Value, WeightId};
use coli::ops::{Kv, Op, Type};
use coli::plan::Tuning;
use coli::plan::place::{Place, Rule, place};
use coli::run::vulkan::Options;
use coli::run::{Device, Model, Session, Sizes};
use std::collections::BTreeMap;
use std::fmt::Write;

pub const VOCAB: u64 = 97;

/// One row, a few, and more than two tiles of a prompt; one, seven and eight of the decode kernels.
const ROWS: [Counts<2>; 6] = [
    (Role::Prompt, [1, 0]),
    (Role::Prompt, [5, 4]),
    (Role::Prompt, [33, 0]),
    (Role::Decode, [1, 0]),
    (Role::Decode, [4, 3]),
    (Role::Decode, [0, 8]),
];

/// Prompts up to 62, 95 and 126 positions; decoded rows that see 63, 64, 65 and 127, 128, 129.
const LENGTHS: [Counts<2>; 11] = [
    (Role::Prompt, [33, 0]),
    (Role::Prompt, [29, 4]),
    (Role::Decode, [1, 0]),
    (Role::Decode, [1, 0]),
    (Role::Decode, [1, 1]),
    (Role::Prompt, [33, 7]),
    (Role::Prompt, [28, 1]),
    (Role::Decode, [1, 0]),
    (Role::Decode, [1, 2]),
    (Role::Decode, [1, 0]),
    (Role::Decode, [1, 7]),
];

fn sizes(kv: Kv) -> Sizes {
    Sizes { ctx: 132, slots: 2, chunk: 40, kv }
}

const TOLERANCE: f64 = 1e-4;

/// The graph of a case. A linear map on the CPU reads each result named y..., so that no kernel swallows it and all are used.
fn graph_text(case: &Case, format: Stored) -> String {
    let (mut text, mut body, mut tails) = (case.body.to_string(), String::new(), String::new());
    if matches!(format, Stored::Mxfp4 | Stored::Fp8 | Stored::Fp8Ue8m0) {
        // Their scales are found by names that end like this.
        let named = |(i, part): (usize, &str)| {
            let tested = i % 2 == 1 && part.starts_with('w');
            if tested { format!("{part}.weight") } else { part.to_string() }
        };
        text = text.split('"').enumerate().map(named).collect::<Vec<_>>().join("\"");
    }
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (name, _) = line.split_once(':').unwrap();
        let _ = writeln!(body, "{line},");
        if name.starts_with('y') {
            let _ = writeln!(body, r#"tail_{name}: Linear(of: {name}, w: "tail_{name}", out: "8"),"#);
            let _ = write!(tails, "tail_{name},");
        }
    }
    if !case.body.contains("logits:") {
        let _ = writeln!(body, r#"tail: Concat(of: [{tails}]), logits: LmHead(of: tail, w: "tail", out: "{VOCAB}"),"#);
    }
    format!(
        r#"Arch(model_type: ["kernel"], config: {{ eps: "1e-5", scale: "0.3" }}, state: {{ {} }},
        blocks: {{ t: {{ {body} }} }}, programs: {{ main: [t] }})"#,
        case.state
    )
}

/// Names of tested weights begin with w, and of a case's inputs with anything else; those are f32.
fn stored(name: &str, format: Stored) -> Stored {
    match name.as_bytes()[0] {
        b'w' => format,
        // Few different values, for ties.
        b'i' => Stored::Int4Row,
        _ => Stored::F32,
    }
}

/// A case with what the oracle makes of it.
struct Made {
    case: &'static Case,
    model: Model,
    values: BTreeMap<(usize, String), Value>,
    logits: Vec<f32>,
    kv: Kv,
    _dir: tempfile::TempDir,
}

fn steps(case: &Case, session: &mut Session) -> (Values, Vec<f32>) {
    match case.lengths {
        true => run(session, &LENGTHS),
        false => run(session, &ROWS),
    }
    .unwrap_or_else(|e| panic!("{}: {e}", case.op))
}

fn make(case: &'static Case, format: Stored, kv: Kv) -> Made {
    let config = r#"{"model_type": "kernel"}"#;
    let (_dir, model) = model_from(&graph_text(case, format), config, 20261202, &mut |name| stored(name, format));
    let (values, logits) = steps(case, &mut Session::new(&model, Device::Oracle, sizes(kv)));
    Made { case, model, values: values.into_iter().collect(), logits, kv, _dir }
}

fn tail(name: &str) -> bool {
    name.starts_with("tail")
}

impl Made {
    fn node(&self, name: &str) -> &Node {
        let found = self.model.graph.nodes().map(|(_, n)| n).find(|n| n.name == name);
        found.unwrap_or_else(|| panic!("{}: no node is named {name}", self.case.op))
    }

    /// All nodes but the tails have a kernel; embeddings and pools make inputs, of any width. And the format is there.
    fn check(&self, format: Stored) {
        let formats = |w: WeightId| self.model.weights.format(w.0 as usize);
        let count = self.model.graph.weights.len() as u32;
        let found = (0..count).any(|w| formats(WeightId(w)).is_some_and(|f| f.name() == format.name()));
        assert!(found, "{}: no weight is read as {}", self.case.op, format.name());
        let placed = place(&self.model.graph, &formats, &[]).unwrap();
        let input = |n: &Node| matches!(n.op, Op::EmbedRow { .. } | Op::WindowPool { .. }) && !n.name.starts_with('y');
        for (i, n) in self.model.graph.nodes().filter(|(_, n)| !tail(&n.name) && !input(n)) {
            let p = &placed[i.index()];
            let own = n.name == "logits" && !self.case.body.contains("logits:");
            // Ragged groups of three bits have no kernel, and say so.
            let ragged = format == Stored::Int3G64 && p.why.as_ref().is_some_and(|w| w.contains("columns of int3-g64"));
            assert!(
                own || ragged || p.place == Place::Gpu,
                "{}: {} is on the CPU: {:?}",
                self.case.op,
                n.path(),
                p.why
            );
        }
    }

    /// What passes make of all steps, by plans laid out as for the device that most was measured on.
    fn run(&self, gpu: &Gpu, base: &Options) -> (Values, Vec<f32>) {
        let rules = match self.case.body.contains("logits:") {
            true => vec![],
            false => vec![Rule { pattern: "*.tail*".into(), place: Place::Cpu }],
        };
        let tuning = Some(Tuning::default());
        let options = Options { rules, observe: true, tuning, ..base.clone() };
        let s = Session::on_vulkan(&self.model, gpu.device.clone(), sizes(self.kv), &options);
        steps(self.case, &mut s.unwrap_or_else(|e| panic!("{}: {e}", self.case.op)))
    }

    /// The worst difference of any value that passes make, by the kernels of devices with cooperative matrices or without.
    fn on_device(&self, gpu: &Gpu, without_matrices: bool) -> f64 {
        self.compared(gpu, &Options { without_matrices, ..Options::default() })
    }

    fn compared(&self, gpu: &Gpu, options: &Options) -> f64 {
        let (values, logits) = self.run(gpu, options);
        let op = self.case.op;
        let (mut worst, mut seen) = (0.0f64, 0);
        let own = |path: &str| !path.contains(".tail") && (self.case.show == "logits" || !path.ends_with(".logits"));
        for (name, got) in values.iter().filter(|((_, path), _)| own(path)) {
            let e = difference(name, got, &self.values[name]);
            assert!(e < TOLERANCE, "{op}: {name:?} {e:.1e}");
            worst = worst.max(e);
            seen += usize::from(name.1 == format!("t.{}", self.case.show));
        }
        let e = difference(&op, &Value::tensor(logits), &Value::tensor(self.logits.clone()));
        assert!(e < TOLERANCE, "{op}: logits {e:.1e}");
        assert!(seen > 0, "{op}: {} was not seen", self.case.show);
        worst
    }

    /// What the oracle made of the last step.
    fn text(&self, format: Stored) -> String {
        let node = self.node(self.case.show);
        let last = self.values.keys().map(|(step, _)| *step).max().unwrap();
        let (values, rows) = match &self.values[&(last, node.path())] {
            Value::Tensor(t) => (t.to_vec(), None),
            Value::Route { ids, weights } => {
                (ids.iter().map(|i| *i as f32).chain(weights.iter().copied()).collect(), Some("ids, then weights"))
            }
            other => panic!("{}: {other:?}", self.case.op),
        };
        let dims: Vec<u64> = match &self.model.graph.resource(node.output).ty {
            Type::Tensor { dims, .. } => dims.clone(),
            Type::Route { k, .. } => vec![2 * *k],
            other => panic!("{}: {other:?}", self.case.op),
        };
        let count = values.len() as u64 / dims.iter().product::<u64>();
        let digits = |v: &[f32]| v.iter().map(|x| format!("{x:.5e}")).collect::<Vec<_>>().join(" ");
        let bound = self.case.bound(format);
        let wide = || values.iter().map(|x| f64::from(*x));
        format!(
            "{} {}\n  shape {:?}{}\n  sum {:.5e}\n  L2 {:.5e}\n  first {}\n  last {}\n  bound {}\n",
            self.case.op,
            self.case.show,
            [&[count], &dims[..]].concat(),
            rows.map_or(String::new(), |r| format!(", {r}")),
            wide().sum::<f64>(),
            wide().map(|x| x * x).sum::<f64>().sqrt(),
            digits(&values[..8.min(values.len())]),
            digits(&values[values.len().saturating_sub(8)..]),
            if bound == 0.0 { "0".into() } else { format!("{bound:.0e}") },
        )
    }
}

/// A number rounded up to one digit, as it is written in a case.
fn rounded_up(x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    let power = 10f64.powi(x.log10().floor() as i32);
    (x / power).ceil() * power
}

/// All cases that read a format; those that read none go with f32.
fn check(format: Stored) {
    let cases: Vec<&Case> = match format {
        Stored::F32 => READERS.iter().chain(PLAIN).chain(SEGMENTS).collect(),
        Stored::E8 => ROTATED.iter().collect(),
        _ => READERS.iter().collect(),
    };
    let made: Vec<Made> = cases.into_iter().map(|case| make(case, format, Kv::F32)).collect();
    made.iter().for_each(|m| m.check(format));
    with(|gpu| {
        let mut over = vec![];
        for m in &made {
            // Prompts by matrices take long to compile on a processor: a format with a factor a row and two with factors for
            // groups are enough for what linear maps have around the product. `grouped` has the products of all.
            let matrices = [Stored::Int4Row, Stored::Int4Grouped, Stored::Mxfp4].contains(&format);
            let without = m.on_device(gpu, true);
            let worst = if matrices { without.max(m.on_device(gpu, false)) } else { without };
            let bound = m.case.bound(format);
            println!("{} {}: {:.0e} of {bound:.0e}", m.case.op, format.name(), rounded_up(worst));
            if worst > 3.0 * bound {
                over.push(format!("{}: {worst:.1e} is over three times {bound:.0e}", m.case.op));
            }
        }
        assert!(over.is_empty(), "{}: {over:#?}", format.name());
    });
    let text: String = made.iter().map(|m| m.text(format)).collect();
    snapshots(|| insta::assert_snapshot!(format!("kernels-{}", format.name()), text));
}

/// What a cache holds is the same on both sides, but for the few values that are made (`caches.rs` says why).
#[test]
fn caches_of_f16() {
    let made: Vec<Made> = HALVES.iter().chain(SEGMENTS).map(|case| make(case, Stored::F32, Kv::F16)).collect();
    made.iter().for_each(|m| m.check(Stored::F32));
    with(|gpu| {
        for m in &made {
            // The keys of SEGMENTS are made, and so are their index scores.
            let made_first = SEGMENTS.iter().any(|s| s.op == m.case.op);
            let bound = if made_first { 2e-5 } else { m.case.bound(Stored::F32) };
            let worst = m.on_device(gpu, true);
            println!("{}: {:.0e} of {bound:.0e}", m.case.op, rounded_up(worst));
            assert!(worst <= 3.0 * bound, "{}: {worst:.1e} is over three times {bound:.0e}", m.case.op);
        }
    });
}

/// Cases whose inputs are taken in digits.
fn in_digits(format: Stored) -> Vec<Made> {
    let cases = READERS.iter().filter(|c| ["Linear, fused", "Glu of two linear maps", "MoeExperts"].contains(&c.op));
    let made: Vec<Made> = cases.map(|case| make(case, format, Kv::F32)).collect();
    made.iter().for_each(|m| m.check(format));
    made
}

/// Groups of 16 columns: factors change within a block of digits, which those of 64 do not.
#[test]
fn factors_within_a_block() {
    let made = in_digits(Stored::Int4G16);
    with(|gpu| {
        for m in &made {
            let (worst, bound) = (m.on_device(gpu, true), m.case.bound(Stored::Int4Grouped));
            println!("{} int4-g16: {:.0e} of {bound:.0e}", m.case.op, rounded_up(worst));
            assert!(worst <= 3.0 * bound, "{}: {worst:.1e} is over three times {bound:.0e}", m.case.op);
        }
    });
}

/// The kernels of devices without dot products of bytes.
#[test]
fn without_dot_products() {
    let options = Options { without_dot_products: true, without_matrices: true, ..Options::default() };
    let made = in_digits(Stored::Int4Row);
    with(|gpu| {
        for m in &made {
            let (worst, bound) = (m.compared(gpu, &options), m.case.bound(Stored::Int4Row));
            println!("{} without dot products: {:.0e} of {bound:.0e}", m.case.op, rounded_up(worst));
            assert!(worst <= 3.0 * bound, "{}: {worst:.1e} is over three times {bound:.0e}", m.case.op);
        }
    });
}

#[test]
fn f32_weights() {
    check(Stored::F32);
}

#[test]
fn bf16_weights() {
    check(Stored::Bf16);
}

#[test]
fn f16_weights() {
    check(Stored::F16);
}

#[test]
fn int8_row_weights() {
    check(Stored::Int8Row);
}

#[test]
fn int4_row_weights() {
    check(Stored::Int4Row);
}

#[test]
fn int4_grouped_weights() {
    check(Stored::Int4Grouped);
}

#[test]
fn int2_row_weights() {
    check(Stored::Int2Row);
}

#[test]
fn int3_grouped_weights() {
    check(Stored::Int3G64);
}

#[test]
fn mxfp4_weights() {
    check(Stored::Mxfp4);
}

#[test]
fn fp8_weights() {
    check(Stored::Fp8);
}

#[test]
fn fp8_ue8m0_weights() {
    check(Stored::Fp8Ue8m0);
}

#[test]
fn e8_weights() {
    check(Stored::E8);
}
