//! `coli bench kernels --device vulkan`: the decode kernels of a device, one matrix after another.

use super::bench_layers::stored;
use super::failure::Failure;
use crate::formats::Format;
use crate::graph::{Graph, Role, expand};
use crate::plan::{Shape, Tuning};
use crate::run::cpu::bench::Timing;
use crate::run::vulkan::DECODE_ROWS;
use crate::run::vulkan::bench::{Bench, Random, StepTime, WARM_UP};
use crate::spec::{Arch, Config, Source};
use crate::vk;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// How much work a measurement is.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Bytes of weights that a run goes through, so that no cache holds them.
    pub pool: u64,
    /// How long steps run before the first that counts.
    pub warm_up: Duration,
    /// Steps that count.
    pub steps: usize,
}

impl Effort {
    /// Where nobody waits.
    pub const FULL: Self = Self { pool: 512 << 20, warm_up: WARM_UP, steps: 11 };

    /// Matrices of one size in a run; at least two, since they go to and fro.
    pub fn matrices(&self, format: Format, [m, k]: [usize; 2]) -> usize {
        self.pool.div_ceil(format.bytes(m as u64, k as u64).max(1)).clamp(2, 160) as usize
    }
}

/// Products of `rows` rows with `m` x `k` matrices, each behind a barrier. Experts, the only ones stored as E8, have two
/// such matrices in one pass: the outputs of both come with the time.
pub fn time(
    device: &vk::Device,
    format: Format,
    [m, k]: [usize; 2],
    rows: u32,
    read_gbps: f64,
    effort: Effort,
    tuning: Tuning,
) -> Result<(Timing, usize), Failure> {
    if rows > DECODE_ROWS {
        return Err(Failure::Usage(format!("--rows {rows}: the decode kernels of a device take {DECODE_ROWS}")));
    }
    let count = effort.matrices(format, [m, k]);
    let experts = format == Format::E8;
    let graph = Arc::new(chain(experts, [m, k], count)?);
    let formats = |w| stored(&graph, w, format);
    let random = Random::new(&graph, &formats)?;
    let shape = Shape { tuning, ..Shape::new(rows, DECODE_ROWS) };
    let mut bench = Bench::new(device.clone(), &graph, &random, &[], (Role::Decode, shape), true)?;
    bench.warm_up(rows, 0, effort.warm_up)?;
    let mut times = vec![];
    for _ in 0..effort.steps {
        let StepTime { passes, .. } = bench.step(rows, 0)?;
        let tested = |name: &str, kind: &str| name.starts_with("t.y") && (!experts || kind.starts_with("experts_up"));
        times.extend(passes.iter().filter(|p| tested(&p.name, &p.kind)).map(|p| p.us));
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((share * (times.len() - 1) as f64) as usize).copied().unwrap_or(0.0);
    let (us, outputs) = (at(0.5), if experts { 2 * m } else { m });
    let gbps = format.bytes(outputs as u64, k as u64) as f64 / us.max(1e-3) / 1e3;
    let gweights = (outputs * k) as f64 / us.max(1e-3) / 1e3;
    let timing = Timing { us, spread: [at(0.1), at(0.9)], gbps, gweights, share: gbps / read_gbps, read_gbps };
    Ok((timing, outputs))
}

/// Matrices that go from `k` to `m` channels and back, in turns; the first kind is named y.
fn chain(experts: bool, [m, k]: [usize; 2], count: usize) -> Result<Graph, Failure> {
    let mut body = format!("x0: EmbedRow(of: tokens, w: \"e\", rows: \"8\", out: \"{k}\"),");
    if experts {
        // One of one expert; its input is the same for all.
        body +=
            "z: RouterLogits(of: x0, w: \"r\", experts: \"1\"), route: RouterTopk(of: z, k: \"1\", score: softmax),";
    }
    for i in 0..count {
        let next = i + 1;
        let _ = match experts {
            true => write!(
                body,
                "y{i}: MoeExperts(of: x{i}, route: route, ff: \"{m}\", kind: silu, gate: \"g{i}.{{e}}\", up: \"u{i}.{{e}}\", \
                 down: \"d{i}.{{e}}\"), x{next}: View(of: y{i}, shape: [\"{k}\"]),"
            ),
            false => write!(
                body,
                "y{i}: Linear(of: x{i}, w: \"w{i}\", out: \"{m}\"), x{next}: Linear(of: y{i}, w: \"v{i}\", out: \"{k}\"),"
            ),
        };
    }
    let text = format!(
        "Arch(model_type: [\"bench\"], config: {{}}, state: {{}}, blocks: {{ t: {{ {body} logits: LmHead(of: x{count}, w: \"h\", \
         out: \"8\") }} }}, programs: {{ main: [t] }})"
    );
    let arch = Arch::parse(Source::new("bench.ron", text)).map_err(|e| Failure::Usage(e.to_string()))?;
    let config =
        Config::parse("config.json", b"{\"model_type\": \"bench\"}").map_err(|e| Failure::Model(e.to_string()))?;
    Ok(expand(&arch, &config, "main")?)
}
