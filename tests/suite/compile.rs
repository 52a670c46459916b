//! Compiled plans: of the published configurations as snapshots, and refused when anything is taken away.

use crate::stages::GLM_STAGES;
use crate::support::{arch, root, snapshots};
use coli::formats::Format;
use coli::graph::{Graph, WeightId, expand};
use coli::ops::Op;
use coli::plan::compile::{Hazard, Instr};
use coli::plan::pass::{Buf, Work};
use coli::plan::place::{Place, Rule};
use coli::plan::prove::prove;
use coli::plan::{Plan, Role, Shape, compile};
use coli::spec::Config;

pub fn graph(file: &str, config: &str) -> Graph {
    let text = std::fs::read(root(config)).unwrap();
    let config = Config::parse("config.json", &text).unwrap();
    expand(&arch(file), &config, "main").unwrap_or_else(|e| panic!("{e}"))
}

fn plan(graph: &Graph, role: Role, rules: &[Rule]) -> Plan {
    let rows = if role == Role::Decode { 8 } else { 128 };
    compile(graph, &|_| Some(Format::Int4Row), rules, role, Shape::new(rows, 4096)).unwrap_or_else(|e| panic!("{e}"))
}

const CPU_EXPERTS: (&str, Place) = ("*.routed", Place::Cpu);

fn rule((pattern, place): (&str, Place)) -> Rule {
    Rule { pattern: pattern.into(), place }
}

/// Stages (dependent levels of device passes) of each layer kind, by its blocks.
fn stages_per_layer(g: &Graph, p: &Plan) -> Vec<(String, usize)> {
    let stages = |layer: u32| {
        let passes = p.lowered.passes.iter().enumerate().filter(|(_, pass)| pass.layer == Some(layer) && pass.on_gpu());
        passes.map(|(i, _)| p.schedule.rank[i]).collect::<std::collections::BTreeSet<_>>().len()
    };
    g.kinds.iter().map(|k| (k.blocks.join("+"), stages(k.layers[k.layers.len() / 2]))).collect()
}

#[test]
fn glm_full_size() {
    let g = graph("glm52", "tests/configs/glm52.json");
    let start = std::time::Instant::now();
    let p = plan(&g, Role::Decode, &[]);
    println!("78 layers compiled and proven in {:?}: {:?}", start.elapsed(), p.figures());
    let stages = stages_per_layer(&g, &p);
    assert!(stages.iter().all(|(_, n)| *n <= GLM_STAGES), "{stages:?}");
    assert_eq!(p.figures().joins, 0);
    snapshots(|| insta::assert_snapshot!("compiled-glm52-decode", p.text(&g)));
    let prompt = plan(&g, Role::Prompt, &[]);
    snapshots(|| insta::assert_snapshot!("compiled-glm52-prompt", prompt.text(&g)));
    let split = plan(&g, Role::Decode, &[rule(CPU_EXPERTS)]);
    assert_eq!(split.figures().joins, 75, "one join per sparse layer");
    snapshots(|| insta::assert_snapshot!("compiled-glm52-decode-cpu-experts", split.text(&g)));
}

#[test]
fn other_families() {
    for (file, config) in
        [("kimi_k3", "kimi_k3"), ("deepseek_v4_flash", "deepseek_v4_flash"), ("qwen3_moe", "qwen3_30b_a3b")]
    {
        let g = graph(file, &format!("tests/configs/{config}.json"));
        let p = plan(&g, Role::Decode, &[]);
        snapshots(|| insta::assert_snapshot!(format!("compiled-{config}-decode"), p.text(&g)));
    }
}

/// Whether a CPU node takes what the device segment just before it has copied back.
fn reads_newest(p: &Plan, pass: usize) -> bool {
    let Work::Cpu { reads, .. } = &p.lowered.passes[pass].work else { return false };
    let segment = p.schedule.times[pass].segment;
    p.lowered.passes.iter().enumerate().any(|(i, copy)| match copy.work {
        Work::Copy { to, .. } => reads.contains(&to) && p.schedule.times[i].segment + 1 == segment,
        _ => false,
    })
}

/// Every part of a plan that keeps it safe is taken away in turn; each time the prover must refuse.
fn mutate(name: &str, p: &Plan) {
    prove(p).unwrap();
    let mut tried = 0;
    for at in 0..p.instrs.len() {
        let mut m = p.clone();
        match p.instrs[at] {
            Instr::Barrier(_) => drop(m.instrs.remove(at)),
            Instr::Cpu { pass, wait } if reads_newest(p, pass) => {
                // Nodes of one segment wait for the same value, and the first wait serves them all.
                for i in &mut m.instrs {
                    *i = match *i {
                        Instr::Cpu { pass, wait: w } if w == wait => Instr::Cpu { pass, wait: 0 },
                        other => other,
                    };
                }
            }
            Instr::Wait(_) => m.instrs[at] = Instr::Wait(0),
            _ => continue,
        }
        tried += 1;
        let refused = prove(&m).expect_err(&format!("{name}: without {:?} at {at}", p.instrs[at]));
        let named = |s: &str| !s.is_empty() && refused.to_string().contains(s);
        if let Instr::Barrier(b) = p.instrs[at] {
            let cause = &p.barriers[b].causes[0];
            let known = p.barriers[b].causes.iter().any(|c| named(&p.lowered.passes[c.later].name));
            assert!(known || cause.hazard == Hazard::HostRead, "{name}: {refused}");
        }
    }
    // A device batch that does not wait for the CPU node whose result it takes.
    for (b, batch) in p.batches.iter().enumerate().filter(|(_, b)| b.after_cpu.is_some()) {
        let takes = p.lowered.passes.iter().enumerate().any(|(i, pass)| {
            p.schedule.times[i].segment == batch.segment && matches!(pass.work, Work::Copy { from: Buf::Upload(_), .. })
        });
        if takes {
            let mut m = p.clone();
            m.batches[b].after_cpu = None;
            prove(&m).expect_err(&format!("{name}: batch {b} without its wait"));
            tried += 1;
        }
    }
    // Two transients that are alive together, in the same bytes.
    for t in 0..p.slots.len() {
        let a = p.slots[t];
        let other = (0..p.slots.len()).find(|u| {
            let b = p.slots[*u];
            *u != t && a.first < b.first && b.first < a.last && b.offset + a.bytes.max(b.bytes) <= p.arena
        });
        if let Some(u) = other {
            let mut m = p.clone();
            m.slots[t].offset = p.slots[u].offset;
            prove(&m).expect_err(&format!("{name}: transient {t} in the bytes of {u}"));
            tried += 1;
        }
    }
    println!("{name}: {tried} mutations refused");
    assert!(tried > 20);
}

#[test]
fn mutations_are_refused() {
    for (file, fixture) in [("glm52", "glm_moe_dsa"), ("kimi_k3", "kimi_k3"), ("deepseek_v4_flash", "deepseek_v4")] {
        let g = graph(file, &format!("tests/fixtures/{fixture}/config.json"));
        for role in [Role::Decode, Role::Prompt] {
            mutate(&format!("{fixture} {role:?}"), &plan(&g, role, &[]));
        }
        mutate(&format!("{fixture} with experts on the CPU"), &plan(&g, Role::Decode, &[rule(CPU_EXPERTS)]));
    }
}

fn decode(g: &Graph, format: Option<Format>, rules: &[(&str, Place)]) -> Result<Plan, String> {
    let rules: Vec<Rule> = rules.iter().copied().map(rule).collect();
    let shape = Shape::new(8, 64);
    compile(g, &|_| format, &rules, Role::Decode, shape).map_err(|e| e.to_string())
}

/// Nodes that run on the CPU, with the reason.
fn on_cpu<'a>(g: &Graph, p: &'a Plan) -> Vec<(String, &'a str)> {
    let placed = g.nodes().zip(&p.placed).filter(|(_, p)| p.place == Place::Cpu);
    placed.map(|((_, n), p)| (n.path(), p.why.as_deref().unwrap())).collect()
}

#[test]
fn places() {
    let g = graph("glm52", "tests/fixtures/glm_moe_dsa/config.json");
    let table = |rules: &[(&str, Place)]| decode(&g, Some(Format::I32), rules);
    let no_kernel = table(&[("l1.*", Place::Gpu)]).unwrap_err();
    assert!(no_kernel.contains("i32 weights"), "{no_kernel}");
    // A rule for the CPU does not make a kernel for the rule behind it.
    let no_kernel = table(&[("*", Place::Cpu), ("*", Place::Gpu)]).unwrap_err();
    assert!(no_kernel.contains("i32 weights"), "{no_kernel}");
    let no_match = table(&[("l9.*", Place::Cpu)]).unwrap_err();
    assert!(no_match.contains("no node has such a path"), "{no_match}");
    // A cache lies in one memory: what is asked for and cannot be is no silent choice.
    let shared = decode(&g, Some(Format::Bf16), &[("*", Place::Gpu), ("l1.attend.lat", Place::Cpu)]).unwrap_err();
    assert!(shared.contains("it shares memory with l1.attend.lat"), "{shared}");
    let back = decode(&g, Some(Format::Bf16), &[("*", Place::Cpu), ("*", Place::Gpu)]).unwrap();
    assert_eq!(on_cpu(&g, &back), []);
}

#[test]
fn experts_without_a_kernel_run_on_the_cpu() {
    let g = graph("qwen3_moe", "tests/fixtures/qwen3_moe/config.json");
    for (stored, why) in [
        (None, "no GPU kernel for MoeExperts with experts in different formats"),
        (
            Some(Format::E8),
            "no GPU kernel for MoeExperts with 192 columns of e8-iq3-lattice: they must be a multiple of 256",
        ),
        (Some(Format::I32), "no GPU kernel for MoeExperts with i32 weights"),
    ] {
        let formats = |w: WeightId| if g.weight(w).need.experts.is_some() { stored } else { Some(Format::Bf16) };
        let shape = Shape::new(8, 64);
        let p = compile(&g, &formats, &[], Role::Decode, shape).unwrap();
        let experts = g.nodes().filter(|(_, n)| matches!(n.op, Op::MoeExperts { .. })).map(|(_, n)| n.path());
        assert_eq!(on_cpu(&g, &p), experts.map(|path| (path, why)).collect::<Vec<_>>());
        assert!(!on_cpu(&g, &p).is_empty());
    }
}

#[test]
fn a_thousand_experts_and_more_run_on_the_cpu() {
    let config = std::fs::read_to_string(root("tests/fixtures/qwen3_moe/config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    for (experts, place) in [(1024, Place::Gpu), (1032, Place::Cpu)] {
        config["num_experts"] = experts.into();
        let config = Config::parse("config.json", config.to_string().as_bytes()).unwrap();
        let g = expand(&arch("qwen3_moe"), &config, "main").unwrap_or_else(|e| panic!("{e}"));
        let p = decode(&g, Some(Format::Bf16), &[]).unwrap();
        for ((_, node), placed) in g.nodes().zip(&p.placed) {
            let grouped = matches!(node.op, Op::MoeExperts { .. } | Op::RouterTopk(_));
            assert_eq!(placed.place, if grouped { place } else { Place::Gpu }, "{}: {:?}", node.path(), placed.why);
            assert!(placed.why.as_ref().is_none_or(|why| why.contains("more than 1024 experts")));
        }
    }
}

/// `place` of a graph file is a hint: followed where it can be, and the user has the last word.
#[test]
fn a_graph_file_hints_at_places() {
    let text = std::fs::read_to_string(root("graphs/qwen3.ron")).unwrap();
    let text = format!(
        "{}    place: {{ \"l0.*\": cpu, \"l0.attn.q\": gpu }},\n)\n",
        text.trim_end().strip_suffix(')').unwrap()
    );
    let arch = coli::spec::Arch::parse(coli::spec::Source::new("hinted.ron", text)).unwrap_or_else(|e| panic!("{e}"));
    let config = std::fs::read(root("tests/fixtures/qwen3/config.json")).unwrap();
    let g = expand(&arch, &Config::parse("config.json", &config).unwrap(), "main").unwrap_or_else(|e| panic!("{e}"));
    let hinted = decode(&g, Some(Format::Bf16), &[]).unwrap();
    let cpu = on_cpu(&g, &hinted);
    let of_layer = g.nodes().filter(|(_, n)| n.layer == Some(0)).count();
    assert!(cpu.iter().all(|(path, why)| path.starts_with("l0.") && *why == "the graph file hints at the CPU"));
    assert_eq!(cpu.len(), of_layer - 1, "{cpu:?}");
    assert_eq!(on_cpu(&g, &decode(&g, Some(Format::Bf16), &[("l0.*", Place::Gpu)]).unwrap()), []);
    // A hint at a kernel that does not exist is no error.
    assert!(decode(&g, Some(Format::I32), &[]).is_ok());
}

/// Kernels have bindings for two segments; a ring, a selection and a sink change no place.
#[test]
fn attention_over_three_segments_runs_on_the_cpu() {
    let near = "Seg(kv: near)";
    let chosen = "Seg(kv: far, select: sel)";
    for (over, place) in [(vec![near, chosen], Place::Gpu), (vec![near, chosen, "Seg(kv: far)"], Place::Cpu)] {
        let text = format!(
            r#"Arch(model_type: ["qwen3"], config: {{}}, state: {{ r: Ring(width: "8", window: "5"), c: Rows(width: "8") }},
            blocks: {{ t: {{
                x: EmbedRow(of: tokens, w: "e", rows: "20", out: "16"), q: View(of: x, shape: ["2", "8"]), k: Slice(of: x, len: "8"),
                near: RingAppend(of: k, to: r), far: CacheAppend(of: k, to: c), w: Slice(of: x, len: "2"),
                s: IndexScore(q: q, k: far, weights: w, scale: "1"), sel: TopkSelect(of: s, k: "4"),
                o: Attn(q: q, over: [{}], scale: "1", sink: "s"), logits: LmHead(of: o, w: "h", out: "20") }} }},
            programs: {{ main: [t] }})"#,
            over.join(", ")
        );
        let arch = coli::spec::Arch::parse(coli::spec::Source::new("made.ron", text)).unwrap_or_else(|e| panic!("{e}"));
        let config = Config::parse("config.json", br#"{"model_type": "qwen3"}"#).unwrap();
        let g = expand(&arch, &config, "main").unwrap_or_else(|e| panic!("{e}"));
        let p = decode(&g, Some(Format::F32), &[]).unwrap();
        let why = on_cpu(&g, &p).into_iter().find(|(path, _)| path == "t.o").map(|(_, why)| why);
        match place {
            Place::Gpu => assert_eq!(on_cpu(&g, &p), []),
            Place::Cpu => assert_eq!(why, Some("no GPU kernel for Attn over more than 2 segments")),
        }
    }
}
