//! `coli bench --report` on the device, under the validation layer, in the time of a test.

use crate::device::with;
use serde_json::Value;
use std::process::Command;

/// The parts of a report.
const KEYS: [&str; 12] = [
    "schema",
    "program",
    "host",
    "device",
    "clocks",
    "bandwidth",
    "launches",
    "kernels",
    "layers",
    "devices",
    "complete",
    "left_out",
];

fn report(path: &std::path::Path, device: usize, seconds: u32) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coli"));
    command.args(["bench", "--report"]).arg(path);
    command.args(["--device", &device.to_string(), "--seconds", &seconds.to_string()]);
    if std::env::var("COLI_VALIDATION").map_or(true, |v| v != "off") {
        // The layer prints its messages on stdout, where a report prints nothing.
        command.env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation");
    }
    let out = command.output().unwrap();
    let [told, said] = [out.stdout, out.stderr].map(|b| String::from_utf8(b).unwrap());
    assert!(out.status.success(), "{said}");
    assert_eq!(told, "", "messages of the validation layer");
    said
}

fn positive(v: &Value, what: &str) {
    assert!(v.as_f64().is_some_and(|x| x > 0.0 && x.is_finite()), "{what}: {v}");
}

fn kernels_and_layers(r: &Value) {
    let kernels = r["kernels"].as_array().unwrap();
    assert!(kernels.len() > 5, "{r:#}");
    for k in kernels {
        assert!(k["format"].is_string() && k["m"].is_u64() && k["k"].is_u64());
        ["us", "gbps", "gweights", "share"].iter().for_each(|key| positive(&k[*key], key));
    }
    let layers = r["layers"].as_array().unwrap();
    assert!(!layers.is_empty(), "{r:#}");
    for l in layers {
        assert!(l["changed"]["num_hidden_layers"].is_u64() && l["role"].is_string());
        ["stages", "submits", "step_us", "timed_us"].iter().for_each(|key| positive(&l[*key], key));
        let passes = l["passes"].as_array().unwrap();
        assert!(passes.len() > 20 && passes.iter().all(|p| p["kernel"].is_string() && p["us"].is_f64()));
    }
}

#[test]
fn a_report_has_everything_and_no_validation_message() {
    with(|gpu| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        let said = report(&path, gpu.device.capabilities().index, 24);
        assert!(said.contains("launches and clocks") && said.contains("wrote "), "{said}");
        let r: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        KEYS.iter().for_each(|key| assert!(!r[*key].is_null(), "{key}: {r:#}"));
        assert_eq!((r["schema"].as_u64(), r["complete"].as_bool()), (Some(1), Some(true)));
        let d = &r["device"];
        for key in [
            "name",
            "driver",
            "vendor_id",
            "conformance",
            "limits",
            "subgroup",
            "memory",
            "float_controls",
            "heaps_now",
        ] {
            assert!(!d[key].is_null(), "{key}: {d:#}");
        }
        for key in ["read_gbps", "host_to_device_gbps", "device_to_host_gbps", "host_reads_cached_memory_gbps"] {
            positive(&r["bandwidth"][key], key);
        }
        positive(&r["launches"]["dispatch_and_barrier_us"], "launch");
        positive(&r["clocks"]["dependent_fma_ns"], "clocks");
        kernels_and_layers(&r);
        for left_out in r["left_out"].as_array().unwrap() {
            assert!(left_out["why"].as_str().is_some_and(|w| w.len() > 10), "{left_out}");
        }
    });
}

/// A second is too short for layers: what is missing is named.
#[test]
fn a_report_without_time_says_what_it_lacks() {
    with(|gpu| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        // Longer than the new text: none of it may stay behind.
        std::fs::write(&path, "x".repeat(1 << 20)).unwrap();
        report(&path, gpu.device.capabilities().index, 1);
        let r: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(r["left_out"].as_array().unwrap().len() > 10 && r["device"]["name"].is_string(), "{r:#}");
    });
}
