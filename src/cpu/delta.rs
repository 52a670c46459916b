//! The gated delta rule.

use super::simd::simd;
use rayon::prelude::*;

/// What one row brings: all heads of queries, keys, log decays `[heads][k]`, values `[heads][v]`, betas `[heads]`.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub v: &'a [f32],
    pub g: &'a [f32],
    pub beta: &'a [f32],
}

/// Per head and row, in this order: `S = diag(exp(g)) S; d = beta (v - S^T k); S = S + k d^T; o = S^T q`
/// (models.md B.4, C.3 delta_rule). `rows` follow each other in one sequence, `state` is `[heads][k][v]`,
/// `out` is `[heads][rows][v]`. Heads run in parallel.
pub fn delta_rule(rows: &[Input], heads: usize, k: usize, v: usize, state: &mut [f32], out: &mut [f32]) {
    if rows.is_empty() {
        return;
    }
    let each = state.par_chunks_mut(k * v).zip(out.par_chunks_mut(rows.len() * v));
    assert_eq!(each.len(), heads);
    each.enumerate().for_each_init(
        || vec![0.0; v],
        |change, (h, (state, out))| {
            for (row, out) in rows.iter().zip(out.chunks_exact_mut(v)) {
                let key = |x: &'_ [f32], i: usize| x[h * k + i];
                change.fill(0.0);
                for (i, s) in state.chunks_exact_mut(v).enumerate() {
                    let decay = key(row.g, i).exp();
                    s.iter_mut().for_each(|s| *s *= decay);
                    (simd().axpy)(key(row.k, i), s, change);
                }
                let beta = row.beta[h];
                let values = &row.v[h * v..][..v];
                change.iter_mut().zip(values).for_each(|(d, v)| *d = beta * (v - *d));
                out.fill(0.0);
                for (i, s) in state.chunks_exact_mut(v).enumerate() {
                    (simd().axpy)(key(row.k, i), change, s);
                    (simd().axpy)(key(row.q, i), s, out);
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{bits, close, noise, on_threads};

    const HEADS: usize = 2;
    const K: usize = 7;
    const V: usize = 5;

    struct Rows {
        q: Vec<f32>,
        k: Vec<f32>,
        v: Vec<f32>,
        g: Vec<f32>,
        beta: Vec<f32>,
    }

    impl Rows {
        fn new(n: usize) -> Rows {
            let g = noise(4, n * HEADS * K).iter().map(|g| g - 1.0).collect();
            let keys = |seed| noise(seed, n * HEADS * K);
            Rows { q: keys(1), k: keys(2), v: noise(3, n * HEADS * V), g, beta: noise(5, n * HEADS) }
        }

        fn get(&self, range: std::ops::Range<usize>) -> Vec<Input<'_>> {
            let part = |x: &'static str, n: usize, r: usize| {
                let all = match x {
                    "q" => &self.q,
                    "k" => &self.k,
                    "v" => &self.v,
                    "g" => &self.g,
                    _ => &self.beta,
                };
                &all[r * HEADS * n..][..HEADS * n]
            };
            let of = |r| Input {
                q: part("q", K, r),
                k: part("k", K, r),
                v: part("v", V, r),
                g: part("g", K, r),
                beta: part("beta", 1, r),
            };
            range.map(of).collect()
        }
    }

    /// The equations in f64, `[rows][heads][v]`.
    fn reference(rows: &[Input], state: &mut [f64]) -> Vec<f32> {
        let mut out = vec![];
        for row in rows {
            for h in 0..HEADS {
                let s = &mut state[h * K * V..][..K * V];
                let at = |x: &[f32], i: usize| f64::from(x[h * K + i]);
                (0..K * V).for_each(|i| s[i] *= at(row.g, i / V).exp());
                let read = |s: &[f64], x: &[f32], j: usize| (0..K).map(|i| s[i * V + j] * at(x, i)).sum::<f64>();
                let d: Vec<f64> = (0..V)
                    .map(|j| f64::from(row.beta[h]) * (f64::from(row.v[h * V + j]) - read(s, row.k, j)))
                    .collect();
                (0..K * V).for_each(|i| s[i] += at(row.k, i / V) * d[i % V]);
                out.extend((0..V).map(|j| read(s, row.q, j) as f32));
            }
        }
        out
    }

    #[test]
    fn follows_the_equations() {
        let rows = Rows::new(6);
        let inputs = rows.get(0..6);
        let start = noise(9, HEADS * K * V);
        let got = on_threads(|| {
            let (mut state, mut out) = (start.clone(), vec![0.0; 6 * HEADS * V]);
            delta_rule(&inputs, HEADS, K, V, &mut state, &mut out);
            out
        });
        let mut state: Vec<f64> = start.iter().map(|s| f64::from(*s)).collect();
        let want = reference(&inputs, &mut state);
        for h in 0..HEADS {
            let want: Vec<f32> = want.chunks(V).skip(h).step_by(HEADS).flatten().copied().collect();
            close(&got[h * 6 * V..][..6 * V], &want, 1e-5);
        }
    }

    #[test]
    fn chunks_give_the_bits_of_one_step() {
        let rows = Rows::new(5);
        let run = |cuts: &[usize]| {
            let (mut state, mut last) = (noise(9, HEADS * K * V), vec![]);
            for pair in cuts.windows(2) {
                let n = pair[1] - pair[0];
                last = vec![0.0; n * HEADS * V];
                delta_rule(&rows.get(pair[0]..pair[1]), HEADS, K, V, &mut state, &mut last);
                last = last[(n - 1) * V..n * V].to_vec();
            }
            (bits(&state), bits(&last))
        };
        assert_eq!(run(&[0, 5]), run(&[0, 1, 2, 3, 4, 5]));
    }
}
