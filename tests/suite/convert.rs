//! Conversions: what they make runs, is what the encoders make, and survives being killed.

use crate::cli::{coli, graph};
use crate::common::fixture::{Fixture, fixture, rel_l2};
use crate::common::generate::splitmix64;
use crate::common::safetensors::{Tensor, Tensors, read, write};
use crate::support::{arch, graph_of, load, snapshots};
use coli::convert::{self, Options, Outcome, Part, Phase, Plan, Source, Target, Watch};
use coli::formats::{Matrix, encode, rotation::Rotation};
use coli::ops::Kv;
use coli::run::{Device, Model, ModelSource, Session, Sizes, Want};
use coli::weights;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub struct Silent;

impl Watch for Silent {
    fn begin(&self, _: Phase, _: u64) {}
    fn done(&self, _: u64) {}
}

pub const TARGETS: [&str; 13] =
    ["keep", "f32", "f16", "bf16", "int8", "int4", "int4-g64", "int3-g64", "int2", "e8", "mxfp4", "fp8", "fp8-ue8m0"];

pub fn options(experts: &str, dense: &str) -> Options {
    let target = |text: &str| text.parse::<Target>().unwrap();
    Options { experts: target(experts), dense: target(dense), io: None, shard_bytes: 256 << 10, drop_ignored: false }
}

pub fn open(graph: &str, dir: &Path) -> Model {
    let source = ModelSource::Dir(dir.to_owned());
    Model::load(&arch(graph), source).unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
}

pub fn convert_as(model: &Model, from: &Path, to: &Path, options: Options, threads: usize) -> Outcome {
    let plan = Plan::new(&model.graph, &model.weights, &model.index, options).unwrap_or_else(|e| panic!("{e}"));
    let source = Source { dir: from, graph: &model.graph };
    convert::run(&plan, source, to, threads, &Silent).unwrap_or_else(|e| panic!("{e}"))
}

pub fn logits(model: &Model, ids: &[u32]) -> Vec<f32> {
    logits_on(Device::Cpu, model, ids)
}

pub fn logits_on(device: Device, model: &Model, ids: &[u32]) -> Vec<f32> {
    let mut s = Session::new(model, device, Sizes { ctx: ids.len() as u32, slots: 1, chunk: 64, kv: Kv::F32 });
    s.append(0, ids, Want::All, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// Every file of a directory by name.
pub fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect()
}

pub fn assert_same(a: &Path, b: &Path, what: &str) {
    let (a, b) = (content(a), content(b));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{what}");
    for (name, bytes) in &a {
        assert!(*bytes == b[name], "{what}: {name} differs");
    }
}

/// A fixture through the formats: floats keep every bit of the logits, int8 stays close, the rest runs.
fn through_formats(name: &str, cases: &[(&str, &str, f64)]) {
    let f: Fixture = fixture(name);
    let model = load(&f);
    let ids = &f.ids[..24];
    let want = logits(&model, ids);
    for (experts, dense, bound) in cases {
        let dir = tempfile::tempdir().unwrap();
        let done = convert_as(&model, &f.dir, dir.path(), options(experts, dense), 2);
        let worst = done.receipt.tensors().map(|t| t.error).fold(0.0, f64::max);
        let e = rel_l2(&logits(&open(graph_of(name), dir.path()), ids), &want);
        println!("{name}: experts {experts:9} dense {dense:9} worst tensor {worst:.2e} logits {e:.2e}");
        assert!(e <= *bound, "{name} as {experts}, {dense}: logits differ by {e:.1e}");
    }
}

#[test]
fn fixtures_run_in_other_formats() {
    let cases = [
        ("f32", "f32", 0.0),
        ("keep", "keep", 0.0),
        ("int8", "keep", 0.02),
        ("int8", "int8", 0.06),
        ("int4-g64", "int8", 0.5),
        ("mxfp4", "fp8", 0.5),
        ("int3-g64", "int4", 1.5),
    ];
    through_formats("qwen3_moe", &cases);
    through_formats("glm_moe_dsa", &cases[..5]);
    through_formats("glm_moe_dsa_w256", &[("e8", "int8", 1.0), ("bf16", "fp8-ue8m0", 0.3)]);
    through_formats("deepseek_v4_native", &[("keep", "keep", 0.0), ("f32", "f32", 1e-5), ("int8", "int8", 0.1)]);
    through_formats("kimi_k3", &[("keep", "keep", 0.0), ("f32", "f32", 1e-5), ("int4", "bf16", 0.5)]);
}

/// A mixture of two experts whose rows have 256 columns, with random weights.
pub fn tiny(dir: &Path, ff: usize) -> PathBuf {
    let config = r#"{"model_type": "qwen3_moe", "num_hidden_layers": 1, "hidden_size": 256, "vocab_size": 40,
        "rms_norm_eps": 1e-6, "hidden_act": "silu", "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 64, "rope_theta": 10000.0, "intermediate_size": 256, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "num_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": FF,
        "norm_topk_prob": true, "tie_word_embeddings": false}"#
        .replace("FF", &ff.to_string());
    let mut tensors: Tensors = vec![];
    let mut add = |name: &str, shape: &[usize]| {
        let n: usize = shape.iter().product();
        let noise = splitmix64(tensors.len() as u64);
        let values: Vec<f32> = noise.take(n).map(|x| ((x >> 40) as f32 / 16_777_216.0 - 0.5) * 0.2).collect();
        let values = if shape.len() == 1 { vec![1.0; n] } else { values };
        tensors.push((format!("{name}.weight"), Tensor::from_f32(shape, &values)));
    };
    add("model.embed_tokens", &[40, 256]);
    let layer = |rest: &str| format!("model.layers.0.{rest}");
    for norm in ["input_layernorm", "post_attention_layernorm"] {
        add(&layer(norm), &[256]);
    }
    for (name, shape) in [("q", [128, 256]), ("k", [64, 256]), ("v", [64, 256]), ("o", [256, 128])] {
        add(&layer(&format!("self_attn.{name}_proj")), &shape);
    }
    for norm in ["q_norm", "k_norm"] {
        add(&layer(&format!("self_attn.{norm}")), &[64]);
    }
    add(&layer("mlp.gate"), &[2, 256]);
    for (e, name) in (0..2).flat_map(|e| ["gate", "up", "down"].map(|n| (e, n))) {
        let shape = if name == "down" { [256, ff] } else { [ff, 256] };
        add(&layer(&format!("mlp.experts.{e}.{name}_proj")), &shape);
    }
    add("model.norm", &[256]);
    add("lm_head", &[40, 256]);
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("config.json"), config).unwrap();
    write(&dir.join("model.safetensors"), &tensors);
    dir.to_owned()
}

/// The values of a bound tensor, rotated back if need be.
fn values(tensor: &weights::Tensor) -> Vec<f32> {
    let matrix = tensor.matrix();
    let mut out = vec![0.0; matrix.rows() * matrix.cols()];
    for (row, values) in out.chunks_exact_mut(matrix.cols()).enumerate() {
        matrix.decode_row(row, values);
        if matrix.format().rotates() {
            Rotation::new(matrix.cols()).inverse(values);
        }
    }
    out
}

/// Codes and scales in file order.
pub fn bytes_of(tensor: &weights::Tensor) -> (Vec<u8>, Vec<u8>) {
    match tensor.matrix() {
        Matrix::Rows(view) => (view.data.to_vec(), view.scales.to_vec()),
        Matrix::Tiles(tiles) => tiles.untile(),
    }
}

/// Every bound tensor by name.
pub fn bound(model: &Model) -> BTreeMap<String, weights::Tensor> {
    let requests = 0..model.graph.weights.len();
    let tensors = requests.flat_map(|r| (0..model.weights.count(r)).map(move |e| model.weights.expert(r, e).clone()));
    tensors.map(|t| (t.name().to_owned(), t)).collect()
}

/// Largest error of random values in a format.
fn most(format: &str) -> f64 {
    match format {
        "keep" | "f32" => 0.0,
        "f16" => 3e-4,
        "bf16" => 2e-3,
        "int8" => 6e-3,
        // Half a step of three bits behind the comma, where the values lie badly for it.
        "fp8" | "fp8-ue8m0" => 0.0625,
        "int4" | "int4-g64" | "mxfp4" => 0.14,
        "e8" => 0.25,
        "int3-g64" => 0.25,
        _ => 0.8,
    }
}

/// All experts from every format to every other; the bytes are those of the encoder in one go.
#[test]
fn every_pair_of_formats() {
    let tmp = tempfile::tempdir().unwrap();
    let plain = tiny(&tmp.path().join("plain"), 256);
    let model = open("qwen3_moe", &plain);
    let mut sources = vec![];
    for from in TARGETS {
        let dir = tmp.path().join(from);
        let dense = if from == "e8" { "int8" } else { from };
        convert_as(&model, &plain, &dir, options(from, dense), 2);
        sources.push((from, dir));
    }
    for (from, dir) in &sources {
        let model = open("qwen3_moe", dir);
        let before = bound(&model);
        for to in TARGETS {
            let out = tmp.path().join(format!("{from}-{to}"));
            let done = convert_as(&model, dir, &out, options(to, "keep"), 2);
            check(from, to, &done, &before, &bound(&open("qwen3_moe", &out)));
            assert_eq!(logits(&open("qwen3_moe", &out), &[3, 7, 20]).len(), 3 * 40, "{from} to {to}");
            std::fs::remove_dir_all(&out).unwrap();
        }
    }
}

type Bound = BTreeMap<String, weights::Tensor>;

fn check(from: &str, to: &str, done: &Outcome, before: &Bound, after: &Bound) {
    let mut converted = 0;
    for record in done.receipt.tensors() {
        let (old, new) = (&before[&record.name], &after[&record.name]);
        assert_eq!(new.format().name(), record.to, "{from} to {to}: {}", record.name);
        assert_eq!(new.is_tiled(), record.part != Part::Other && new.rows() >= 16, "{from} to {to}: {}", record.name);
        let same = record.part != Part::Experts || to == "keep" || old.format() == new.format();
        if same {
            assert_eq!((record.error, new.format()), (0.0, old.format()), "{from} to {to}: {}", record.name);
            assert!(bytes_of(new) == bytes_of(old), "{from} to {to}: {}", record.name);
            continue;
        }
        converted += 1;
        let Ok(Target::Format(format)) = to.parse() else { panic!("{to}") };
        let whole = encode(format, old.cols(), &values(old)).unwrap();
        assert!((whole.data, whole.scales) == bytes_of(new), "{from} to {to}: {}", record.name);
        let e = rel_l2(&values(new), &values(old));
        assert!((e - record.error).abs() <= 1e-5 * e, "{from} to {to}: {e} is recorded as {}", record.error);
        assert!(e <= most(to), "{from} to {to}: {e:.2e}");
    }
    assert!(
        converted == 6 || to == "keep" || from == to || (from == "keep" && to == "f32") || (from == "f32"),
        "{from} to {to}"
    );
}

#[test]
fn groups_of_any_size_are_read_back() {
    let tmp = tempfile::tempdir().unwrap();
    let plain = tiny(&tmp.path().join("plain"), 256);
    let model = open("qwen3_moe", &plain);
    for (group, name) in [(2, "int4-g2"), (32, "int4-g32"), (128, "int4-g128"), (256, "int4-row"), (512, "int4-row")] {
        let out = tmp.path().join(group.to_string());
        convert_as(&model, &plain, &out, options(&format!("int4-g{group}"), "keep"), 1);
        let made = open("qwen3_moe", &out);
        assert_eq!(bound(&made)["model.layers.0.mlp.experts.1.up_proj.weight"].format().name(), name);
    }
}

/// Neither threads nor the state of the directory change a byte, and a finished conversion is left alone.
#[test]
fn bytes_do_not_depend_on_threads() {
    let tmp = tempfile::tempdir().unwrap();
    let f = fixture("qwen3_moe");
    let model = load(&f);
    let dirs = [1, 2, 5].map(|threads| (threads, tmp.path().join(threads.to_string())));
    for (threads, dir) in &dirs {
        convert_as(&model, &f.dir, dir, options("int4-g64", "int8"), *threads);
        assert_same(&dirs[0].1, dir, &format!("{threads} threads"));
    }
    let again = convert_as(&model, &f.dir, &dirs[1].1, options("int4-g64", "int8"), 2);
    assert_eq!((again.kept, again.damaged.len()), (again.receipt.shards.len(), 0));
    assert!(again.kept > 3, "too few shards to say anything");
    assert_same(&dirs[0].1, &dirs[1].1, "a second run");
    // A shard that was changed behind the receipt's back is made again.
    let shard = dirs[1].1.join("model-00002-of-00").with_file_name(&again.receipt.shards[1].file.file);
    let mut bytes = std::fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let repaired = convert_as(&model, &f.dir, &dirs[1].1, options("int4-g64", "int8"), 2);
    assert_eq!(repaired.damaged, [again.receipt.shards[1].file.file.clone()]);
    assert_same(&dirs[0].1, &dirs[1].1, "after a repair");
}

/// Tensors that the graph ignores travel along, or not.
#[test]
fn ignored_tensors() {
    let tmp = tempfile::tempdir().unwrap();
    let f = fixture("glm_moe_dsa");
    let model = load(&f);
    let ignored = |o: &Outcome| o.receipt.tensors().filter(|t| t.part == Part::Ignored).count();
    let all = convert_as(&model, &f.dir, &tmp.path().join("all"), options("int8", "keep"), 2);
    let dropped = Options { drop_ignored: true, ..options("int8", "keep") };
    let some = convert_as(&model, &f.dir, &tmp.path().join("some"), dropped, 2);
    let names = model.index.names().count();
    assert_eq!(all.receipt.tensors().count(), names);
    assert_eq!(some.receipt.tensors().count() + ignored(&all), names);
    assert_eq!(ignored(&some), 0);
    open("glm52", &tmp.path().join("some"));
}

/// Arguments that convert the fixture into `out`, in many shards.
fn command(source: &Path, out: &Path) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_coli"));
    c.args(["convert", &graph("qwen3_moe")]).args([source, out]);
    c.args(["--experts", "int3-g64", "--dense", "int8", "--shard-size", "64k", "--threads", "2"]);
    c.stdout(Stdio::null()).stderr(Stdio::piped());
    c
}

/// Killed at random points until it gets through: the same bytes as in one go. `COLI_KILLS=50` for more.
#[test]
fn killed_and_resumed() {
    let kills: usize = std::env::var("COLI_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let tmp = tempfile::tempdir().unwrap();
    let source = fixture("qwen3_moe").dir;
    let whole = tmp.path().join("whole");
    let start = Instant::now();
    assert!(command(&source, &whole).status().unwrap().success());
    let mut time = start.elapsed();
    let mut chance = splitmix64(time.as_nanos() as u64);
    let (mut killed, mut round, mut stages) = (0, 0, BTreeMap::<String, usize>::new());
    while killed < kills {
        round += 1;
        let out = tmp.path().join(format!("out{round}"));
        loop {
            let mut child = command(&source, &out).spawn().unwrap();
            // A resumed run is shorter, and some have to get through.
            let share = (chance.next().unwrap() >> 11) as f64 / (1u64 << 53) as f64;
            std::thread::sleep(Duration::from_secs_f64(1.1 * share * time.as_secs_f64()));
            if child.try_wait().unwrap().is_none() && killed < kills {
                child.kill().unwrap();
                child.wait().unwrap();
                killed += 1;
                *stages.entry(stage(&out)).or_default() += 1;
                time = time.mul_f64(1.05);
                continue;
            }
            let done = child.wait_with_output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            // The first run may have been slower than those that follow.
            time = time.mul_f64(0.9).max(Duration::from_millis(20));
            break;
        }
        assert_same(&whole, &out, &format!("round {round}"));
    }
    println!("{killed} kills in {round} rounds; found after a kill: {stages:?}");
}

/// What a killed run has left.
fn stage(out: &Path) -> String {
    let Ok(text) = std::fs::read(out.join(convert::RECEIPT)) else { return "nothing".into() };
    let receipt: convert::Receipt = serde_json::from_slice(&text).expect("a receipt is whole or not there");
    let half = content(out).keys().any(|n| n.ends_with(".safetensors.tmp"));
    match (receipt.complete, receipt.shards.len(), half) {
        (true, ..) => "everything".into(),
        (_, 0, false) => "a receipt".into(),
        (_, _, true) => "half a shard".into(),
        (_, _, false) => "whole shards".into(),
    }
}

/// (name, change of the fixture's directory, arguments behind `convert GRAPH SRC DST`, exit code)
#[test]
fn refusals() {
    let tmp = tempfile::tempdir().unwrap();
    let source = fixture("qwen3_moe").dir;
    let (src, dst) = (source.display().to_string(), tmp.path().join("out").display().to_string());
    let foreign = tmp.path().join("foreign").display().to_string();
    std::fs::create_dir(&foreign).unwrap();
    ["a", "b", "c", "d", "notes.txt"].iter().for_each(|n| std::fs::write(Path::new(&foreign).join(n), "x").unwrap());
    let broken = tmp.path().join("broken").display().to_string();
    std::fs::create_dir(&broken).unwrap();
    std::fs::copy(source.join("config.json"), Path::new(&broken).join("config.json")).unwrap();
    let mut tensors = read(&source.join("model.safetensors"));
    tensors.retain(|t| t.0 != "model.layers.1.self_attn.q_proj.weight");
    write(&Path::new(&broken).join("model.safetensors"), &tensors);
    let started = tmp.path().join("started").display().to_string();
    let int4 = ["--experts", "int4", "--dense", "keep"];
    let first = coli(&[&["convert", "qwen3_moe", &src, &started][..], &int4].concat());
    assert_eq!(first.code, 0, "{}", first.err);
    let other = tmp.path().join("other").display().to_string();
    let cases: Vec<(&str, &str, &str, &[&str], i32)> = vec![
        ("foreign", &src, &foreign, &int4, 2),
        ("unknown-format", &src, &dst, &["--experts", "int5", "--dense", "keep"], 2),
        ("e8-width", &src, &dst, &["--experts", "e8", "--dense", "keep"], 2),
        ("e8-dense", &src, &dst, &["--experts", "keep", "--dense", "e8"], 2),
        ("group-width", &src, &dst, &["--experts", "int4-g128", "--dense", "keep"], 2),
        ("same", &src, &src, &int4, 2),
        ("missing", &broken, &dst, &int4, 3),
        ("other-options", &src, &started, &["--experts", "int8", "--dense", "keep", "--shard-size", "1m"], 2),
        ("other-source", &started, &other, &["--experts", "int8", "--dense", "bf16"], 0),
        ("read-as", &src, &dst, &["--experts", "int8", "--dense", "bf16", "--read-as", "model.norm.weight=int8"], 2),
        (
            "read-as-nobody",
            &src,
            &dst,
            &["--experts", "int8", "--dense", "bf16", "--read-as", "model.norn.weight=int8"],
            2,
        ),
        ("no-model", "no/such/dir", &dst, &int4, 3),
    ];
    for (name, src, dst, options, code) in cases {
        let r = coli(&[&["convert", "qwen3_moe", src, dst][..], options].concat());
        assert_eq!(r.code, code, "{name}: {}", r.err);
        if code == 0 {
            continue;
        }
        assert!(r.out.is_empty(), "{name}: {}", r.out);
        let err =
            r.err.replace(&tmp.path().display().to_string(), "TMP").replace(&source.display().to_string(), "MODEL");
        snapshots(|| insta::assert_snapshot!(format!("convert-refusal-{name}"), err));
    }
    assert!(!Path::new(&dst).exists(), "a refused conversion left a directory");
    // Another source into a directory that was begun: every file that differs is named.
    let r = coli(&[&["convert", "qwen3_moe", &src, &other][..], &["--experts", "int8", "--dense", "bf16"]].concat());
    assert_eq!(r.code, 2, "{}", r.err);
    assert!(r.err.contains("source file model.safetensors: not there then"), "{}", r.err);
}

/// What `coli convert` and `coli inspect` print.
#[test]
fn reports() {
    let tmp = tempfile::tempdir().unwrap();
    let src = fixture("glm_moe_dsa_w256").dir.display().to_string();
    let out = tmp.path().join("out").display().to_string();
    let text = |s: &str| s.replace(&tmp.path().display().to_string(), "TMP").replace(&src, "MODEL");
    let table = tmp.path().join("table.txt").display().to_string();
    let args = ["--experts", "int4-g64", "--dense", "int8", "--report", &table];
    let r = coli(&[&["convert", "glm52", &src, &out][..], &args].concat());
    assert_eq!(r.code, 0, "{}", r.err);
    snapshots(|| insta::assert_snapshot!("convert-summary", text(&r.out)));
    let table = std::fs::read_to_string(&table).unwrap();
    let errors: Vec<f64> =
        table.lines().skip(1).map(|l| l.split_whitespace().next().unwrap().parse().unwrap()).collect();
    assert!(errors.len() > 50 && errors.is_sorted_by(|a, b| a >= b) && errors[0] > 0.01, "{table}");
    for (name, args) in [
        ("source", vec!["inspect", &src]),
        ("names", vec!["inspect", &out]),
        ("graph", vec!["inspect", &out, "--graph", "glm52"]),
    ] {
        let r = coli(&args);
        assert_eq!(r.code, 0, "{}", r.err);
        snapshots(|| insta::assert_snapshot!(format!("inspect-{name}"), text(&r.out)));
    }
    let r = coli(&["inspect", &out, "--graph", "glm52", "--json"]);
    let doc: serde_json::Value = serde_json::from_str(&r.out).unwrap();
    assert_eq!((doc["schema"].as_i64(), doc["sidecars"].as_i64()), (Some(1), doc["stamped"].as_i64()));
    assert_eq!(doc["receipt"]["complete"], true);
    // The wrong family: everything that is missing is listed, and still what is there.
    let r = coli(&["inspect", &out, "--graph", "qwen3_moe"]);
    assert_eq!(r.code, 3, "{}", r.err);
}

/// A value that is no number is named, and a repaired source is another source.
#[test]
fn damaged_values_are_named() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tiny(&tmp.path().join("nan"), 256);
    let path = dir.join("model.safetensors");
    let mut tensors = read(&path);
    let name = "model.layers.0.mlp.experts.1.up_proj.weight";
    let tensor = tensors.iter_mut().find(|t| t.0 == name).unwrap();
    let at = 4 * (200 * 256 + 3);
    let good = tensor.1.data.splice(at..at + 4, f32::NAN.to_le_bytes()).collect::<Vec<u8>>();
    write(&path, &tensors);
    let (src, out) = (dir.display().to_string(), tmp.path().join("out").display().to_string());
    let args = ["convert", "qwen3_moe", &src, &out, "--experts", "int8", "--dense", "keep"];
    let r = coli(&args);
    assert_eq!(r.code, 3, "{}", r.err);
    assert!(r.err.contains(name) && r.err.contains("row 200, column 3 is NaN"), "{}", r.err);
    let tensor = tensors.iter_mut().find(|t| t.0 == name).unwrap();
    tensor.1.data.splice(at..at + 4, good);
    write(&path, &tensors);
    let r = coli(&args);
    assert!(r.code == 2 && r.err.contains("source file model.safetensors: another content"), "{}", r.err);
}

/// Two conversions never write to one directory at once.
#[cfg(unix)]
#[test]
fn a_directory_has_one_writer() {
    let tmp = tempfile::tempdir().unwrap();
    let out = tmp.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let lock = std::fs::File::open(&out).unwrap();
    lock.try_lock().unwrap();
    let source = fixture("qwen3_moe").dir;
    let done = command(&source, &out).output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(2) && err.contains("another conversion is writing"), "{err}");
    assert_eq!(content(&out).len(), 0);
    drop(lock);
    assert!(command(&source, &out).status().unwrap().success());
}

/// The largest tensor has 64 MiB as f32. Anonymous memory: mapped files are the system's to drop.
#[cfg(target_os = "linux")]
#[test]
fn memory_follows_rows_not_tensors() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tiny(&tmp.path().join("large"), 256);
    let config = std::fs::read_to_string(dir.join("config.json")).unwrap();
    std::fs::write(dir.join("config.json"), config.replace("\"vocab_size\": 40", "\"vocab_size\": 65536")).unwrap();
    let mut tensors = read(&dir.join("model.safetensors"));
    for (name, tensor) in &mut tensors {
        if name == "model.embed_tokens.weight" || name == "lm_head.weight" {
            *tensor = Tensor::new("BF16", &[65536, 256], vec![0x3f; 2 * 65536 * 256]);
        }
    }
    write(&dir.join("model.safetensors"), &tensors);
    let mut child = Command::new(env!("CARGO_BIN_EXE_coli"));
    child.args(["convert", "qwen3_moe"]).args([&dir, &tmp.path().join("out")]).stdout(Stdio::null());
    child.args(["--experts", "f32", "--dense", "int8", "--threads", "2"]);
    let mut child = child.spawn().unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let anonymous =
            status.lines().find_map(|l| l.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(anonymous.unwrap_or(0u64));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    println!("{most} kB of anonymous memory");
    assert!(most > 0 && most < 8 << 10, "{most} kB of anonymous memory");
}

/// Sizes with two readings are refused with both and the flag, and read as the flag says; the output needs no flag.
#[test]
fn ambiguous_containers() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tiny(&tmp.path().join("two"), 160);
    let path = dir.join("model.safetensors");
    let mut tensors = read(&path);
    // 160 columns in two groups: of 96 or of 128.
    for e in 0..2 {
        let name = format!("model.layers.0.mlp.experts.{e}.down_proj.weight");
        let at = tensors.iter().position(|t| t.0 == name).unwrap();
        tensors[at].1 = Tensor::new("U8", &[256 * 80], vec![0x39; 256 * 80]);
        tensors.push((format!("{name}.qs"), Tensor::from_f32(&[512], &[0.01; 512])));
    }
    write(&path, &tensors);
    let (model, out) = (dir.display().to_string(), tmp.path().join("out").display().to_string());
    let exec = |dir: &str, more: &[&str]| {
        let args = ["exec", "qwen3_moe", "--model", dir, "--tokens", "1,2", "-n", "1", "--device", "cpu", "--json"];
        coli(&[&args[..], more].concat())
    };
    let refused = exec(&model, &[]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    let text = refused.err.replace(&tmp.path().display().to_string(), "TMP");
    snapshots(|| insta::assert_snapshot!("convert-ambiguous", text));
    let r = coli(&["inspect", &model, "--graph", "qwen3_moe"]);
    assert!(r.code == 3 && r.out.contains("int4-g96 or int4-g128"), "{}", r.out);
    let rule = ["--read-as", "*.down_proj.weight=int4-g96"];
    assert_eq!(exec(&model, &rule).code, 0);
    let r = coli(&[&["inspect", &model, "--graph", "qwen3_moe"][..], &rule].concat());
    assert!(r.code == 0 && r.out.contains("int4-g96"), "{}", r.out);
    let plan = coli(&[&["plan", "qwen3_moe", "--model", &model][..], &rule].concat());
    assert_eq!(plan.code, 0, "{}", plan.err);
    let config = dir.join("config.json").display().to_string();
    assert_eq!(coli(&[&["plan", "qwen3_moe", "--config", &config][..], &rule].concat()).code, 2);
    let keep = ["convert", "qwen3_moe", &model, &out, "--experts", "keep", "--dense", "keep"];
    let r = coli(&[&keep[..], &rule].concat());
    assert_eq!(r.code, 0, "{}", r.err);
    assert_eq!(exec(&out, &[]).code, 0);
    // What is finished was read otherwise: going on would mix the two.
    let made = content(Path::new(&out));
    let r = coli(&[&keep[..], &["--read-as", "*.down_proj.weight=int4-g128"]].concat());
    assert_eq!(r.code, 2, "{}", r.err);
    assert!(r.err.contains("--read-as: ") && r.err.contains("int4-g96 then, as int4-g128 now"), "{}", r.err);
    assert!(content(Path::new(&out)) == made, "a refused conversion changed the directory");
    assert_eq!(coli(&[&keep[..], &rule].concat()).code, 0);
    assert!(exec(&model, &["--read-as", "*.down_proj.weight=int8"]).err.contains("int8-row"));
}
