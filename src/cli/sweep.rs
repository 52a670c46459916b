//! `coli bench kernels --sweep`: how workgroups of a device can lie over a matrix, each timed. What comes first belongs into
//! `plan::tuning`.

use super::bench_device::{self, Effort};
use super::failure::Failure;
use crate::formats::Format;
use crate::plan::Tuning;
use crate::plan::lower::Stripes;
use crate::run::vulkan::bench::WARM_UP;
use crate::run::vulkan::bench::machine::{READ, read_gbps};
use crate::run::vulkan::tuning;
use crate::vk;
use serde_json::json;
use std::io::Write;

/// Enough to tell places apart by a few per cent, in some seconds each: a device lowers its clocks while the next one's weights are uploaded.
const EFFORT: Effort = Effort { pool: 256 << 20, warm_up: WARM_UP, steps: 7 };

/// A way to lie over the matrix, its time in microseconds, and whether plans take it.
struct Place {
    lie: Stripes,
    us: f64,
    taken: bool,
}

/// Times every way for each of the formats, and prints them, the fastest first.
pub fn run(
    device: &vk::Device,
    formats: &[Format],
    [m, k]: [usize; 2],
    rows: u32,
    as_json: bool,
) -> Result<(), Failure> {
    let read = read_gbps(device, READ)?;
    let most = device.capabilities().limits.group_invocations;
    let (now, mut out) = (tuning(device), std::io::stdout());
    for format in formats {
        let of = |t: &Tuning| Stripes::of(t, *format, m as u32, k as u32);
        let mut places: Vec<Place> = vec![];
        for tuning in ways(most) {
            let lie = of(&tuning);
            if places.iter().any(|p| p.lie == lie) {
                continue;
            }
            let (timing, _) = bench_device::time(device, *format, [m, k], rows, read, EFFORT, tuning)?;
            places.push(Place { lie, us: timing.us, taken: lie == of(&now) });
        }
        places.sort_by(|a, b| a.us.total_cmp(&b.us));
        for Place { lie: Stripes { local, quads, depth }, us, taken } in &places {
            let name = format.spelling();
            if as_json {
                let line = json!({
                    "format": name, "m": m, "k": k, "rows": rows, "threads": local, "quads": quads, "ahead": depth, "us": us, "taken": taken,
                });
                writeln!(out, "{line}")?;
            } else {
                let mark = if *taken { "  taken" } else { "" };
                writeln!(out, "{name:9} {local:5} threads {quads:2} quads {depth:2} ahead {us:8.1} us{mark}")?;
            }
        }
    }
    Ok(())
}

/// Threads, quads and chunks ahead in every combination; fewer ahead first, so that what is the same is not tried again.
fn ways(most: u32) -> Vec<Tuning> {
    let threads = [64, 128, 256, 512, 1024].into_iter().filter(|n| *n <= most);
    // From the first tile on, or never.
    let quads = [[u32::MAX, u32::MAX], [0, u32::MAX], [0, 0]];
    let all = |threads: u32| {
        quads.into_iter().flat_map(move |tiles| {
            [1, 2, 4].map(|ahead| Tuning { threads, wide_threads: threads, busy: threads, ahead, tiles })
        })
    };
    threads.flat_map(all).collect()
}
