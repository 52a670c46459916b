//! Products of stored matrices with rows of values: dense, grouped, per expert.
//!
//! Work is cut into blocks of output rows over all jobs of a call, so a call with many small matrices (experts)
//! fills the threads as well as one with a large matrix. A block meets its inputs in one of two ways:
//!
//! - by the kernels of [`gemv`](super::gemv), 16 outputs at a time. Inputs are prepared once per call, however many
//!   matrices they meet.
//! - by inner products with decoded rows where those do not apply: sums in f64 and int4 groups that are no multiple
//!   of 16.

use super::gemv::{Input, kernels};
use super::simd::simd;
use crate::formats::activation::Activations;
use crate::formats::layout::TILE;
use crate::formats::{Format, Matrix};
use rayon::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;

/// Rows `first..` of a matrix and the input rows that they meet, as many values each as the matrix has columns.
pub struct Job<'a> {
    pub w: Matrix<'a>,
    pub first: usize,
    pub x: Vec<&'a [f32]>,
}

/// How an inner product is accumulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// In f32, see [`simd`](super::simd) and [`gemv`](super::gemv).
    F32,
    /// As [`Sum::F32`], but where weights are integer codes the inputs are taken as int8
    /// ([`gemv::input`](super::gemv::input)).
    Int8,
    /// In f64, rounded once: where a choice depends on the result.
    F64,
}

impl From<Activations> for Sum {
    fn from(activations: Activations) -> Self {
        match activations {
            Activations::F32 => Sum::F32,
            Activations::Int8 => Sum::Int8,
        }
    }
}

/// Output rows per task: a tile.
const BLOCK: usize = TILE;
/// Input rows that the kernels of a task multiply with at most: so many prepared rows stay in the second-level cache
/// from one tile to the next.
const ROWS: usize = 16;
/// Weight rows that meet an input row together.
const QUAD: usize = 4;

thread_local! {
    static DECODED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

struct Task<'a> {
    job: usize,
    /// First output of the block.
    at: usize,
    /// First of the job's input rows.
    row: usize,
    /// `[input row][output of the block]`.
    part: &'a mut [f32],
}

/// The inputs of a call that kernels take, each prepared once.
struct Prepared {
    inputs: Vec<Input>,
    /// For each job its inputs' numbers; `None` where kernels do not apply.
    of: Vec<Option<Vec<usize>>>,
}

impl Prepared {
    fn new(jobs: &[Job], sum: Sum) -> Prepared {
        // Rows of one address and length are one row; formats of equal forms share what is prepared.
        let mut known = HashMap::new();
        let mut rows: Vec<(&[f32], Format, Activations)> = vec![];
        let mut of = vec![];
        for job in jobs {
            let Some(activations) = activations(&job.w, sum) else {
                of.push(None);
                continue;
            };
            let form = super::gemv::input::form(job.w.format(), job.w.cols(), activations);
            let mut numbers = vec![];
            for x in &job.x {
                numbers.push(*known.entry((x.as_ptr(), x.len(), form)).or_insert_with(|| {
                    rows.push((*x, job.w.format(), activations));
                    rows.len() - 1
                }));
            }
            of.push(Some(numbers));
        }
        let make = |(x, format, a): &(&[f32], Format, Activations)| kernels().input(x, *format, *a);
        // `activations` has found a form for every one of them.
        let inputs = match rows.len() {
            1 => rows.iter().filter_map(make).collect(),
            _ => rows.par_iter().filter_map(make).collect(),
        };
        Prepared { inputs, of }
    }
}

/// What the kernels would take inputs as; `None` where they do not apply.
fn activations(w: &Matrix, sum: Sum) -> Option<Activations> {
    let takes = |a| super::gemv::input::form(w.format(), w.cols(), a).is_some();
    let wanted: &[Activations] = match sum {
        Sum::F64 => &[],
        Sum::F32 => &[Activations::F32],
        Sum::Int8 => &[Activations::Int8, Activations::F32],
    };
    wanted.iter().copied().find(|a| takes(*a))
}

/// Multiplies each job's matrix rows with each of its input rows. `out` consists of chunks of `outs` values,
/// and chunk `c` receives the product of job `j` and its input row `i`, where `(j, i) = place(c)`.
pub fn matmul(jobs: &[Job], outs: usize, sum: Sum, place: impl Fn(usize) -> (usize, usize) + Sync, out: &mut [f32]) {
    if out.is_empty() {
        return;
    }
    assert_eq!(out.len(), outs * jobs.iter().map(|j| j.x.len()).sum::<usize>());
    let prepared = Prepared::new(jobs, sum);
    let run = |t: Task| match &prepared.of[t.job] {
        Some(inputs) => tiles(&jobs[t.job], outs, &prepared.inputs, &inputs[t.row..], t),
        None => decoded(&jobs[t.job], t.at, t.part, sum),
    };
    if let [Job { x, .. }] = jobs
        && x.len() == 1
    {
        // The parts of a single product lie in `out` as they should.
        return blocks(jobs, outs, &prepared, out).into_par_iter().for_each(run);
    }
    let mut parts = vec![0.0; out.len()];
    blocks(jobs, outs, &prepared, &mut parts).into_par_iter().for_each(run);
    let starts: Vec<usize> = jobs.iter().scan(0, |at, j| Some(std::mem::replace(at, *at + j.x.len() * outs))).collect();
    out.par_chunks_mut(outs).enumerate().for_each(|(c, out)| {
        let (j, i) = place(c);
        let rows = jobs[j].x.len();
        for (b, out) in out.chunks_mut(BLOCK).enumerate() {
            let width = out.len();
            out.copy_from_slice(&parts[starts[j] + b * BLOCK * rows + i * width..][..width]);
        }
    });
}

/// The tasks of a call. Few rows at a time meet all weights, not all rows the weights of a tile; rows that are decoded
/// for inner products meet them all.
fn blocks<'a>(jobs: &[Job], outs: usize, prepared: &Prepared, mut buffer: &'a mut [f32]) -> Vec<Task<'a>> {
    let mut tasks = vec![];
    for (job, j) in jobs.iter().enumerate().filter(|(_, j)| !j.x.is_empty()) {
        let rows = if prepared.of[job].is_some() { ROWS } else { j.x.len() };
        for at in (0..outs).step_by(BLOCK) {
            let width = BLOCK.min(outs - at);
            let (part, rest) = buffer.split_at_mut(width * j.x.len());
            buffer = rest;
            let parts = part.chunks_mut(width * rows).enumerate();
            tasks.extend(parts.map(|(i, part)| Task { job, at, row: i * rows, part }));
        }
    }
    tasks.sort_by_key(|t| (t.job, t.row));
    tasks
}

/// A block by the kernels. It meets two tiles of the engine layout where the job starts inside of one.
fn tiles(job: &Job, outs: usize, inputs: &[Input], numbers: &[usize], task: Task) {
    let width = BLOCK.min(outs - task.at);
    let x: Vec<&Input> = numbers.iter().take(task.part.len() / width).map(|n| &inputs[*n]).collect();
    let first = job.first + task.at;
    let mut lines = vec![[0.0; TILE]; x.len()];
    let mut done = 0;
    while done < width {
        let row = first + done;
        let skip = if matches!(job.w, Matrix::Tiles(_)) { row % TILE } else { 0 };
        kernels().tile(&job.w, row - skip, &x, &mut lines);
        let count = (TILE - skip).min(width - done);
        for (line, part) in lines.iter().zip(task.part.chunks_exact_mut(width)) {
            part[done..done + count].copy_from_slice(&line[skip..skip + count]);
        }
        done += count;
    }
}

/// A block by inner products with decoded rows.
fn decoded(job: &Job, at: usize, part: &mut [f32], sum: Sum) {
    let width = part.len() / job.x.len();
    DECODED.with_borrow_mut(|buffer| {
        for q in (0..width).step_by(QUAD) {
            let count = QUAD.min(width - q);
            let w = quad(&job.w, job.first + at + q, count, buffer);
            for (x, part) in job.x.iter().zip(part.chunks_exact_mut(width)) {
                let y = match sum {
                    Sum::F32 | Sum::Int8 => (simd().dot4)(x, w),
                    Sum::F64 => w.map(|w| (simd().dot64)(w, x) as f32),
                };
                part[q..q + count].copy_from_slice(&y[..count]);
            }
        }
    });
}

/// Rows `first..first + count` of the matrix; the last one stands in for those that are missing.
fn quad<'b>(w: &Matrix<'b>, first: usize, count: usize, buffer: &'b mut Vec<f32>) -> [&'b [f32]; QUAD] {
    let cols = w.cols();
    if let Some(values) = plain(w, first, count) {
        return std::array::from_fn(|k| &values[k.min(count - 1) * cols..][..cols]);
    }
    if buffer.len() < QUAD * cols {
        buffer.resize(QUAD * cols, 0.0);
    }
    for k in 0..count {
        w.decode_row(first + k, &mut buffer[k * cols..][..cols]);
    }
    let buffer: &[f32] = buffer;
    std::array::from_fn(|k| &buffer[k.min(count - 1) * cols..][..cols])
}

/// The rows as they are stored, if that is f32 in the processor's byte order at an aligned address.
fn plain<'b>(w: &Matrix<'b>, first: usize, count: usize) -> Option<&'b [f32]> {
    let Matrix::Rows(w) = w else { return None };
    if w.format != Format::F32 || cfg!(target_endian = "big") {
        return None;
    }
    let stride = w.cols * 4;
    bytemuck::try_cast_slice(&w.data[first * stride..(first + count) * stride]).ok()
}

/// `y[o] = sum_i W[o,i] x[i] + bias[o]` for each input row (models.md C.1 linear).
/// `x` is a list of rows of as many values as `w` has columns, `out` is `[rows][rows of w]`.
pub fn linear<'a>(x: Vec<&'a [f32]>, w: impl Into<Matrix<'a>>, bias: Option<&[f32]>, sum: Sum, out: &mut [f32]) {
    let w = w.into();
    matmul(&[Job { w, first: 0, x }], w.rows(), sum, |c| (0, c), out);
    if let Some(bias) = bias {
        out.chunks_exact_mut(w.rows()).for_each(|y| y.iter_mut().zip(bias).for_each(|(y, b)| *y += b));
    }
}

/// `y[g,o] = sum_i W[g*stride + o, i] x[g,i]` for `o` in `rows`: group `g` of the input meets some of the
/// `stride` matrix rows of its group. All of them are models.md C.1 linear_grouped, the value rows of each
/// head C.4 mla_expand_v. `x` is `[rows][groups][cols]`, `w` is `[groups * stride, cols]`, `out` is
/// `[rows][groups][len of rows]`.
pub fn linear_grouped<'a>(
    x: &'a [f32],
    w: impl Into<Matrix<'a>>,
    groups: usize,
    rows: std::ops::Range<usize>,
    sum: Sum,
    out: &mut [f32],
) {
    let w = w.into();
    let (stride, outs) = (w.rows() / groups, rows.len());
    let of = |g: usize| x.chunks_exact(w.cols()).skip(g).step_by(groups).collect();
    let jobs: Vec<Job> = (0..groups).map(|g| Job { w, first: g * stride + rows.start, x: of(g) }).collect();
    matmul(&jobs, outs, sum, |c| (c % groups, c / groups), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Stored, bits, close, noise, on_threads, product};
    use crate::formats::View;

    #[test]
    fn linear_of_odd_sizes() {
        for (rows, inp, outs) in [(1, 1, 1), (3, 7, 5), (2, 63, 17), (5, 65, 33), (1, 65, 66)] {
            let (x, w, bias) = (noise(1, rows * inp), noise(2, outs * inp), noise(3, outs));
            for odd in [false, true] {
                let stored = Stored::new(&w, inp, odd);
                for sum in [Sum::F32, Sum::F64] {
                    let got = on_threads(|| {
                        let mut out = vec![0.0; rows * outs];
                        linear(x.chunks(inp).collect(), stored.view(), Some(&bias), sum, &mut out);
                        out
                    });
                    for (got, x) in got.chunks(outs).zip(x.chunks(inp)) {
                        let want: Vec<f32> = product(&w, x).iter().zip(&bias).map(|(y, b)| y + b).collect();
                        close(got, &want, 1e-6);
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_alone_has_the_bits_it_has_among_others() {
        let (rows, inp, outs) = (6, 131, 37);
        let (x, w) = (noise(1, rows * inp), noise(2, outs * inp));
        let stored = Stored::new(&w, inp, true);
        let product = |x: Vec<&[f32]>| {
            let mut out = vec![0.0; x.len() * outs];
            linear(x, stored.view(), None, Sum::F32, &mut out);
            out
        };
        let all = product(x.chunks(inp).collect());
        for (x, want) in x.chunks(inp).zip(all.chunks(outs)) {
            assert_eq!(bits(&product(vec![x])), bits(want));
        }
    }

    #[test]
    fn bf16_alone_and_among_others() {
        let values: Vec<half::bf16> = noise(1, 5 * 63).into_iter().map(half::bf16::from_f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let w = View::new(Format::Bf16, 5, 63, &bytes, &[]).unwrap();
        let x = noise(2, 3 * 63);
        let run = |x: &[f32]| {
            let mut out = vec![0.0; x.len() / 63 * 5];
            linear(x.chunks(63).collect(), w, None, Sum::F32, &mut out);
            out
        };
        let all = run(&x);
        for (x, want) in x.chunks(63).zip(all.chunks(5)) {
            assert_eq!(bits(&run(x)), bits(want));
            close(want, &product(&crate::cpu::decode(w), x), 1e-6);
        }
    }

    #[test]
    fn quantised_rows_are_decoded() {
        // int8-row: codes times a scale per row.
        let codes: Vec<u8> = (0..5 * 9).map(|i| (i * 37 % 251) as u8).collect();
        let scales: Vec<u8> = (1..6).flat_map(|i| (i as f32 * 0.25).to_le_bytes()).collect();
        let w = View::new(Format::Int8Row, 5, 9, &codes, &scales).unwrap();
        let x = noise(4, 18);
        let mut out = vec![0.0; 10];
        linear(x.chunks(9).collect(), w, None, Sum::F32, &mut out);
        let decoded = crate::cpu::decode(w);
        for (got, x) in out.chunks(5).zip(x.chunks(9)) {
            close(got, &product(&decoded, x), 1e-6);
        }
    }

    #[test]
    fn groups_meet_their_rows_only() {
        // Two groups of three rows, of which rows 1..3 are used.
        let w = Stored::new(&noise(1, 6 * 7), 7, false);
        let x = noise(2, 2 * 2 * 7);
        let mut out = vec![0.0; 2 * 2 * 2];
        linear_grouped(&x, w.view(), 2, 1..3, Sum::F32, &mut out);
        let decoded = crate::cpu::decode(w.view());
        for (c, got) in out.chunks(2).enumerate() {
            let first = (c % 2 * 3 + 1) * 7;
            close(got, &product(&decoded[first..first + 14], &x[c * 7..][..7]), 1e-6);
        }
    }

    #[test]
    fn engine_layout_from_any_row_and_many_inputs() {
        use crate::formats::layout::{Tiled, tile};
        let encoded = crate::formats::encode(Format::Mxfp4, 96, &noise(1, 50 * 96)).unwrap();
        let view = encoded.view(Format::Mxfp4, 50, 96).unwrap();
        let bytes = tile(&view).unwrap();
        let tiles = Tiled::new(Format::Mxfp4, 50, 96, &bytes).unwrap();
        let x = noise(2, 37 * 96);
        for (first, outs) in [(0, 50), (5, 40), (17, 16), (31, 1)] {
            for sum in [Sum::F32, Sum::Int8] {
                let run = |w: Matrix| {
                    let mut out = vec![0.0; 37 * outs];
                    matmul(&[Job { w, first, x: x.chunks(96).collect() }], outs, sum, |c| (0, c), &mut out);
                    out
                };
                let got = on_threads(|| run(tiles.into()));
                assert_eq!(bits(&got), bits(&run(view.into())), "{first} {outs} {sum:?}");
                let decoded = crate::cpu::decode(view);
                // One output may be next to nothing, so all of them together.
                let want: Vec<f32> =
                    x.chunks(96).flat_map(|x| product(&decoded[first * 96..][..outs * 96], x)).collect();
                close(&got, &want, if sum == Sum::F32 { 1e-6 } else { 2e-2 });
            }
        }
    }

    /// The bytes of one row, as a matrix.
    fn alone<'a>(w: &View<'a>, row: usize) -> View<'a> {
        let cols = w.cols as u64;
        let (stride, line) = (w.format.row_bytes(cols) as usize, w.format.scale_bytes(1, cols) as usize);
        let at = match w.format {
            Format::Fp8Block { .. } => row / 128,
            // A tag of the whole matrix.
            Format::E8 => 0,
            _ => row,
        };
        View::new(w.format, 1, w.cols, &w.data[row * stride..][..stride], &w.scales[at * line..][..line]).unwrap()
    }

    /// More rows than 16 bits count, as vocabularies have: the last ones have the bits they have alone.
    #[test]
    fn rows_beyond_65535() {
        use crate::formats::layout::{Tiled, tile};
        use crate::formats::tests::{Random, coded, random_codes};
        use crate::formats::{BlockScale, encode};
        const ROWS: usize = 65_600;
        let (mut random, values) = (Random(8), noise(4, ROWS * 64));
        let floats = [Format::F32, Format::F16, Format::Bf16, Format::Fp8Block { scale: BlockScale::F32 }].into_iter();
        for format in coded().into_iter().chain(floats) {
            let cols = if format == Format::E8 { 256 } else { 64 };
            let bytes = match coded().contains(&format) {
                true => random_codes(format, ROWS, cols, &mut random),
                false => encode(format, cols, &values).unwrap(),
            };
            let view = View::new(format, ROWS, cols, &bytes.data, &bytes.scales).unwrap();
            let tiles = tile(&view).unwrap();
            let x = noise(5, cols);
            for w in [Matrix::from(view), Tiled::new(format, ROWS, cols, &tiles).unwrap().into()] {
                for sum in [Sum::F32, Sum::Int8, Sum::F64] {
                    let mut y = vec![0.0; ROWS];
                    linear(vec![&x], w, None, sum, &mut y);
                    for row in [0, 15, 65_535, 65_536, 65_537, ROWS - 1] {
                        let own = tile(&alone(&view, row)).unwrap();
                        let own = match w {
                            Matrix::Rows(_) => Matrix::from(alone(&view, row)),
                            Matrix::Tiles(_) => Tiled::new(format, 1, cols, &own).unwrap().into(),
                        };
                        let mut want = [0.0];
                        linear(vec![&x], own, None, sum, &mut want);
                        assert_eq!(y[row].to_bits(), want[0].to_bits(), "{format} {sum:?} row {row}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_rows_and_jobs_without_rows() {
        let w = Stored::new(&noise(1, 14), 7, false);
        linear(vec![], w.view(), None, Sum::F32, &mut []);
        let x = noise(2, 7);
        let jobs = [Job { w: w.view().into(), first: 0, x: vec![] }, Job { w: w.view().into(), first: 1, x: vec![&x] }];
        let mut out = vec![0.0; 1];
        matmul(&jobs, 1, Sum::F32, |_| (1, 0), &mut out);
        close(&out, &product(&crate::cpu::decode(w.view())[7..], &x), 1e-6);
    }
}
