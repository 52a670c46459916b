//! Products of stored matrices with rows of values: dense, grouped, per expert.
//!
//! A weight row is decoded once per call into a buffer of the thread and meets every input row while it
//! lies in the first-level cache. Work is cut into blocks of output rows over all jobs of a call, so a call
//! with many small matrices (experts) fills the threads as well as one with a large matrix.

use super::simd::simd;
use crate::formats::{Format, View};
use rayon::prelude::*;
use std::cell::RefCell;

/// Rows `first..` of a matrix and the input rows that they meet, `w.cols` values each.
pub struct Job<'a> {
    pub w: View<'a>,
    pub first: usize,
    pub x: Vec<&'a [f32]>,
}

/// How an inner product is accumulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// In f32, see [`simd`](super::simd).
    F32,
    /// In f64, rounded once: where a choice depends on the result.
    F64,
}

/// Output rows per task.
const BLOCK: usize = 16;
/// Weight rows that meet an input row together.
const QUAD: usize = 4;

thread_local! {
    static DECODED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

struct Task<'a> {
    job: usize,
    /// First output of the block.
    at: usize,
    /// `[input row][output of the block]`.
    part: &'a mut [f32],
}

/// Multiplies each job's matrix rows with each of its input rows. `out` consists of chunks of `outs` values,
/// and chunk `c` receives the product of job `j` and its input row `i`, where `(j, i) = place(c)`.
pub fn matmul(jobs: &[Job], outs: usize, sum: Sum, place: impl Fn(usize) -> (usize, usize) + Sync, out: &mut [f32]) {
    if out.is_empty() {
        return;
    }
    assert_eq!(out.len(), outs * jobs.iter().map(|j| j.x.len()).sum::<usize>());
    if let [Job { x, .. }] = jobs
        && x.len() == 1
    {
        // The parts of a single product lie in `out` as they should.
        return blocks(jobs, outs, out).into_par_iter().for_each(|t| run(&jobs[t.job], t.at, t.part, sum));
    }
    let mut parts = vec![0.0; out.len()];
    blocks(jobs, outs, &mut parts).into_par_iter().for_each(|t| run(&jobs[t.job], t.at, t.part, sum));
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

fn blocks<'a>(jobs: &[Job], outs: usize, mut buffer: &'a mut [f32]) -> Vec<Task<'a>> {
    let mut tasks = vec![];
    for (job, j) in jobs.iter().enumerate().filter(|(_, j)| !j.x.is_empty()) {
        for at in (0..outs).step_by(BLOCK) {
            let (part, rest) = buffer.split_at_mut(BLOCK.min(outs - at) * j.x.len());
            buffer = rest;
            tasks.push(Task { job, at, part });
        }
    }
    tasks
}

fn run(job: &Job, at: usize, part: &mut [f32], sum: Sum) {
    if let ([x], Sum::F32, Format::Bf16) = (&job.x[..], sum, job.w.format) {
        return in_place(job, at, x, part);
    }
    let width = part.len() / job.x.len();
    DECODED.with_borrow_mut(|buffer| {
        for q in (0..width).step_by(QUAD) {
            let count = QUAD.min(width - q);
            let w = quad(&job.w, job.first + at + q, count, buffer);
            for (x, part) in job.x.iter().zip(part.chunks_exact_mut(width)) {
                let y = match sum {
                    Sum::F32 => (simd().dot4)(x, w),
                    Sum::F64 => w.map(|w| (simd().dot64)(w, x) as f32),
                };
                part[q..q + count].copy_from_slice(&y[..count]);
            }
        }
    });
}

/// One input row against bf16 as it is stored: with no second row to use them, decoded values would only be
/// written and read again. The bits are those of `run`.
fn in_place(job: &Job, at: usize, x: &[f32], part: &mut [f32]) {
    let stride = 2 * job.w.cols;
    let rows = job.w.data[(job.first + at) * stride..].chunks_exact(stride);
    part.iter_mut().zip(rows).for_each(|(y, w)| *y = (simd().dot_bf16)(w, x));
}

/// Rows `first..first + count` of the matrix; the last one stands in for those that are missing.
fn quad<'b>(w: &View<'b>, first: usize, count: usize, buffer: &'b mut Vec<f32>) -> [&'b [f32]; QUAD] {
    if let Some(values) = plain(w, first, count) {
        return std::array::from_fn(|k| &values[k.min(count - 1) * w.cols..][..w.cols]);
    }
    if buffer.len() < QUAD * w.cols {
        buffer.resize(QUAD * w.cols, 0.0);
    }
    for k in 0..count {
        w.decode_row(first + k, &mut buffer[k * w.cols..][..w.cols]);
    }
    let buffer: &[f32] = buffer;
    std::array::from_fn(|k| &buffer[k.min(count - 1) * w.cols..][..w.cols])
}

/// The rows as they are stored, if that is f32 in the processor's byte order at an aligned address.
fn plain<'b>(w: &View<'b>, first: usize, count: usize) -> Option<&'b [f32]> {
    if w.format != Format::F32 || cfg!(target_endian = "big") {
        return None;
    }
    let stride = w.cols * 4;
    bytemuck::try_cast_slice(&w.data[first * stride..(first + count) * stride]).ok()
}

/// `y[o] = sum_i W[o,i] x[i] + bias[o]` for each input row (models.md C.1 linear).
/// `x` is a list of rows of `w.cols`, `out` is `[rows][w.rows]`.
pub fn linear(x: Vec<&[f32]>, w: View, bias: Option<&[f32]>, sum: Sum, out: &mut [f32]) {
    matmul(&[Job { w, first: 0, x }], w.rows, sum, |c| (0, c), out);
    if let Some(bias) = bias {
        out.chunks_exact_mut(w.rows).for_each(|y| y.iter_mut().zip(bias).for_each(|(y, b)| *y += b));
    }
}

/// `y[g,o] = sum_i W[g*stride + o, i] x[g,i]` for `o` in `rows`: group `g` of the input meets some of the
/// `stride` matrix rows of its group. All of them are models.md C.1 linear_grouped, the value rows of each
/// head C.4 mla_expand_v. `x` is `[rows][groups][w.cols]`, `w` is `[groups * stride, w.cols]`, `out` is
/// `[rows][groups][len of rows]`.
pub fn linear_grouped(x: &[f32], w: View, groups: usize, rows: std::ops::Range<usize>, out: &mut [f32]) {
    let (stride, outs) = (w.rows / groups, rows.len());
    let of = |g: usize| x.chunks_exact(w.cols).skip(g).step_by(groups).collect();
    let jobs: Vec<Job> = (0..groups).map(|g| Job { w, first: g * stride + rows.start, x: of(g) }).collect();
    matmul(&jobs, outs, Sum::F32, |c| (c % groups, c / groups), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Stored, bits, close, noise, on_threads, product};

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
        linear_grouped(&x, w.view(), 2, 1..3, &mut out);
        let decoded = crate::cpu::decode(w.view());
        for (c, got) in out.chunks(2).enumerate() {
            let first = (c % 2 * 3 + 1) * 7;
            close(got, &product(&decoded[first..first + 14], &x[c * 7..][..7]), 1e-6);
        }
    }

    #[test]
    fn no_rows_and_jobs_without_rows() {
        let w = Stored::new(&noise(1, 14), 7, false);
        linear(vec![], w.view(), None, Sum::F32, &mut []);
        let x = noise(2, 7);
        let jobs = [Job { w: w.view(), first: 0, x: vec![] }, Job { w: w.view(), first: 1, x: vec![&x] }];
        let mut out = vec![0.0; 1];
        matmul(&jobs, 1, Sum::F32, |_| (1, 0), &mut out);
        close(&out, &product(&crate::cpu::decode(w.view())[7..], &x), 1e-6);
    }
}
