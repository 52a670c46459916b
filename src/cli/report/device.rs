//! What a report measures on a device, in the order of its worth: if time runs out, the rest is left out with the reason.

use super::sheet::Sheet;
use crate::cli::bench_device::{self, Effort};
use crate::cli::bench_layers::{self, Case, stored};
use crate::cli::failure::Failure;
use crate::cli::files;
use crate::formats::Format;
use crate::graph::{Graph, Role, WeightId, expand};
use crate::ops::Kv;
use crate::run::cpu::bench::FORMATS;
use crate::run::vulkan::bench::machine::{self, CHAIN, READ};
use crate::run::vulkan::tuning;
use crate::spec::Config;
use crate::vk::{Device, DeviceKind};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The configuration whose layers are measured; it travels inside the program.
const GLM52: &str = include_str!("../../../tests/configs/glm52.json");

/// Shares of the time after which no further kernel, and no further step of layers, begins.
const KERNELS_UNTIL: f64 = 0.6;
const LAYERS_UNTIL: f64 = 0.95;

/// Bytes of the copies between host and device.
const COPY: u64 = 256 << 20;

/// A device is kept awake from one measurement to the next, so less than the commands of one measurement take.
const WARM_UP: Duration = Duration::from_millis(800);

/// All that Vulkan says about the device, and its heaps at this moment.
pub fn describe(device: &Device) -> Result<Value, Failure> {
    let unreadable = |e: serde_json::Error| Failure::Device(format!("its description is no JSON: {e}"));
    let mut out = serde_json::to_value(device.capabilities()).map_err(unreadable)?;
    out["heaps_now"] = serde_json::to_value(device.heaps()).map_err(unreadable)?;
    Ok(out)
}

/// A processor in the part of a device computes a thousand times slower: everything is smaller there.
fn slow(device: &Device) -> bool {
    device.capabilities().kind == DeviceKind::Cpu
}

/// Bytes for a measurement that would like to have `wanted`: at most a sixteenth of the device's largest heap.
fn size(device: &Device, wanted: u64) -> u64 {
    let heaps = &device.capabilities().memory.heaps;
    let largest = heaps.iter().filter(|h| h.device_local).map(|h| h.size).max().unwrap_or(0);
    let limit = if slow(device) { wanted / 16 } else { wanted };
    limit.min(largest / 16).max(1 << 20)
}

/// Measures everything that there is time for.
pub fn measure(sheet: &mut Sheet, device: &Device) -> Result<(), Failure> {
    let mut speed = Speed::default();
    sheet.say("memory and copies");
    let measured = bandwidth(device, &mut speed);
    sheet.put_or_leave_out("bandwidth", measured);
    sheet.save(false)?;
    sheet.say("launches and clocks");
    let measured = machine::launches(device).map_err(Failure::from);
    let launches = measured
        .map(|l| json!({"dispatch_and_barrier_us": l.dispatch_us, "chain": CHAIN, "submit_and_wait_us": l.submit_us}));
    sheet.put_or_leave_out("launches", launches);
    let clocks = clocks(device);
    sheet.put_or_leave_out("clocks", clocks);
    sheet.save(false)?;
    kernels(sheet, device, &mut speed)?;
    layers(sheet, device, &speed)
}

/// What later measurements predict their time from; 0 where it is not known.
#[derive(Default)]
struct Speed {
    read_gbps: f64,
    upload_gbps: f64,
    /// Of the int4 kernel.
    int4_gbps: f64,
}

fn bandwidth(device: &Device, speed: &mut Speed) -> Result<Value, Failure> {
    let (read, copy) = (size(device, READ), size(device, COPY));
    speed.read_gbps = machine::read_gbps(device, read)?;
    let c = machine::copies(device, copy)?;
    speed.upload_gbps = c.host_writes.min(c.to_device);
    Ok(json!({
        "read_gbps": speed.read_gbps, "read_bytes": read, "copy_bytes": copy,
        "host_to_device_gbps": c.to_device, "device_to_host_gbps": c.to_host, "device_to_device_gbps": c.within,
        "host_writes_upload_memory_gbps": c.host_writes, "upload_memory_is_the_devices": c.upload_is_device_memory,
        "host_reads_cached_memory_gbps": c.host_reads,
    }))
}

fn clocks(device: &Device) -> Result<Value, Failure> {
    let a = machine::arithmetic(device)?;
    Ok(json!({
        "mhz": null,
        "why": "Vulkan does not tell clocks, and cycles of an instruction are not known for an unknown device",
        "dependent_fma_ns": a.dependent_ns, "fma_per_ns": a.per_ns,
    }))
}

/// Every format, smaller matrices first.
fn kernels(sheet: &mut Sheet, device: &Device, speed: &mut Speed) -> Result<(), Failure> {
    let real = [[2048, 6144], [6144, 16384]];
    let shapes: Vec<[usize; 2]> = if slow(device) { vec![[256, 512], real[0], real[1]] } else { real.to_vec() };
    let pool = if slow(device) { 0 } else { size(device, Effort::FULL.pool) };
    let effort = Effort { pool, warm_up: if slow(device) { Duration::ZERO } else { WARM_UP }, steps: 5 };
    // Int4 comes first: the layers are predicted from it.
    let mut formats = FORMATS;
    formats.sort_by_key(|f| *f != Format::Int4Row);
    let (mut out, mut took) = (vec![], HashMap::<Format, (f64, u64)>::new());
    sheet.put("kernels", json!([]));
    for [m, k] in shapes {
        // Of the measurement before, if it had the same number of weights.
        let mut last = None;
        for format in formats {
            let what = format!("kernel {} {m}x{k}", format.spelling());
            let bytes = effort.matrices(format, [m, k]) as u64 * format.bytes(m as u64, k as u64);
            let smaller = took.get(&format).map_or(0.0, |(s, b)| s * (bytes as f64 / *b as f64).max(1.0));
            let predicted = last.map_or(smaller, |s: f64| 2.0 * s);
            if !fits(sheet, &what, predicted, KERNELS_UNTIL) {
                continue;
            }
            sheet.say(&what);
            let start = Instant::now();
            match bench_device::time(device, format, [m, k], 1, speed.read_gbps, effort, tuning(device)) {
                Ok((t, outputs)) => {
                    if format == Format::Int4Row {
                        speed.int4_gbps = t.gbps;
                    }
                    out.push(json!({
                        "format": format.spelling(), "m": outputs, "k": k, "us": t.us, "us_10": t.spread[0], "us_90": t.spread[1],
                        "gbps": t.gbps, "gweights": t.gweights, "share": t.share,
                    }));
                }
                Err(why) => sheet.leave_out(&what, &why.to_string()),
            }
            let seconds = start.elapsed().as_secs_f64();
            last = Some(seconds);
            took.insert(format, (seconds, bytes));
            sheet.put("kernels", out.clone().into());
            sheet.save(false)?;
        }
    }
    Ok(())
}

/// Whether there is time; if not, that is noted.
fn fits(sheet: &mut Sheet, what: &str, predicted: f64, share: f64) -> bool {
    let left = sheet.left(share).max(0.0);
    if predicted < left {
        return true;
    }
    sheet.leave_out(what, &format!("it would take about {predicted:.1} s, and {left:.1} s are left for its kind"));
    false
}

/// GLM-5.2 cut down: layers, experts, and what else is changed.
struct Cut {
    layers: u32,
    experts: u64,
    /// Keys of config.json with other values than the model's.
    others: &'static [(&'static str, u64)],
}

/// Rows of the embedding have no bearing on a step's time, and take 4 GB.
const VOCAB: (&str, u64) = ("vocab_size", 8192);

/// Largest first. Experts that no row chose take memory alone.
const CUTS: [Cut; 4] = [
    Cut { layers: 5, experts: 256, others: &[VOCAB] },
    Cut { layers: 5, experts: 32, others: &[VOCAB] },
    Cut { layers: 4, experts: 8, others: &[VOCAB] },
    Cut {
        layers: 4,
        experts: 16,
        others: &[
            ("vocab_size", 512),
            ("hidden_size", 512),
            ("num_attention_heads", 4),
            ("num_key_value_heads", 4),
            ("q_lora_rank", 256),
            ("index_n_heads", 4),
            ("intermediate_size", 512),
            ("moe_intermediate_size", 256),
        ],
    },
];

impl Cut {
    /// The configuration's keys that differ, and their values.
    fn changes(&self) -> Vec<(&'static str, u64)> {
        let own = [("num_hidden_layers", u64::from(self.layers)), ("n_routed_experts", self.experts)];
        own.into_iter().chain(self.others.iter().copied()).collect()
    }

    fn graph(&self) -> Result<Graph, Failure> {
        let mut config: Value = serde_json::from_str(GLM52).map_err(|e| Failure::Model(e.to_string()))?;
        for (key, value) in self.changes() {
            config[key] = value.into();
        }
        let parsed = Config::parse("glm52.json", config.to_string().as_bytes());
        Ok(expand(&files::graph("glm52")?, &parsed.map_err(|e| Failure::Model(e.to_string()))?, "main")?)
    }

    fn name(&self, case: &Case) -> String {
        let width = if self.others.len() > 1 { " of a small width" } else { "" };
        let step = if case.role == Role::Decode { "decode" } else { "prompt" };
        format!(
            "{step} of {} rows, {} layers{width}, {} experts, {}",
            case.rows,
            self.layers,
            self.experts,
            case.format.spelling()
        )
    }
}

/// Seconds that a case takes: the weights are uploaded twice, and steps read those that a row needs.
fn predict(graph: &Graph, cut: &Cut, case: &Case, speed: &Speed) -> f64 {
    let (mut all, mut read) = (0.0, 0.0);
    for (i, w) in graph.weights.iter().enumerate() {
        let shape = &w.need.shape;
        let cols = shape.last().copied().unwrap_or(1);
        let one = stored(graph, WeightId(i as u32), case.format)
            .bytes(shape.iter().product::<u64>() / cols.max(1), cols) as f64;
        let experts = w.need.experts.map_or(1.0, |e| e as f64);
        all += one * experts;
        // Eight of them, or all where many rows choose.
        read += one * if case.rows > 8 { experts } else { experts.min(8.0 * f64::from(case.rows)) };
    }
    let gbps = if speed.int4_gbps > 0.0 { speed.int4_gbps } else { 1.0 };
    // Attention and small passes take about as long again; rows of a prompt are computed, not only read.
    let step = 2.0 * read / gbps / 1e9 * f64::from(case.rows.div_ceil(8));
    let upload = all / speed.upload_gbps.clamp(0.5, 50.0) / 1e9;
    let overhead = if cut.others.len() > 1 { 0.5 } else { 2.0 };
    2.0 * (upload + case.warm_up.as_secs_f64().max(step) + f64::from(case.steps) * step) + overhead
}

/// Steps of the largest cut that memory and time allow: one row, eight, another format, a prompt.
fn layers(sheet: &mut Sheet, device: &Device, speed: &Speed) -> Result<(), Failure> {
    let slow = slow(device);
    let warm_up = if slow { Duration::ZERO } else { WARM_UP };
    let first = Case {
        role: Role::Decode,
        layers: 0,
        format: Format::Int4Row,
        rows: 1,
        ctx: 1024,
        kv: Kv::F32,
        steps: if slow { 3 } else { 11 },
        warm_up,
    };
    let mut out = vec![];
    sheet.put("layers", json!([]));
    for cut in &CUTS {
        let first = Case { layers: cut.layers, ..first };
        let graph = Arc::new(cut.graph()?);
        if !one(sheet, device, speed, (cut, &graph), first, &mut out)? {
            continue;
        }
        let rest = [
            Case { rows: 8, ..first },
            Case { format: Format::E8, ..first },
            Case { role: Role::Prompt, rows: 128, steps: 3, ..first },
        ];
        for case in rest {
            one(sheet, device, speed, (cut, &graph), case, &mut out)?;
        }
        break;
    }
    Ok(())
}

/// Measures a case, or notes why not; whether it was measured.
fn one(
    sheet: &mut Sheet,
    device: &Device,
    speed: &Speed,
    (cut, graph): (&Cut, &Arc<Graph>),
    case: Case,
    out: &mut Vec<Value>,
) -> Result<bool, Failure> {
    let what = cut.name(&case);
    if !fits(sheet, &what, predict(graph, cut, &case, speed), LAYERS_UNTIL) {
        return Ok(false);
    }
    sheet.say(&what);
    let measured = bench_layers::measure(device, graph, speed.read_gbps, case);
    let done = measured.is_ok();
    match measured {
        Ok(measured) => {
            let mut document = measured.document();
            document["role"] = if case.role == Role::Decode { "decode" } else { "prompt" }.into();
            document["model"] = "GLM-5.2".into();
            document["changed"] = cut.changes().into_iter().map(|(k, v)| (k.to_string(), Value::from(v))).collect();
            out.push(document);
        }
        Err(why) => sheet.leave_out(&what, &why.to_string()),
    }
    sheet.put("layers", out.clone().into());
    sheet.save(false)?;
    Ok(done)
}
