//! The engine layout in files: where its bytes lie, and that nothing else changes.

use crate::cli::coli;
use crate::common::fixture::fixture;
use crate::common::safetensors::{Tensor, Tensors, read, write};
use crate::convert::{
    TARGETS, assert_same, bound, bytes_of, content, convert_as, logits, logits_on, open, options, tiny,
};
use crate::support::{arch, graph_of, load, snapshots};
use coli::cli::report_text;
use coli::convert::Part;
use coli::formats::{Format, layout};
use coli::run::{Device, LoadError, Model, ModelSource};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The header of a safetensors file, and where its data starts.
fn header(path: &Path) -> (Map<String, Value>, usize) {
    let bytes = std::fs::read(path).unwrap();
    let (size, rest) = bytes.split_first_chunk::<8>().unwrap();
    let size = u64::from_le_bytes(*size) as usize;
    (serde_json::from_slice(&rest[..size]).unwrap(), 8 + size)
}

/// Writes a file again with another header and other data.
fn rewrite(path: &Path, change: impl FnOnce(&mut Map<String, Value>, &mut Vec<u8>)) {
    let (mut map, start) = header(path);
    let mut data = std::fs::read(path).unwrap().split_off(start);
    change(&mut map, &mut data);
    let text = Value::Object(map).to_string();
    let bytes = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat();
    std::fs::write(path, bytes).unwrap();
}

/// The stamps of a header's metadata under `key`.
fn stamps(header: &Map<String, Value>, key: &str) -> Map<String, Value> {
    let text = header["__metadata__"][key].as_str().unwrap_or("{}");
    serde_json::from_str(text).unwrap()
}

/// The same weights as a container in file order, stamped where there are scales.
fn in_file_order(model: &Model, from: &Path, to: &Path) {
    let (mut tensors, mut stamps): (Tensors, Map<String, Value>) = (vec![], Map::new());
    for (name, tensor) in bound(model) {
        let (data, scales) = bytes_of(&tensor);
        let (rows, cols) = (tensor.rows(), tensor.cols());
        let dtype = match tensor.format() {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::Bf16 => "BF16",
            _ => "U8",
        };
        if scales.is_empty() {
            let shape = [rows, cols];
            let shape = if rows == 1 { &shape[1..] } else { &shape };
            tensors.push((name, Tensor::new(dtype, shape, data)));
            continue;
        }
        let dtype = if tensor.format().name().ends_with("ue8m0") || tensor.format() == Format::Mxfp4 {
            ("F8_E8M0", scales.len())
        } else {
            ("F32", scales.len() / 4)
        };
        let stamp = coli::weights::stamp_for(tensor.format(), cols as u64).unwrap();
        stamps.insert(name.clone(), stamp.into());
        tensors.push((name.clone(), Tensor::new("U8", &[data.len()], data)));
        tensors.push((format!("{name}.qs"), Tensor::new(dtype.0, &[dtype.1], scales)));
    }
    std::fs::create_dir(to).unwrap();
    std::fs::copy(from.join("config.json"), to.join("config.json")).unwrap();
    let path = to.join("model.safetensors");
    write(&path, &tensors);
    rewrite(&path, |header, _| {
        header["__metadata__"]["colibri.fmt"] = Value::Object(stamps).to_string().into();
    });
}

/// Weights that are, tensor by tensor, the same bytes in another order give the same bits, and tiling them gives the
/// same files.
#[test]
fn either_order_gives_the_same_bits() {
    let tmp = tempfile::tempdir().unwrap();
    let plain = tiny(&tmp.path().join("plain"), 256);
    let ids = [3, 7, 20, 1, 39, 0, 11];
    for format in TARGETS {
        let dense = if format == "e8" { "int8" } else { format };
        let [tiled, rows, again] = ["tiled", "rows", "again"].map(|kind| tmp.path().join(format!("{format}-{kind}")));
        convert_as(&open("qwen3_moe", &plain), &plain, &tiled, options(format, dense), 2);
        let tiles = open("qwen3_moe", &tiled);
        in_file_order(&tiles, &tiled, &rows);
        let file = open("qwen3_moe", &rows);
        let (a, b) = (bound(&tiles), bound(&file));
        assert!(a.values().filter(|t| t.is_tiled()).count() == 12 && b.values().all(|t| !t.is_tiled()), "{format}");
        assert_eq!((tiles.to_retile(), file.to_retile().0), ((0, 0), 5), "{format}");
        for (name, tensor) in &a {
            assert_eq!(tensor.format(), b[name].format(), "{format}: {name}");
            assert_eq!(bytes_of(tensor), bytes_of(&b[name]), "{format}: {name}");
        }
        for device in [Device::Oracle, Device::Cpu] {
            let bits = |model: &Model| logits_on(device, model, &ids).iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&tiles), bits(&file), "{format} on {}", device.name());
        }
        let r = coli(&["inspect", &tiled.display().to_string(), "--graph", "qwen3_moe"]);
        assert!(r.code == 0 && r.out.contains("layout: 12 of 18 tensors"), "{}{}", r.out, r.err);
        // From file order into tiles, and tiles once more: the same files but for the receipt.
        convert_as(&file, &rows, &again, options("keep", "keep"), 1);
        let twice = tmp.path().join(format!("{format}-twice"));
        convert_as(&tiles, &tiled, &twice, options("keep", "keep"), 2);
        for dir in [&tiled, &again, &twice] {
            std::fs::remove_file(dir.join("coli-convert.json")).unwrap();
        }
        assert_same(&tiled, &again, format);
        assert_same(&tiled, &twice, format);
    }
}

/// Tokens from the command line are those of the file-order weights.
#[test]
fn converted_models_run() {
    let tmp = tempfile::tempdir().unwrap();
    let f = fixture("glm_moe_dsa_w256");
    let (tiled, rows) = (tmp.path().join("tiled"), tmp.path().join("rows"));
    convert_as(&load(&f), &f.dir, &tiled, options("int4-g64", "int8"), 2);
    let graph = graph_of(&f.name);
    in_file_order(&open(graph, &tiled), &tiled, &rows);
    let exec = |dir: &Path, device: &str| {
        let dir = dir.display().to_string();
        let r = coli(&["exec", graph, "--model", &dir, "--tokens", "1,5,9", "-n", "6", "--device", device, "--json"]);
        assert_eq!(r.code, 0, "{}", r.err);
        let doc: Value = serde_json::from_str(&r.out).unwrap();
        doc["tokens"].clone()
    };
    let want = exec(&rows, "oracle");
    assert!(want.as_array().is_some_and(|t| !t.is_empty()), "{want}");
    for (dir, device) in [(&tiled, "oracle"), (&tiled, "cpu"), (&rows, "cpu")] {
        assert_eq!(exec(dir, device), want, "{} on {device}", dir.display());
    }
    let plan = |dir: &Path| coli(&["plan", graph, "--model", &dir.display().to_string()]).out;
    assert!(!plan(&tiled).contains("file order"), "{}", plan(&tiled));
    let line = plan(&rows).lines().find(|l| l.starts_with("layout")).map(str::to_owned);
    snapshots(|| insta::assert_snapshot!("plan-file-order", line.unwrap_or_default()));
    let r = coli(&["check", graph, "--model", &tiled.display().to_string(), "--device", "cpu"]);
    assert_eq!(r.code, 0, "{}{}", r.out, r.err);
}

/// An independent reader finds every tensor without gaps; an expert's three matrices lie side by side from a multiple
/// of 4 KiB on.
#[test]
fn experts_are_contiguous_and_aligned() {
    let tmp = tempfile::tempdir().unwrap();
    for (name, experts, dense) in [("qwen3_moe", "int4-g64", "fp8-ue8m0"), ("glm_moe_dsa_w256", "e8", "int3-g64")] {
        let f = fixture(name);
        let dir = tmp.path().join(name);
        let done = convert_as(&load(&f), &f.dir, &dir, options(experts, dense), 2);
        let index = std::fs::read(dir.join("model.safetensors.index.json")).unwrap();
        let index: Value = serde_json::from_slice(&index).unwrap();
        let (mut total, mut seen) = (0, 0);
        for shard in &done.receipt.shards {
            let path = dir.join(&shard.file.file);
            let (header, start) = header(&path);
            assert_eq!(start % 4096, 0, "data is not aligned");
            let stamps = stamps(&header, "coli.tiles");
            let mut at = start;
            let tensors = read(&path);
            for (i, (name, tensor)) in tensors.iter().enumerate() {
                assert_eq!(index["weight_map"][name], shard.file.file.as_str());
                total += tensor.data.len() as u64;
                if let Some(stamp) = stamps.get(name) {
                    assert_eq!((at % 64, stamp["layout"].as_str()), (0, Some(layout::STAMP)), "{name}");
                }
                if let Some(expert) = name.strip_suffix("gate_proj.weight").filter(|n| n.contains(".experts.")) {
                    let three = ["gate", "up", "down"].map(|n| format!("{expert}{n}_proj.weight"));
                    assert!(tensors[i..i + 3].iter().map(|t| &t.0).eq(&three), "{name}");
                    let bytes: usize = tensors[i..i + 3].iter().map(|t| t.1.data.len()).sum();
                    assert_eq!((at % 4096, bytes % 4096), (0, 0), "{name}");
                    seen += 1;
                }
                at += tensor.data.len();
            }
        }
        assert!(seen >= 8, "{seen} experts");
        assert_eq!(index["metadata"]["total_size"], total);
        let made = bound(&open(graph_of(name), &dir));
        let mut experts = done.receipt.tensors().filter(|t| t.part == Part::Experts);
        assert!(experts.all(|t| made[&t.name].is_tiled()), "{name}");
    }
}

const Q: &str = "model.layers.0.self_attn.q_proj.weight";

/// Stamps that do not fit are named, with the word of the graph file that asks for the tensor.
#[test]
fn bad_stamps_are_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let plain = tiny(&tmp.path().join("plain"), 256);
    let good = tmp.path().join("good");
    let one = coli::convert::Options { shard_bytes: 1 << 30, ..options("int4", "int8") };
    convert_as(&open("qwen3_moe", &plain), &plain, &good, one, 2);
    let stamp = |key: &'static str, value: Value| {
        move |header: &mut Map<String, Value>, _: &mut Vec<u8>| {
            let mut all = stamps(header, "coli.tiles");
            match value {
                Value::Null => drop(all[Q].as_object_mut().unwrap().remove(key)),
                value => all[Q][key] = value,
            }
            header["__metadata__"]["coli.tiles"] = Value::Object(all).to_string().into();
        }
    };
    type Change = Box<dyn FnOnce(&mut Map<String, Value>, &mut Vec<u8>)>;
    let shorter = |header: &mut Map<String, Value>, _: &mut Vec<u8>| {
        let [begin, end] = [0, 1].map(|i| header[Q]["data_offsets"][i].as_u64().unwrap());
        header[Q]["data_offsets"] = json!([begin, end - 4096]);
        header[Q]["shape"] = json!([end - 4096 - begin]);
    };
    let cases: [(&str, Change); 5] = [
        ("layout", Box::new(stamp("layout", "tile32-v2".into()))),
        ("no-shape", Box::new(stamp("shape", Value::Null))),
        ("shape", Box::new(stamp("shape", json!([256, 128])))),
        ("format", Box::new(stamp("format", "bf16".into()))),
        ("short", Box::new(shorter)),
    ];
    for (name, change) in cases {
        let dir = tmp.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        content(&good).iter().for_each(|(file, bytes)| std::fs::write(dir.join(file), bytes).unwrap());
        rewrite(&dir.join("model-00001-of-00001.safetensors"), change);
        let source = ModelSource::Dir(dir.clone());
        let Err(LoadError::Report(report)) = Model::load(&arch("qwen3_moe"), source) else {
            panic!("{name}: not refused")
        };
        let text = report_text(&report, false).replace(&dir.display().to_string(), "MODEL");
        snapshots(|| insta::assert_snapshot!(format!("tiles-{name}"), text));
        let r = coli(&["inspect", &dir.display().to_string(), "--graph", "qwen3_moe"]);
        assert!(r.code == 3 && r.out.contains(Q), "{}", r.out);
    }
    assert_eq!(logits(&open("qwen3_moe", &good), &[1]).len(), 40);
}

/// A receipt that cannot be read is a problem, not nothing.
#[test]
fn unreadable_receipts_are_reported() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tiny(&tmp.path().join("plain"), 256);
    std::fs::create_dir(dir.join("coli-convert.json")).unwrap();
    let r = coli(&["inspect", &dir.display().to_string()]);
    assert!(r.code == 3 && r.out.contains("coli-convert.json cannot be read"), "{}{}", r.out, r.err);
    let file = coli(&["inspect", &dir.join("model.safetensors").display().to_string()]);
    assert_eq!(file.code, 0, "{}", file.err);
}
