//! Every mistake has a message that names the word; each is a snapshot as a user sees it.

use crate::support::{root, snapshots};
use coli::cli::report_text;
use coli::graph::expand;
use coli::spec::{Arch, Config, Report, Source};

fn text(graph: &str) -> String {
    std::fs::read_to_string(root(&format!("graphs/{graph}.ron"))).unwrap()
}

fn config(name: &str) -> String {
    std::fs::read_to_string(root(&format!("tests/configs/{name}.json"))).unwrap()
}

fn problems(text: &str, config: &str) -> Result<(), Report> {
    let arch = Arch::parse(Source::new("my_model.ron", text))?;
    let config = Config::parse("config.json", config.as_bytes()).unwrap();
    expand(&arch, &config, "main").map(|_| ())
}

/// Edits a shipped graph file and takes the report.
fn check(name: &str, graph: &str, edits: &[(&str, &str)]) {
    let mut text = text(graph);
    for (from, to) in edits {
        assert!(text.contains(from), "{name}: nothing to edit, no `{from}`");
        text = text.replacen(from, to, 1);
    }
    let config_name = match graph {
        "qwen3" => "qwen3_8b",
        "qwen3_moe" => "qwen3_30b_a3b",
        other => other,
    };
    report(name, &text, &config(config_name));
}

fn report(name: &str, text: &str, config: &str) {
    let report = problems(text, config).expect_err(name);
    snapshots(|| insta::assert_snapshot!(format!("diagnostic-{name}"), report_text(&report, false)));
}

#[test]
fn shipped_files_have_none() {
    for (graph, name) in [("qwen3", "qwen3_8b"), ("glm52", "glm52"), ("kimi_k3", "kimi_k3")] {
        problems(&text(graph), &config(name)).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn words() {
    check("unknown-resource", "qwen3", &[("RmsNorm(of: q,", "RmsNorm(of: qq,")]);
    check("unknown-operator", "qwen3", &[("Linear(of: h", "Linera(of: h")]);
    check("unknown-field", "qwen3", &[("kind: \"act\"", "knd: \"act\"")]);
    check("missing-field", "qwen3", &[(", eps: \"eps\"),\n            q: Linear", "),\n            q: Linear")]);
    check("field-twice", "qwen3", &[("gate: g,", "gate: g, gate: u,")]);
    check("unknown-keyword", "qwen3", &[("in_layout: half", "in_layout: halv")]);
    check("unknown-state", "qwen3", &[("to: k_cache", "to: kcache")]);
    check("unknown-block", "qwen3", &[("run: [attn, mlp]", "run: [atn, mlp]")]);
    check("unknown-name-in-expression", "qwen3", &[("out: [\"heads\", \"dim\"]", "out: [\"head\", \"dim\"]")]);
    check("unknown-section", "qwen3", &[("    state: {", "    sate: {")]);
    check("unknown-place", "glm52", &[("stream },", "steam },")]);
    check("not-a-resource", "qwen3", &[("Rope(of: q,", "Rope(of: \"q\",")]);
}

#[test]
fn several_at_once() {
    check(
        "several",
        "glm52",
        &[
            ("RmsNorm(of: q_a,", "RmsNorm(of: qa,"),
            ("kind: \"act\"", "kind: \"actt\""),
            ("top_k: \"num_experts_per_tok\"", "top_k: \"num_experts_per_token\""),
            ("b: y),\n        },\n        moe", "b: a),\n        },\n        moe"),
        ],
    );
}

#[test]
fn shapes() {
    check("shape-add", "qwen3", &[("x: Add(a: x, b: o)", "x: Add(a: x, b: ctx)")]);
    check("shape-glu", "qwen3", &[("w: \"mlp.up_proj\", out: \"ff\"", "w: \"mlp.up_proj\", out: \"d\"")]);
    check("shape-state", "qwen3", &[("k_cache: Rows(width: \"kv_heads * dim\")", "k_cache: Rows(width: \"dim\")")]);
    check("shape-slice", "glm52", &[("at: \"nope\", len: \"rope\"", "at: \"nope\", len: \"nope\"")]);
    check(
        "shape-attn",
        "qwen3",
        &[
            ("Seg(k: k, v: v)", "Seg(kv: v)"),
            ("v_cache: Rows(width: \"kv_heads * dim\")", "v_cache: Rows(width: \"ff\")"),
            ("v_proj\", out: [\"kv_heads\", \"dim\"]", "v_proj\", out: \"ff\""),
        ],
    );
    check("shape-latent", "glm52", &[("rank: \"kv_rank\"", "rank: \"q_rank\"")]);
    check(
        "shape-selection",
        "deepseek_v4_flash",
        &[("Seg(kv: kv), Seg(kv: c, select: sel)", "Seg(kv: kv, select: sel), Seg(kv: c)")],
    );
    check(
        "shape-delta",
        "kimi_k3",
        &[(
            "beta: Linear(of: h, w: \"self_attn.b_proj\", out: \"kda_heads\")",
            "beta: Linear(of: h, w: \"self_attn.b_proj\", out: \"kda_dim\")",
        )],
    );
    check(
        "shape-pool",
        "deepseek_v4_flash",
        &[("pool_len: \"if chooses then 2 * ratio else ratio\"", "pool_len: \"ratio\"")],
    );
    check("wrong-type-cache", "qwen3", &[("k: CacheAppend(of: k, to: k_cache),", "")]);
    check("wrong-type-route", "qwen3_moe", &[("route: route,", "route: z,")]);
    check("wrong-type-stack", "kimi_k3", &[("stack: sums, w: \"mlp_res_norm\"", "stack: x, w: \"mlp_res_norm\"")]);
    check("groups", "glm52", &[("groups: \"groups\"", "groups: \"top_k * top_k\"")]);
    check("weight-two-shapes", "qwen3", &[("w: \"self_attn.v_proj\"", "w: \"self_attn.q_proj\"")]);
    check("vocab", "qwen3", &[("rows: \"vocab\"", "rows: \"d\"")]);
    check(
        "logits-type",
        "qwen3",
        &[(
            "logits: LmHead(of: n, w: \"lm_head\", out: \"vocab\")",
            "logits: Linear(of: n, w: \"lm_head\", out: \"vocab\")",
        )],
    );
}

#[test]
fn structure() {
    check("unused-name", "qwen3", &[("o: Linear(of: ctx", "p: Sigmoid(of: h),\n            o: Linear(of: ctx")]);
    check("unused-state", "qwen3", &[("    state: {", "    state: {\n        extra: Rows(width: \"d\"),")]);
    check("unused-block", "qwen3", &[("    blocks: {", "    blocks: {\n        spare: { x: Sigmoid(of: x) },")]);
    check(
        "state-twice",
        "qwen3",
        &[("to: v_cache", "to: k_cache"), ("        v_cache: Rows(width: \"kv_heads * dim\"),\n", "")],
    );
    check("not-carried", "glm52", &[("carry: [x, sel]", "carry: [x]")]);
    check("carried-nothing", "qwen3", &[("carry: [x]", "carry: [x, y2]")]);
    check("block-twice", "qwen3", &[("        mlp: {", "        attn: {")]);
    check("section-twice", "qwen3", &[("    state: {", "    config: { a: \"1\" },\n    state: {")]);
    check("tokens-assigned", "qwen3", &[("x: EmbedRow(of: tokens", "tokens: EmbedRow(of: tokens")]);
    check("repeat-fields", "qwen3", &[("count: \"layers\", ", "")]);
    check(
        "repeat-nested",
        "qwen3",
        &[("run: [attn, mlp]", "run: [attn, Repeat(var: k, count: \"1\", carry: [x], run: [mlp])]")],
    );
    check("no-logits", "qwen3", &[("logits: LmHead(of: n, w: \"lm_head\"", "logit: LmHead(of: n, w: \"lm_head\"")]);
    check("stack-full", "kimi_k3", &[("max: \"ceil(layers / res_block)\"", "max: \"3\"")]);
    check("expert-name", "qwen3_moe", &[("mlp.experts.{e}.up_proj", "mlp.experts.up_proj")]);
    check("glu-kind", "qwen3", &[("kind: \"act\"", "kind: silu, beta: \"eps\"")]);
    check("form-twice", "deepseek_v4_flash", &[("        attend: Attn", "        rot: Attn")]);
}

#[test]
fn configuration() {
    let without = |key: &str| {
        let mut c: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&config("glm52")).unwrap();
        c.remove(key).unwrap();
        serde_json::to_string(&c).unwrap()
    };
    report("config-missing-key", &text("glm52"), &without("q_lora_rank"));
    report("config-missing-alternatives", &text("glm52"), &without("rope_parameters"));
    report(
        "config-short-list",
        &text("deepseek_v4_flash"),
        &config("deepseek_v4_flash").replace("\"num_hidden_layers\": 43", "\"num_hidden_layers\": 99"),
    );
    report("config-other-family", &text("qwen3"), &config("glm52"));
    report(
        "config-wrong-type",
        &text("qwen3"),
        &config("qwen3_8b").replace("\"hidden_size\": 4096", "\"hidden_size\": \"big\""),
    );
    report(
        "config-zero",
        &text("qwen3"),
        &config("qwen3_8b").replace("\"num_attention_heads\": 32", "\"num_attention_heads\": 0"),
    );
    report(
        "config-huge",
        &text("qwen3"),
        &config("qwen3_8b").replace("\"num_hidden_layers\": 36", "\"num_hidden_layers\": 99999999"),
    );
}

#[test]
fn syntax() {
    check(
        "syntax-bracket",
        "qwen3",
        &[("out: [\"heads\", \"dim\"]),\n            q: Rms", "out: [\"heads\", \"dim\"),\n            q: Rms")],
    );
    check("syntax-comma", "qwen3", &[("eps: \"eps\"),\n            q:", "eps: \"eps\")\n            q:")]);
    check("syntax-expression", "qwen3", &[("\"kv_heads * dim\"", "\"kv_heads * * dim\"")]);
    check("syntax-brace-in-prefix", "qwen3", &[("model.layers.{l}.", "model.layers.{l.")]);
    report("syntax-empty", "", &config("qwen3_8b"));
    report("syntax-not-arch", "Graph(a: 1)", &config("qwen3_8b"));
    report("syntax-positional", &text("qwen3").replacen("Add(a: x, b: o)", "Add(x, o)", 1), &config("qwen3_8b"));
}

/// Damaged files end in a report, whatever the damage.
#[test]
fn mutated_files_never_panic() {
    let mut state = 7u64;
    let mut random = move |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let (text, config) =
        (text("qwen3_moe"), config("qwen3_30b_a3b").replace("\"num_hidden_layers\": 48", "\"num_hidden_layers\": 2"));
    let start = std::time::Instant::now();
    let mut refused = 0;
    while start.elapsed().as_secs_f32() < 3.0 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=random(3) {
            let (at, n) = (random(bytes.len()), random(20));
            match random(4) {
                0 => bytes[at] = b" (){}[],:\"'.*0aZ_"[random(17)],
                1 => drop(bytes.drain(at..(at + n).min(bytes.len()))),
                2 => {
                    let from = random(bytes.len());
                    let part: Vec<u8> = bytes[from..(from + n).min(bytes.len())].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => bytes.truncate(at.max(1)),
            }
        }
        if let Ok(text) = String::from_utf8(bytes)
            && let Err(report) = problems(&text, &config)
        {
            assert!(!report.items.is_empty());
            report_text(&report, false);
            refused += 1;
        }
    }
    assert!(refused > 100, "{refused}");
}
