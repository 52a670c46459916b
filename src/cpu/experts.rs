//! The chosen experts' gated MLPs.

use super::GRAIN;
use super::elementwise::{Glu, glu};
use super::matmul::{Job, Sum, matmul};
use crate::formats::Matrix;
use crate::formats::rotation::Rotation;
use rayon::prelude::*;

/// Which experts each row visits, best first.
#[derive(Debug, Clone, Copy)]
pub struct Visits<'a> {
    /// `[rows][k]`, below the number of experts.
    pub ids: &'a [u32],
    /// `[rows][k]`
    pub weights: &'a [f32],
    pub k: usize,
}

/// An expert's matrices.
#[derive(Debug, Clone, Copy)]
pub struct Expert<'a> {
    /// `[ff, I]`
    pub gate: Matrix<'a>,
    /// `[ff, I]`
    pub up: Matrix<'a>,
    /// `[out, ff]`
    pub down: Matrix<'a>,
}

/// The visits of one expert: positions in `ids`.
struct Union {
    expert: u32,
    visits: Vec<usize>,
}

fn unions(ids: &[u32]) -> Vec<Union> {
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by_key(|v| ids[*v]);
    let same = order.chunk_by(|a, b| ids[*a] == ids[*b]);
    same.map(|visits| Union { expert: ids[visits[0]], visits: visits.to_vec() }).collect()
}

/// Rows of values, and the same rows rotated if there are matrices that hold rotated weights (formats.md 6.5).
struct Inputs<'a> {
    plain: &'a [f32],
    rotated: Vec<f32>,
    width: usize,
}

impl<'a> Inputs<'a> {
    fn new(plain: &'a [f32], width: usize, matrices: impl IntoIterator<Item = Matrix<'a>>) -> Inputs<'a> {
        let mut rotated = vec![];
        if matrices.into_iter().any(|w| w.format().rotates()) {
            rotated.extend_from_slice(plain);
            let rotation = Rotation::new(width);
            rotated.par_chunks_exact_mut(width).for_each(|row| rotation.forward(row));
        }
        Inputs { plain, rotated, width }
    }

    /// The rows that a matrix is multiplied with.
    fn facing(&self, w: Matrix, rows: impl Iterator<Item = usize>) -> Vec<&[f32]> {
        let all = if w.format().rotates() { &self.rotated } else { self.plain };
        rows.map(|row| &all[row * self.width..][..self.width]).collect()
    }
}

/// `y = sum_j w_j down_(e_j) glu(gate_(e_j) x, up_(e_j) x)`, j in rank order (models.md A.6, C.5 moe_experts).
///
/// Each expert's output is reduced and rounded before it is weighed, and `acc = acc + w y` runs from rank 0
/// (DESIGN 6). An expert's weights are decoded once for all its rows; a row that meets rotated weights is rotated
/// once for all its experts. `x` is `[rows][inp]`, `out` is `[rows][out]`.
pub fn moe_experts<'w>(
    x: &[f32],
    inp: usize,
    visits: Visits,
    kind: Glu,
    sum: Sum,
    expert: impl Fn(u32) -> Expert<'w>,
    out: &mut [f32],
) {
    let Visits { ids, weights, k } = visits;
    let unions = unions(ids);
    let experts: Vec<Expert> = unions.iter().map(|u| expert(u.expert)).collect();
    let Some(first) = experts.first() else { return };
    let (ff, width) = (first.gate.rows(), first.down.rows());
    // Where each visit stands: the expert's number among the unions and its place there.
    let mut at = vec![(0, 0); ids.len()];
    for (u, union) in unions.iter().enumerate() {
        union.visits.iter().enumerate().for_each(|(i, v)| at[*v] = (u, i));
    }
    let n = ids.len();
    let inputs = Inputs::new(x, inp, experts.iter().flat_map(|e| [e.gate, e.up]));
    let job = |w, u: &Union| Job { w, first: 0, x: inputs.facing(w, u.visits.iter().map(|v| v / k)) };
    let gates = experts.iter().zip(&unions).map(|(e, u)| job(e.gate, u));
    let ups = experts.iter().zip(&unions).map(|(e, u)| job(e.up, u));
    let jobs: Vec<Job> = gates.chain(ups).collect();
    let mut hidden = vec![0.0; 2 * n * ff];
    let place = |c: usize| if c < n { at[c] } else { (unions.len() + at[c - n].0, at[c - n].1) };
    matmul(&jobs, ff, sum, place, &mut hidden);
    let (g, u) = hidden.split_at(n * ff);
    let mut active = vec![0.0; n * ff];
    glu(kind, g, u, &mut active);
    let inputs = Inputs::new(&active, ff, experts.iter().map(|e| e.down));
    let job = |w, u: &Union| Job { w, first: 0, x: inputs.facing(w, u.visits.iter().copied()) };
    let jobs: Vec<Job> = experts.iter().zip(&unions).map(|(e, u)| job(e.down, u)).collect();
    let mut results = vec![0.0; n * width];
    matmul(&jobs, width, sum, |c| at[c], &mut results);
    join(&results, weights, k, width, out);
}

/// `acc = acc + w y` per row, from rank 0 on. `results` is `[rows][k][width]`, `out` is `[rows][width]`.
pub fn join(results: &[f32], weights: &[f32], k: usize, width: usize, out: &mut [f32]) {
    let rows = out.par_chunks_mut(width).zip(results.par_chunks(k * width)).zip(weights.par_chunks(k));
    rows.with_min_len((GRAIN / (k * width)).max(1)).for_each(|((out, results), weights)| {
        out.fill(0.0);
        for (y, w) in results.chunks_exact(width).zip(weights) {
            out.iter_mut().zip(y).for_each(|(acc, y)| *acc += w * y);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{Stored, bits, close, noise, on_threads, product};
    use crate::formats::{Format, View};

    const INP: usize = 7;
    const FF: usize = 65;

    struct Experts {
        raw: Vec<[Vec<f32>; 3]>,
        stored: Vec<[Stored; 3]>,
    }

    fn experts(n: u64) -> Experts {
        let raw: Vec<_> = (0..n).map(|e| [0, 1, 2].map(|m| noise(100 + 3 * e + m, FF * INP))).collect();
        let store = |m: &[Vec<f32>; 3]| {
            [Stored::new(&m[0], INP, false), Stored::new(&m[1], INP, false), Stored::new(&m[2], FF, true)]
        };
        Experts { stored: raw.iter().map(store).collect(), raw }
    }

    fn run(x: &[f32], ids: &[u32], weights: &[f32], e: &Experts) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        let of = |id: u32| {
            let [gate, up, down] = &e.stored[id as usize];
            Expert { gate: gate.view().into(), up: up.view().into(), down: down.view().into() }
        };
        moe_experts(x, INP, Visits { ids, weights, k: 2 }, Glu::Silu, Sum::F32, of, &mut out);
        out
    }

    #[test]
    fn weighed_sum_of_mlps() {
        let e = experts(4);
        let (x, ids, weights) = (noise(1, 3 * INP), [2, 0, 3, 2, 1, 2], [0.5, 0.25, 0.7, 0.1, 0.2, 0.3]);
        let got = on_threads(|| run(&x, &ids, &weights, &e));
        for (r, got) in got.chunks(INP).enumerate() {
            let mut want = [0.0; INP];
            for j in [2 * r, 2 * r + 1] {
                let [gate, up, down] = &e.raw[ids[j] as usize];
                let (g, u) = (product(gate, &x[r * INP..][..INP]), product(up, &x[r * INP..][..INP]));
                let h: Vec<f32> = g.iter().zip(&u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                want.iter_mut().zip(product(down, &h)).for_each(|(acc, y)| *acc += weights[j] * y);
            }
            close(got, &want, 1e-6);
        }
    }

    #[test]
    fn a_row_alone_has_the_bits_it_has_among_others() {
        let e = experts(3);
        let (x, ids, weights) = (noise(1, 4 * INP), [0, 1, 1, 2, 2, 1, 0, 2], noise(2, 8));
        let all = run(&x, &ids, &weights, &e);
        for r in 0..4 {
            let alone = run(&x[r * INP..][..INP], &ids[2 * r..][..2], &weights[2 * r..][..2], &e);
            assert_eq!(bits(&all[r * INP..][..INP]), bits(&alone));
        }
    }

    /// E8 blocks with random codes and signs, and the matrix that they stand for.
    fn lattice(seed: u64, rows: usize, cols: usize) -> (Vec<u8>, Vec<f32>) {
        let mut data: Vec<u8> = noise(seed, rows * cols / 256 * 98).iter().map(|v| (v * 128.0) as i8 as u8).collect();
        data.chunks_mut(98).for_each(|block| block[96..].copy_from_slice(&half::f16::from_f32(0.002).to_le_bytes()));
        let mut values = crate::cpu::decode(View::new(Format::E8, rows, cols, &data, &[0; 4]).unwrap());
        values.chunks_mut(cols).for_each(|row| Rotation::new(cols).inverse(row));
        (data, values)
    }

    #[test]
    fn rotated_weights_meet_rotated_rows() {
        let (inp, ff) = (512, 256);
        let shapes = [(ff, inp), (ff, inp), (inp, ff)];
        let parts: Vec<_> = (0..6).map(|i| lattice(i, shapes[i as usize % 3].0, shapes[i as usize % 3].1)).collect();
        let view = |i: usize| View::new(Format::E8, shapes[i % 3].0, shapes[i % 3].1, &parts[i].0, &[0; 4]).unwrap();
        let of = |e: u32| {
            let at = 3 * e as usize;
            Expert { gate: view(at).into(), up: view(at + 1).into(), down: view(at + 2).into() }
        };
        let (x, ids, weights) = (noise(1, 2 * inp), [1, 0, 0, 1], [0.5, 0.25, 0.7, 0.1]);
        let run = |x: &[f32], ids: &[u32], weights: &[f32]| {
            let mut out = vec![0.0; x.len()];
            moe_experts(x, inp, Visits { ids, weights, k: 2 }, Glu::Silu, Sum::F32, of, &mut out);
            out
        };
        let got = on_threads(|| run(&x, &ids, &weights));
        for r in 0..2 {
            let (x, at) = (&x[r * inp..][..inp], [2 * r, 2 * r + 1]);
            let mut want = vec![0.0; inp];
            for j in at {
                let [gate, up, down] = [0, 1, 2].map(|m| &parts[3 * ids[j] as usize + m].1);
                let (g, u) = (product(gate, x), product(up, x));
                let h: Vec<f32> = g.iter().zip(&u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                want.iter_mut().zip(product(down, &h)).for_each(|(acc, y)| *acc += weights[j] * y);
            }
            close(&got[r * inp..][..inp], &want, 2e-6);
            assert_eq!(bits(&run(x, &ids[at[0]..][..2], &weights[at[0]..][..2])), bits(&got[r * inp..][..inp]));
        }
    }

    #[test]
    fn ranks_are_added_in_order() {
        // 1e8 + 1 - 1e8 is 0 in f32, but 1 in another order.
        let mut out = [9.0];
        join(&[1e8, 1.0, -1e8], &[1.0, 1.0, 1.0], 3, 1, &mut out);
        assert_eq!(out, [0.0]);
        let mut out = [9.0];
        join(&[1e8, -1e8, 1.0], &[1.0, 1.0, 1.0], 3, 1, &mut out);
        assert_eq!(out, [1.0]);
    }

    #[test]
    fn no_rows() {
        run(&[], &[], &[], &experts(1));
    }
}
