//! `coli bench kernels`: products with stored matrices, beside the memory they read from.

use super::bench_device::{self, Effort};
use super::device::{self, Choice, parse_device};
use super::failure::Failure;
use super::sweep;
use crate::formats::Format;
use crate::formats::activation::Activations;
use crate::run::cpu::bench::{Bench, Case, Dispatch, FORMATS, Timing, applies, layout};
use crate::run::vulkan::bench::machine::{READ, read_gbps};
use crate::run::vulkan::tuning;
use serde_json::{Value, json};
use std::io::Write;

#[derive(clap::Args)]
#[command(after_help = "\
Each kernel runs on copies of its weights in 512 MB, so that no cache holds them; a plain loop reads the
same memory between the passes, and `share` is the kernel's bandwidth over that loop's. Times are medians.

Examples:
  coli bench kernels
  coli bench kernels --threads 1 --format int4-g64 --format e8 --json
  coli bench kernels --shape 6144x2048 --rows 8
  coli bench kernels --device vulkan --format int4 --shape 6144x16384 --sweep")]
pub struct Args {
    /// What multiplies: cpu or vulkan[:N]
    #[arg(long, default_value = "cpu", value_parser = parse_device)]
    device: Choice,
    /// Threads; all processors if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Only this format; may be given several times
    #[arg(long, value_name = "F", value_parser = Format::spelled)]
    format: Vec<Format>,
    /// Outputs x inputs
    #[arg(long, value_name = "MxK", default_value = "2048x6144", value_parser = parse_shape)]
    shape: (usize, usize),
    /// Input rows
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    rows: u32,
    /// Also read weights in the row order of files
    #[arg(long)]
    file_order: bool,
    /// With --device vulkan: try every way in which a workgroup can lie over the matrix, fastest first; with
    /// --json a line each
    #[arg(long)]
    sweep: bool,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
}

fn parse_shape(text: &str) -> Result<(usize, usize), String> {
    let bad = || "give outputs x inputs, as in 2048x6144".to_owned();
    let (m, k) = text.split_once('x').ok_or_else(bad)?;
    let (m, k) = (m.parse().map_err(|_| bad())?, k.parse().map_err(|_| bad())?);
    match m > 0 && k > 0 && m <= 1 << 20 && k <= 1 << 20 {
        true => Ok((m, k)),
        false => Err("both sizes lie between 1 and 1048576".into()),
    }
}

/// A kernel and how it did.
struct Line {
    case: Case,
    timing: Timing,
}

pub fn run(args: Args) -> Result<(), Failure> {
    match args.device {
        Choice::Vulkan(number) => return on_vulkan(&args, number),
        _ if args.sweep => return Err(Failure::Usage("--sweep is about Vulkan devices; add --device vulkan".into())),
        Choice::Auto | Choice::Cpu => {}
        Choice::Oracle => return Err(Failure::Usage("the oracle is slow on purpose; give cpu or vulkan[:N]".into())),
    }
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(available, usize::from);
    let mut bench = Bench::new(threads).map_err(Failure::Device)?;
    let mut lines = vec![];
    for case in cases(&args) {
        let timing = bench.time(&case).map_err(Failure::Usage)?;
        lines.push(Line { case, timing });
        if !args.json {
            row(&lines)?;
        }
    }
    let mut reads: Vec<f64> = lines.iter().map(|l| l.timing.read_gbps).collect();
    reads.sort_by(f64::total_cmp);
    let (read, dispatch) = (reads.get(reads.len() / 2).copied().unwrap_or(0.0), bench.dispatch());
    let mut out = std::io::stdout();
    match args.json {
        true => writeln!(out, "{}", document(&lines, threads, read, dispatch))?,
        false => {
            let Dispatch { awake, asleep } = dispatch;
            writeln!(out, "{threads} threads; reads {read:.1} GB/s (median)")?;
            writeln!(out, "a call costs {awake:.1} us, {asleep:.1} us when threads have gone to sleep")?;
        }
    }
    Ok(())
}

/// The decode kernels of the best Vulkan device, in the row order of files: the only one that they read yet.
fn on_vulkan(args: &Args, number: Option<usize>) -> Result<(), Failure> {
    if args.threads.is_some() {
        return Err(Failure::Usage("--threads is about processors; leave it out with --device vulkan".into()));
    }
    let device = device::open(number)?;
    if args.sweep {
        return sweep::run(&device, wanted(args), [args.shape.0, args.shape.1], args.rows, args.json);
    }
    let read = read_gbps(&device, READ)?;
    let mut lines = vec![];
    let (m, k) = args.shape;
    for format in wanted(args).iter().copied() {
        let (timing, m) =
            match bench_device::time(&device, format, [m, k], args.rows, read, Effort::FULL, tuning(&device)) {
                // A shape may have no kernel in one of the formats: the others go on.
                Err(Failure::Usage(why)) if args.format.is_empty() => {
                    eprintln!("{}: {why}", format.spelling());
                    continue;
                }
                other => other?,
            };
        let case = Case { format, activations: Activations::F32, tiled: true, m, k, n: args.rows as usize };
        lines.push(Line { case, timing });
        if !args.json {
            row(&lines)?;
        }
    }
    let name = &device.capabilities().name;
    let mut out = std::io::stdout();
    match args.json {
        true => {
            let kernels: Vec<Value> = lines.iter().map(kernel).collect();
            let document = json!({
                "schema": 1, "device": name, "threads": null, "read_gbps": read, "kernels": kernels,
            });
            writeln!(out, "{document}")?
        }
        false => writeln!(out, "{name}; reads {read:.0} GB/s")?,
    }
    Ok(())
}

/// The formats asked for, or all.
fn wanted(args: &Args) -> &[Format] {
    if args.format.is_empty() { &FORMATS } else { &args.format }
}

fn cases(args: &Args) -> Vec<Case> {
    let ((m, k), n) = (args.shape, args.rows as usize);
    let mut out = vec![];
    for format in wanted(args).iter().copied() {
        for activations in Activations::ALL {
            for tiled in [true, false] {
                if applies(format, k, activations) && (tiled || args.file_order) {
                    out.push(Case { format, activations, tiled, m, k, n });
                }
            }
        }
    }
    out
}

/// Prints the last line as soon as it is there, under the heading if it is the first.
fn row(lines: &[Line]) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    if let [_] = lines {
        writeln!(out, "format    inputs  layout        us  (10 to 90 %)    GB/s  G weights/s  read GB/s  share")?;
    }
    if let Some(Line { case, timing: t }) = lines.last() {
        let [low, high] = t.spread;
        write!(
            out,
            "{:9} {:7} {:10} {:5.0}  {low:5.0}-{high:<6.0}",
            case.format.spelling(),
            case.activations.name(),
            layout(case),
            t.us
        )?;
        writeln!(out, " {:7.1} {:12.1} {:10.1}  {:4.0} %", t.gbps, t.gweights, t.read_gbps, 100.0 * t.share)?;
    }
    Ok(())
}

fn kernel(Line { case, timing: t }: &Line) -> Value {
    json!({
        "format": case.format.spelling(), "activations": case.activations.name(), "layout": layout(case),
        "m": case.m, "k": case.k, "n": case.n, "us": t.us, "us_10": t.spread[0], "us_90": t.spread[1],
        "gbps": t.gbps, "gweights": t.gweights, "share": t.share, "read_gbps": t.read_gbps,
    })
}

fn document(lines: &[Line], threads: usize, read: f64, d: Dispatch) -> Value {
    json!({
        "schema": 1, "device": "cpu", "kernels_of": crate::run::cpu::bench::instruction_set(), "threads": threads,
        "read_gbps": read, "dispatch_us": { "awake": d.awake, "asleep": d.asleep },
        "kernels": lines.iter().map(kernel).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        assert_eq!(parse_shape("2048x6144"), Ok((2048, 6144)));
        for bad in ["", "7", "x", "0x4", "4x0", "-1x3", "1x2x3", "1048577x1"] {
            assert!(parse_shape(bad).is_err(), "{bad}");
        }
    }
}
