//! `coli trace`: where the time of a few steps goes, as a Chrome trace.

use super::args::{DeviceArgs, KvArgs, ModelArgs};
use super::failure::Failure;
use super::{check, device};
use crate::graph::{Role, Row};
use crate::run::vulkan::{Lane, Options, Span};
use crate::run::{Session, Sizes};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
The file opens in https://ui.perfetto.dev and chrome://tracing: passes by the device's clock, submits, waits and
CPU nodes by the host's. The two clocks are laid against each other at the first submit of each step.

Examples:
  coli trace graphs/glm52.ron --out trace.json
  coli trace graphs/qwen3_moe.ron --model DIR --prompt-tokens 128 --place '*.experts=cpu' --out trace.json")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    on: DeviceArgs,
    #[command(flatten)]
    caches: KvArgs,
    /// Rows of the prompt step
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=512))]
    prompt_tokens: u32,
    /// Decode steps
    #[arg(short, value_name = "N", default_value_t = 16)]
    n: u32,
    /// File to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let number = match args.on.device {
        device::Choice::Auto => None,
        device::Choice::Vulkan(n) => n,
        _ => return Err(Failure::Usage("trace shows a Vulkan device; give --device vulkan[:N]".into())),
    };
    let model = args.model.load()?;
    let tokens = check::tokens(&model, (args.prompt_tokens + args.n) as usize)?;
    let sizes = Sizes { ctx: tokens.len() as u32, slots: 1, chunk: args.prompt_tokens, kv: args.caches.kv };
    let opened = device::open(number)?;
    let name = opened.capabilities().name.clone();
    let options = Options { rules: args.on.place.clone(), timed: true, ..Options::default() };
    let mut session = Session::on_vulkan(&model, opened, sizes, &options)?;
    let (prompt, decoded) = tokens.split_at(args.prompt_tokens as usize);
    let row = |(i, t): (usize, &u32)| Row { token: *t, position: i as u32, slot: 0, logits: i + 1 >= prompt.len() };
    let rows: Vec<Row> = prompt.iter().chain(decoded).enumerate().map(row).collect();
    let (prompt, decoded) = rows.split_at(prompt.len());
    session.step(Role::Prompt, prompt.to_vec(), &mut |_, _| {})?;
    for row in decoded {
        session.step(Role::Decode, vec![*row], &mut |_, _| {})?;
    }
    let spans = session.spans();
    let text = chrome(&spans, &name).to_string();
    let path = args.out.display().to_string();
    std::fs::write(&args.out, text).map_err(|source| Failure::File { path, source })?;
    Ok(std::io::stdout().write_all(summary(&spans, &name).as_bytes())?)
}

/// The trace event format: complete events, microseconds.
fn chrome(spans: &[Span], device: &str) -> serde_json::Value {
    let lane = |l: Lane| if l == Lane::Host { 1 } else { 2 };
    let named =
        |l: Lane, name: &str| json!({"ph": "M", "pid": lane(l), "name": "process_name", "args": {"name": name}});
    let mut events = vec![named(Lane::Host, "host"), named(Lane::Device, device)];
    events.extend(spans.iter().map(|s| {
        json!({"ph": "X", "pid": lane(s.lane), "tid": 1, "name": s.name, "cat": s.kind, "ts": s.start,
            "dur": s.end - s.start, "args": {"step": s.step, "kind": s.kind}})
    }));
    json!({"traceEvents": events, "displayTimeUnit": "ns"})
}

/// The prompt step, and the median of the decode steps: busy and idle time of the device, then its kernels.
fn summary(spans: &[Span], device: &str) -> String {
    let mut steps: BTreeMap<u32, Vec<&Span>> = BTreeMap::new();
    spans.iter().for_each(|s| steps.entry(s.step).or_default().push(s));
    let mut out = format!("{device}\n");
    if let Some(prompt) = steps.remove(&0) {
        out += &one("prompt step", &prompt);
    }
    let mut decode: Vec<Vec<&Span>> = steps.into_values().collect();
    decode.sort_by(|a, b| length(a).total_cmp(&length(b)));
    if let Some(middle) = decode.get(decode.len() / 2) {
        out += &one("decode step, the median one", middle);
    }
    out
}

/// Microseconds from the first event to the last.
fn length(step: &[&Span]) -> f64 {
    let first = step.iter().map(|s| s.start).fold(f64::INFINITY, f64::min);
    let last = step.iter().map(|s| s.end).fold(0.0, f64::max);
    last - first
}

fn one(what: &str, step: &[&Span]) -> String {
    let mut passes: Vec<&&Span> = step.iter().filter(|s| s.lane == Lane::Device).collect();
    passes.sort_by(|a, b| a.start.total_cmp(&b.start));
    let (mut busy, mut until) = (0.0, f64::NEG_INFINITY);
    let mut kinds: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for p in &passes {
        busy += (p.end - p.start.max(until)).max(0.0);
        until = until.max(p.end);
        let kind = kinds.entry(&p.kind).or_default();
        *kind = (kind.0 + 1, kind.1 + p.end - p.start);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    let whole = length(step);
    let mut out = format!("{what}: {whole:.0} us, device busy {busy:.0} us in {} passes\n", passes.len());
    for (kind, (n, time)) in kinds.into_iter().take(8) {
        out += &format!("  {time:8.1} us  {n:4} x {kind}\n");
    }
    out
}
