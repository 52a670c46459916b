//! The program as a user runs it.

use crate::common::fixture::{fixture, rel_l2};
use crate::common::safetensors::read;
use crate::support::{root, snapshots};
use std::path::Path;
use std::process::{Command, Output};

pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn coli(args: &[&str]) -> Run {
    coli_in(&root(""), args)
}

fn coli_in(dir: &Path, args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coli"));
    command.args(args).current_dir(dir).env("NO_COLOR", "1").env("COLUMNS", "100");
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    Run { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

pub fn graph(name: &str) -> String {
    root(&format!("graphs/{name}.ron")).display().to_string()
}

#[test]
fn the_demo_answers_from_any_directory() {
    let dir = tempfile::tempdir().unwrap();
    let r = coli_in(dir.path(), &["exec", &graph("glm52"), "--prompt", "What does hummingbird mean?"]);
    assert_eq!(r.code, 0, "{}", r.err);
    assert_eq!(
        r.out,
        "The noun hummingbird means: tiny American bird having brilliant iridescent plumage and long slender bills.\n"
    );
    for part in ["cpu: prefill 13 tokens", "tok/s; decode", "first token after"] {
        assert!(r.err.contains(part), "{}", r.err);
    }
    let r = coli_in(dir.path(), &["exec", "glm52", "--prompt", "Define ocean.", "-n", "4", "--json"]);
    let doc: serde_json::Value = serde_json::from_str(&r.out).unwrap();
    assert_eq!((doc["schema"].as_i64(), doc["finish"].as_str()), (Some(1), Some("length")));
    assert_eq!(doc["tokens"].as_array().unwrap().len(), 4);
}

#[test]
fn logits_and_tokens_of_a_fixture() {
    let f = fixture("glm_moe_dsa");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("logits.safetensors");
    let ids: Vec<String> = f.ids[..f.prompt_len].iter().map(u32::to_string).collect();
    for device in ["cpu", "oracle"] {
        let r = coli(&[
            "exec",
            &graph("glm52"),
            "--model",
            f.dir.to_str().unwrap(),
            "--tokens",
            &ids.join(","),
            "-n",
            "32",
            "--device",
            device,
            "--chunk",
            "24",
            "--logits-out",
            out.to_str().unwrap(),
            "--json",
        ]);
        assert_eq!(r.code, 0, "{}", r.err);
        let tensors = read(&out);
        let tokens = tensors.iter().find(|t| t.0 == "tokens").unwrap().1.i32().unwrap();
        assert_eq!(tokens.iter().map(|t| *t as u32).collect::<Vec<_>>(), f.ids);
        let logits = &tensors.iter().find(|t| t.0 == "logits").unwrap().1;
        assert_eq!(logits.shape, [f.ids.len() - 1, f.vocab]);
        let e = rel_l2(&logits.f32().unwrap(), &f.logits[..(f.ids.len() - 1) * f.vocab]);
        assert!(e < 1e-5, "{device}: {e:.1e}");
    }
}

#[test]
fn sampling_repeats_with_its_seed() {
    let run = |seed: &str| {
        coli(&[
            "exec",
            "glm52",
            "--prompt",
            "Define music.",
            "--temp",
            "3",
            "--top-k",
            "40",
            "-n",
            "12",
            "--seed",
            seed,
        ])
        .out
    };
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn prompts_from_files_and_stdin() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q.txt");
    std::fs::write(&path, "What is a synonym of big?").unwrap();
    let r = coli(&["exec", "glm52", "--prompt-file", path.to_str().unwrap()]);
    assert_eq!(r.out, "A synonym of big is large.\n", "{}", r.err);
    let thinking = coli(&["exec", "glm52", "--prompt", "Define ocean.", "--think", "-n", "16"]);
    assert!(thinking.out.starts_with("The user asks what ocean means."), "{}", thinking.out);
}

#[test]
fn quality_of_a_few_answers() {
    let list = root("tests/models/dictionary_eval.jsonl").display().to_string();
    let r = coli(&["bench", "quality", "glm52", "--list", &list, "--limit", "12", "--json"]);
    assert_eq!(r.code, 0, "{}", r.err);
    let doc: serde_json::Value = serde_json::from_str(&r.out).unwrap();
    assert_eq!(doc["questions"], 12);
    assert!(doc["exact"].as_u64().unwrap() >= 9, "{}", r.out);
}

#[test]
fn int8_activations_on_the_cpu() {
    let cpu = ["--device", "cpu", "--activations", "int8"];
    let r = coli(&[&["exec", "glm52", "--prompt", "What does quickly mean?"], &cpu[..]].concat());
    assert_eq!(r.out, "The adverb quickly means: with rapid movements.\n", "{}", r.err);
    assert!(r.err.contains("cpu, int8 activations: prefill"), "{}", r.err);
    let r = coli(&[&["check", "glm52"], &cpu[..]].concat());
    assert_eq!(r.code, 0, "{}{}", r.out, r.err);
    assert!(r.out.contains("cpu, int8 activations") && r.out.contains(" 0 differ"), "{}", r.out);
}

#[test]
fn caches_of_f16() {
    let cpu = ["--device", "cpu", "--kv", "f16"];
    let r = coli(&[&["exec", "glm52", "--prompt", "What does quickly mean?"], &cpu[..]].concat());
    assert_eq!(r.out, "The adverb quickly means: with rapid movements.\n", "{}", r.err);
    let r = coli(&[&["check", "glm52"], &cpu[..]].concat());
    assert!(r.code == 0 && r.out.contains("f16 caches") && r.out.contains(" 0 differ"), "{}{}", r.out, r.err);
    let plan = |kv: &str| {
        let r = coli(&["plan", "glm52", "--kv", kv, "--json"]);
        serde_json::from_str::<serde_json::Value>(&r.out).unwrap_or_else(|e| panic!("{e}: {}", r.err))
    };
    let (full, half) = (plan("f32"), plan("f16"));
    assert_eq!((full["kv"].as_str(), half["kv"].as_str()), (Some("f32"), Some("f16")));
    let bytes = |doc: &serde_json::Value| doc["state_bytes_per_token"].as_f64().unwrap();
    assert_eq!(bytes(&half) * 2.0, bytes(&full));
    let passes = coli(&["plan", "glm52", "--kv", "f16", "--passes"]).out;
    for kernel in ["caches of f16", "vec.f16", "latent_split.f16", "index_score.f16"] {
        assert!(passes.contains(kernel), "{kernel} is not in\n{passes}");
    }
}

/// (name, arguments, exit code); what is printed is a snapshot.
#[test]
fn refusals() {
    let f = fixture("qwen3").dir.display().to_string();
    let demo = ["exec", "graphs/glm52.ron", "--device", "cpu"];
    let cases: Vec<(&str, Vec<&str>, i32)> = vec![
        ("device", [&demo[..2], &["--prompt", "x", "--device", "cuda"]].concat(), 2),
        ("place", [&demo[..], &["--prompt", "x", "--place", "*.routed=cpu"]].concat(), 2),
        ("no-prompt", demo.to_vec(), 2),
        ("two-prompts", [&demo[..], &["--prompt", "x", "--tokens", "1"]].concat(), 2),
        ("unknown-flag", [&demo[..], &["--promt", "x"]].concat(), 2),
        ("no-graph", vec!["exec", "graphs/nothing.ron", "--prompt", "x"], 1),
        ("no-model", [&demo[..], &["--model", "no/such/dir", "--prompt", "x"]].concat(), 3),
        ("no-config", [&demo[..], &["--model", "graphs", "--prompt", "x"]].concat(), 3),
        ("other-family", vec!["exec", "graphs/glm52.ron", "--model", &f, "--tokens", "1"], 3),
        ("token-outside", [&demo[..], &["--tokens", "1,5000"]].concat(), 2),
        ("prompt-too-long", [&demo[..], &["--tokens", "1,2,3,4,5", "--ctx", "4"]].concat(), 2),
        ("ctx-too-large", [&demo[..], &["--tokens", "1", "--ctx", "2k"]].concat(), 2),
        ("ctx-not-a-number", [&demo[..], &["--tokens", "1", "--ctx", "many"]].concat(), 2),
        ("top-p", [&demo[..], &["--tokens", "1", "--temp", "1", "--top-p", "2"]].concat(), 2),
        ("activations", vec!["exec", "graphs/glm52.ron", "--prompt", "x", "--activations", "int8"], 2),
        ("activations-check", vec!["check", "graphs/glm52.ron", "--device", "vulkan", "--activations", "int8"], 2),
        ("activations-unknown", [&demo[..], &["--prompt", "x", "--activations", "int4"]].concat(), 2),
        ("kv", [&demo[..], &["--prompt", "x", "--kv", "bf16"]].concat(), 2),
        ("layers", vec!["graph", "graphs/glm52.ron", "--layers", "99"], 2),
    ];
    for (name, args, code) in cases {
        let r = coli(&args);
        assert_eq!(r.code, code, "{name}: {}", r.err);
        assert!(r.out.is_empty(), "{name}: {}", r.out);
        let err = r.err.replace(&f, "MODEL");
        snapshots(|| insta::assert_snapshot!(format!("refusal-{name}"), err));
    }
}

/// What is printed depends on the machine: no loader, no driver, or too few devices.
#[test]
fn a_device_that_is_not_there() {
    let r = coli(&["exec", "graphs/glm52.ron", "--prompt", "x", "--device", "vulkan:99"]);
    assert_eq!(r.code, 4, "{}", r.err);
    assert!(r.err.starts_with("error: ") && r.out.is_empty(), "{}", r.err);
    let list = coli(&["devices", "--json"]);
    assert!(list.code == 4 || serde_json::from_str::<serde_json::Value>(&list.out).is_ok(), "{}", list.err);
}

#[test]
fn damaged_files_are_refused() {
    let f = fixture("qwen3");
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(f.dir.join("config.json"), dir.path().join("config.json")).unwrap();
    let good = std::fs::read(f.dir.join("model.safetensors")).unwrap();
    let mut absurd = good.clone();
    absurd[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    for (bytes, part) in
        [(&good[..good.len() / 2], "model.safetensors"), (&good[..5], "model.safetensors"), (&absurd[..], "header")]
    {
        std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
        let r = coli(&["exec", &graph("qwen3"), "--model", dir.path().to_str().unwrap(), "--tokens", "1"]);
        assert_eq!(r.code, 3, "{}", r.err);
        assert!(r.err.contains(part), "{}", r.err);
    }
    let sharded = fixture("glm_moe_dsa");
    for entry in std::fs::read_dir(&sharded.dir).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    std::fs::remove_file(dir.path().join("model-00002-of-00002.safetensors")).unwrap();
    let r = coli(&["exec", &graph("glm52"), "--model", dir.path().to_str().unwrap(), "--tokens", "1"]);
    assert_eq!(r.code, 3);
    assert!(r.err.contains("model-00002-of-00002.safetensors"), "{}", r.err);
}

/// Nothing is measured for a report that cannot be written.
#[test]
fn a_report_needs_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none/report.json").display().to_string();
    let start = std::time::Instant::now();
    let r = coli(&["bench", "--report", &path]);
    assert_eq!((r.code, r.out.as_str()), (1, ""), "{}", r.err);
    assert!(r.err.contains(&path) && r.err.contains("No such file"), "{}", r.err);
    assert!(start.elapsed().as_secs() < 5);
    for wrong in [&["bench"][..], &["bench", "--seconds", "3"], &["bench", "--report", "x", "kernels"]] {
        let r = coli(wrong);
        assert_eq!(r.code, 2, "{wrong:?}: {}", r.err);
    }
}

/// A pipe cannot be rewound: it gets the report once.
#[cfg(target_os = "linux")]
#[test]
fn a_report_into_a_pipe() {
    let r = coli(&["bench", "--report", "/dev/stdout", "--device", "99"]);
    let doc: serde_json::Value = serde_json::from_str(&r.out).unwrap_or_else(|e| panic!("{e}: {}{}", r.out, r.err));
    assert_eq!(doc["complete"], true, "{}", r.err);
}

#[test]
fn help_version_plan_and_dot() {
    let help = coli(&["exec", "--help"]);
    assert!(help.code == 0 && help.out.contains("Examples:") && help.out.contains("--logits-out"));
    assert!(coli(&["--version"]).out.starts_with("coli "));
    let plan = coli(&["plan", "graphs/glm52.ron", "--json"]);
    let doc: serde_json::Value = serde_json::from_str(&plan.out).unwrap();
    assert_eq!((doc["schema"].as_i64(), doc["layers"].as_i64()), (Some(1), Some(8)));
    let text = coli(&["plan", "graphs/glm52.ron"]).out;
    snapshots(|| insta::assert_snapshot!("plan-demo", text));
    let dot = coli(&["graph", "graphs/glm52.ron", "--layers", "1", "--format", "dot"]);
    assert!(dot.out.starts_with("digraph coli {") && dot.out.trim_end().ends_with('}'));
}
