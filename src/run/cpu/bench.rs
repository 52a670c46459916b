//! Times the products with stored matrices beside the memory they read from.

use crate::cpu::gemv::kernels;
use crate::cpu::matmul::{Sum, linear};
use crate::formats::activation::Activations;
use crate::formats::layout::{STAMP, Tiled, tile};
use crate::formats::{BlockScale, Format, Matrix, View, encode};
use rayon::prelude::*;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of weights that a kernel rotates over, and that the read loop reads: more than any cache holds.
pub const POOL: usize = 512 << 20;
/// Passes over the pool, each beside a pass of the read loop.
const PASSES: usize = 5;
/// Rows that are really encoded; a larger matrix repeats them.
const DISTINCT: usize = 128;

/// Work on one thread after which the others have gone to sleep: a small node's of a decode step.
const PAUSE: Duration = Duration::from_micros(200);

/// A product to time.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub format: Format,
    pub activations: Activations,
    /// The engine layout, or the row order of files.
    pub tiled: bool,
    /// Outputs.
    pub m: usize,
    /// Inputs.
    pub k: usize,
    /// Input rows.
    pub n: usize,
}

/// What came out.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Median microseconds of a call, and the middle 80 % of them.
    pub us: f64,
    pub spread: [f64; 2],
    /// 10^9 bytes of weights per second.
    pub gbps: f64,
    /// 10^9 weights per second.
    pub gweights: f64,
    /// `gbps` over the read bandwidth that was measured between the passes.
    pub share: f64,
    /// That bandwidth, median.
    pub read_gbps: f64,
}

/// Median microseconds of a product that does next to nothing.
#[derive(Debug, Clone, Copy)]
pub struct Dispatch {
    /// One call after the other.
    pub awake: f64,
    /// Calls so far apart that all threads but one sleep.
    pub asleep: f64,
}

/// The formats that are measured if none is asked for.
pub const FORMATS: [Format; 11] = [
    Format::Bf16,
    Format::F16,
    Format::F32,
    Format::Int8Row,
    Format::Int4Row,
    Format::Int4Grouped { group: 64 },
    Format::Int3G64,
    Format::Int2Row,
    Format::E8,
    Format::Mxfp4,
    Format::Fp8Block { scale: BlockScale::F32 },
];

/// Name of the layout that a case measures.
pub fn layout(case: &Case) -> &'static str {
    if case.tiled { STAMP } else { "rows" }
}

/// Whether the inputs of a format can be taken as asked for.
pub fn applies(format: Format, k: usize, activations: Activations) -> bool {
    crate::cpu::gemv::input::form(format, k, activations).is_some()
}

/// Threads and memory for measurements.
pub struct Bench {
    threads: rayon::ThreadPool,
    pool: Vec<u8>,
}

/// Reproducible values in -1..1, few of them large.
fn values(n: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next() * next() * next()).collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A matrix as it is stored: `[rows, k]` of random weights, rows repeated.
fn stored(case: &Case) -> Result<(Vec<u8>, usize), String> {
    let Case { format, m, k, .. } = *case;
    let rows = m.min(DISTINCT);
    let encoded = encode(format, k, &values(rows * k)).map_err(|e| e.to_string())?;
    let repeat = |bytes: &[u8], want: u64| bytes.iter().copied().cycle().take(want as usize).collect::<Vec<u8>>();
    let data = repeat(&encoded.data, format.data_bytes(m as u64, k as u64));
    let scales = repeat(&encoded.scales, format.scale_bytes(m as u64, k as u64));
    if !case.tiled {
        let at = data.len();
        return Ok(([data, scales].concat(), at));
    }
    let view = View::new(format, m, k, &data, &scales).map_err(|e| e.to_string())?;
    let tiles = tile(&view).ok_or_else(|| format!("{format} has no engine layout"))?;
    let at = tiles.len();
    Ok((tiles, at))
}

/// Seconds of one call on a copy, whose scales in file order start at `scales`.
fn call(case: &Case, copy: &[u8], scales: usize, x: &[f32], out: &mut [f32]) -> Result<f64, String> {
    let Case { format, m, k, tiled, .. } = *case;
    let w = match tiled {
        true => Tiled::new(format, m, k, copy).map(Matrix::Tiles),
        false => View::new(format, m, k, &copy[..scales], &copy[scales..]).map(Matrix::Rows),
    };
    let w = w.map_err(|e| e.to_string())?;
    let rows = x.chunks_exact(k).collect();
    let start = Instant::now();
    linear(rows, w, None, case.activations.into(), out);
    let time = start.elapsed().as_secs_f64();
    black_box(out);
    Ok(time)
}

impl Bench {
    /// # Errors
    /// When the threads cannot be started.
    pub fn new(threads: usize) -> Result<Bench, String> {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|e| e.to_string())?;
        Ok(Bench { threads, pool: vec![1; POOL] })
    }

    /// Seconds that the read loop takes for each piece of the pool, of as many bytes as a call of a kernel reads: what
    /// else runs on the machine then strikes both alike.
    fn read(&self, piece: usize) -> Vec<f64> {
        let time = |piece: &[u8]| {
            let share = piece.len().div_ceil(rayon::current_num_threads());
            let start = Instant::now();
            black_box(piece.par_chunks(share).map(|part| kernels().read(part)).reduce(|| 0, |a, b| a ^ b));
            start.elapsed().as_secs_f64()
        };
        self.threads.install(|| self.pool.chunks_exact(piece).map(time).collect())
    }

    /// Times a product. Each call takes the next copy of the matrix in the pool.
    ///
    /// # Errors
    /// When the format does not take the shape, or the matrix is larger than the pool.
    pub fn time(&mut self, case: &Case) -> Result<Timing, String> {
        let Case { format, m, k, n, .. } = *case;
        let (bytes, scales) = stored(case)?;
        // Copies start aligned as they would in a file of ours.
        let stride = bytes.len().next_multiple_of(4096);
        let copies = POOL / stride;
        if copies == 0 {
            return Err(format!("a {format} matrix of {m} x {k} takes more than {POOL} bytes"));
        }
        self.pool.chunks_exact_mut(stride).for_each(|copy| copy[..bytes.len()].copy_from_slice(&bytes));
        let (x, mut out) = (values(n * k), vec![0.0; n * m]);
        let (mut calls, mut reads) = (vec![], vec![]);
        for pass in 0..PASSES + 1 {
            reads.extend(self.read(stride));
            let times = self.threads.install(|| -> Result<Vec<f64>, String> {
                let copies = self.pool.chunks_exact(stride);
                copies.map(|copy| call(case, &copy[..bytes.len()], scales, &x, &mut out)).collect()
            })?;
            // The first pass warms up: pages, tables, threads.
            calls.extend(times.into_iter().filter(|_| pass > 0));
        }
        let time = median(&mut calls);
        let read_gbps = stride as f64 / median(&mut reads) / 1e9;
        let gbps = bytes.len() as f64 / time / 1e9;
        let spread = [calls[calls.len() / 10], calls[calls.len() * 9 / 10]].map(|s| s * 1e6);
        let gweights = (m * k) as f64 / time / 1e9;
        Ok(Timing { us: time * 1e6, spread, gbps, gweights, share: gbps / read_gbps, read_gbps })
    }

    /// What it costs to hand a product to the threads.
    pub fn dispatch(&self) -> Dispatch {
        Dispatch { awake: self.call(Duration::ZERO), asleep: self.call(PAUSE) }
    }

    /// Microseconds of a product that does next to nothing, after this thread alone was busy for `pause`.
    fn call(&self, pause: Duration) -> f64 {
        let (bytes, x, mut out) = (vec![0; 64 * 64], vec![1.0; 64], vec![0.0; 64]);
        let w = View {
            format: Format::Fp8Block { scale: BlockScale::F32 },
            rows: 64,
            cols: 64,
            data: &bytes,
            scales: &[0; 4],
        };
        let mut calls = self.threads.install(|| {
            let call = |_| {
                let before = Instant::now();
                while before.elapsed() < pause {
                    std::hint::spin_loop();
                }
                let start = Instant::now();
                linear(vec![&x], w, None, Sum::F32, &mut out);
                start.elapsed().as_secs_f64() * 1e6
            };
            (0..2000).map(call).collect::<Vec<f64>>()
        });
        median(&mut calls)
    }
}

/// Name of the instruction set whose kernels run.
pub fn instruction_set() -> &'static str {
    kernels().name
}
