//! Softmax attention over cached rows.

use super::simd::Element;
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// Where keys and values lie. `row` is a row of the step, `t` a row of the segment's cache.
pub trait Cache: Sync {
    /// As what they are stored.
    type Value: Element;
    /// All kv heads' keys, `[kv_heads][dim]`.
    fn key(&self, segment: usize, row: usize, t: usize) -> &[Self::Value];
    /// All kv heads' values, `[kv_heads][v_dim]`; may be longer.
    fn value(&self, segment: usize, row: usize, t: usize) -> &[Self::Value];
}

/// The rows of one segment that a row of the step looks at, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<'a> {
    /// All of these.
    All(Range<usize>),
    /// Only those of a list.
    Chosen(Cow<'a, [u32]>),
}

impl Seen<'_> {
    fn len(&self) -> usize {
        match self {
            Seen::All(range) => range.len(),
            Seen::Chosen(list) => list.len(),
        }
    }

    fn get(&self, i: usize) -> usize {
        match self {
            Seen::All(range) => range.start + i,
            Seen::Chosen(list) => list[i] as usize,
        }
    }
}

/// Sizes and factors of an attention.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    pub heads: usize,
    pub kv_heads: usize,
    pub dim: usize,
    pub v_dim: usize,
    pub scale: f32,
    /// `[heads]`, a logit per head that takes part in the denominator only.
    pub sink: Option<&'a [f32]>,
}

/// Values that are summed before they are added to the total: long contexts lose no digits.
const RUN: usize = 128;

/// `s_t = scale q_h . k_t; o_h = sum_t softmax(s)_t v_t` over all seen `t` of all segments in one softmax
/// (models.md C.4 attn, attn_latent; deepseek-v4.md 1.4). `q` is `[rows][heads][dim]`, `seen` is
/// `[rows][segments]`, `out` is `[rows][heads][v_dim]`; zeros where nothing is seen.
pub fn attention(q: &[f32], cache: &impl Cache, seen: &[Vec<Seen>], shape: Shape, out: &mut [f32]) {
    assert_eq!(q.len(), seen.len() * shape.heads * shape.dim);
    let each = q.par_chunks(shape.dim).zip(out.par_chunks_mut(shape.v_dim)).enumerate();
    each.for_each_init(Scratch::default, |scratch, (i, (q, out))| {
        let (row, head) = (i / shape.heads, i % shape.heads);
        let place = Place { cache, row, head: head / (shape.heads / shape.kv_heads) };
        place.scores(q, &seen[row], shape, &mut scratch.scores);
        let total = softmax(&mut scratch.scores, shape.sink.map(|s| s[head]));
        scratch.run.resize(shape.v_dim, 0.0);
        place.sum(&seen[row], &scratch.scores, &mut scratch.run, out);
        if total > 0.0 {
            out.iter_mut().for_each(|y| *y = (f64::from(*y) / total) as f32);
        }
    });
}

#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    run: Vec<f32>,
}

/// Replaces scores by exp(s - max) and returns their sum, the sink's share included. NaN stays NaN.
fn softmax(scores: &mut [f32], sink: Option<f32>) -> f64 {
    let top = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    let mut total = sink.map_or(0.0, |s| f64::from((s - top).exp()));
    for s in scores {
        *s = (*s - top).exp();
        total += f64::from(*s);
    }
    total
}

struct Place<'a, C> {
    cache: &'a C,
    row: usize,
    /// The kv head.
    head: usize,
}

impl<C: Cache> Place<'_, C> {
    fn scores(&self, q: &[f32], seen: &[Seen], shape: Shape, scores: &mut Vec<f32>) {
        scores.clear();
        for (segment, seen) in seen.iter().enumerate() {
            let key = |i: usize| &self.cache.key(segment, self.row, seen.get(i))[self.head * shape.dim..][..shape.dim];
            let n = seen.len();
            for i in (0..n).step_by(4) {
                let four = C::Value::dot4(q, std::array::from_fn(|k| key((i + k).min(n - 1))));
                scores.extend(four[..4.min(n - i)].iter().map(|s| s * shape.scale));
            }
        }
    }

    fn sum(&self, seen: &[Seen], weights: &[f32], run: &mut [f32], out: &mut [f32]) {
        out.fill(0.0);
        let v_dim = out.len();
        let all = seen.iter().enumerate().flat_map(|(s, seen)| (0..seen.len()).map(move |i| (s, seen.get(i))));
        run.fill(0.0);
        for (n, ((segment, t), weight)) in all.zip(weights).enumerate() {
            if n > 0 && n % RUN == 0 {
                out.iter_mut().zip(&*run).for_each(|(y, r)| *y += r);
                run.fill(0.0);
            }
            let value = &self.cache.value(segment, self.row, t)[self.head * v_dim..][..v_dim];
            C::Value::axpy(*weight, value, run);
        }
        out.iter_mut().zip(&*run).for_each(|(y, r)| *y += r);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{bits, close, noise, on_threads};

    const SHAPE: Shape = Shape { heads: 4, kv_heads: 2, dim: 7, v_dim: 5, scale: 0.7, sink: None };

    /// Two segments of up to 300 rows, the same for all rows of the step.
    struct Two {
        keys: [Vec<f32>; 2],
        values: [Vec<f32>; 2],
    }

    impl Cache for Two {
        type Value = f32;
        fn key(&self, segment: usize, _: usize, t: usize) -> &[f32] {
            &self.keys[segment][t * 14..][..14]
        }
        fn value(&self, segment: usize, _: usize, t: usize) -> &[f32] {
            &self.values[segment][t * 10..][..10]
        }
    }

    fn two() -> Two {
        Two { keys: [1, 2].map(|s| noise(s, 300 * 14)), values: [3, 4].map(|s| noise(s, 300 * 10)) }
    }

    fn seen() -> Vec<Vec<Seen<'static>>> {
        let chosen = |list: &'static [u32]| Seen::Chosen(Cow::Borrowed(list));
        vec![
            vec![Seen::All(0..1), chosen(&[])],
            vec![Seen::All(3..280), chosen(&[0, 5, 299])],
            vec![Seen::All(0..0), chosen(&[7])],
        ]
    }

    fn reference(q: &[f32], cache: &Two, seen: &[Vec<Seen>], sink: Option<&[f32]>) -> Vec<f32> {
        let mut out = vec![];
        for (i, q) in q.chunks(7).enumerate() {
            let (row, kv) = (i / 4, i % 4 / 2);
            let list: Vec<(usize, usize)> =
                seen[row].iter().enumerate().flat_map(|(s, x)| (0..x.len()).map(move |i| (s, x.get(i)))).collect();
            let score = |(s, t): &(usize, usize)| {
                let key = &cache.key(*s, row, *t)[kv * 7..][..7];
                (0.7 * key.iter().zip(q).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()).exp()
            };
            let weights: Vec<f64> = list.iter().map(score).collect();
            let total = weights.iter().sum::<f64>() + sink.map_or(0.0, |s| f64::from(s[i % 4]).exp());
            out.extend((0..5).map(|c| {
                let value = |(s, t): &(usize, usize)| f64::from(cache.value(*s, row, *t)[kv * 5 + c]);
                (list.iter().zip(&weights).map(|(x, w)| w * value(x)).sum::<f64>() / total) as f32
            }));
        }
        out
    }

    fn run(q: &[f32], cache: &Two, seen: &[Vec<Seen>], sink: Option<&[f32]>) -> Vec<f32> {
        let mut out = vec![0.0; q.len() / 7 * 5];
        attention(q, cache, seen, Shape { sink, ..SHAPE }, &mut out);
        out
    }

    #[test]
    fn one_softmax_over_segments() {
        let (q, cache, sink) = (noise(9, 3 * 4 * 7), two(), noise(8, 4));
        for sink in [None, Some(&sink[..])] {
            let got = on_threads(|| run(&q, &cache, &seen(), sink));
            for (got, want) in got.chunks(5).zip(reference(&q, &cache, &seen(), sink).chunks(5)) {
                close(got, want, 1e-5);
            }
        }
    }

    #[test]
    fn a_row_alone_has_the_bits_it_has_among_others() {
        let (q, cache) = (noise(9, 3 * 4 * 7), two());
        let all = run(&q, &cache, &seen(), None);
        let alone = run(&q[28..56], &cache, &seen()[1..2], None);
        assert_eq!(bits(&all[20..40]), bits(&alone));
    }

    #[test]
    fn nothing_to_see() {
        let none = vec![vec![Seen::All(0..0), Seen::All(0..0)]];
        assert_eq!(run(&noise(9, 28), &two(), &none, None), vec![0.0; 20]);
        assert_eq!(run(&noise(9, 28), &two(), &none, Some(&[1.0; 4])), vec![0.0; 20]);
    }

    #[test]
    fn large_scores_do_not_overflow() {
        let q: Vec<f32> = noise(9, 28).iter().map(|v| v * 1e4).collect();
        assert!(run(&q, &two(), &seen()[1..2], None).iter().all(|v| v.is_finite()));
    }

    #[test]
    fn nan_is_not_hidden() {
        let mut cache = two();
        cache.keys[0][5 * 14] = f32::NAN;
        assert!(run(&noise(9, 28), &cache, &seen()[1..2], None)[0].is_nan());
    }
}
