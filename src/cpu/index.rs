//! Choosing cache rows: index scores and the best k of them.

use super::simd::Element;
use rayon::prelude::*;

/// Keys per task.
const BLOCK: usize = 64;

/// A score that is no number: nothing may be chosen by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotANumber {
    /// Its position.
    pub at: usize,
}

/// `S_t = scale sum_h w_h max(0, q_h . k_t)` of one row (models.md A.5, C.4 index_score; deepseek-v4.md 1.4
/// indexer), in f64 and rounded once. `q` is `[heads][dim]`, `w` is `[heads]`, `key(t)` holds `dim` values.
pub fn index_score<'k, T: Element>(
    q: &[f32],
    w: &[f32],
    key: impl Fn(usize) -> &'k [T] + Sync,
    scale: f32,
    out: &mut [f32],
) {
    let dim = q.len() / w.len();
    out.par_chunks_mut(BLOCK).enumerate().for_each(|(b, out)| {
        for (i, score) in out.iter_mut().enumerate() {
            let k = key(b * BLOCK + i);
            let term = |(q, w): (&[f32], &f32)| {
                let dot = T::dot64(q, k);
                // Written so that NaN stays NaN.
                f64::from(*w) * if dot < 0.0 { 0.0 } else { dot }
            };
            *score = (f64::from(scale) * q.chunks_exact(dim).zip(w).map(term).sum::<f64>()) as f32;
        }
    });
}

/// Positions of the `min(k, len)` largest scores, ascending; of equal ones the lowest (models.md C.4
/// topk_select).
///
/// # Errors
/// [`NotANumber`] if there is a choice and a score is NaN.
pub fn top_k(scores: &[f32], k: usize) -> Result<Vec<u32>, NotANumber> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    if k >= scores.len() {
        return Ok(order);
    }
    if let Some(at) = scores.iter().position(|s| s.is_nan()) {
        return Err(NotANumber { at });
    }
    order.select_nth_unstable_by(k, |a, b| better(scores, *a, *b));
    order.truncate(k);
    order.sort_unstable();
    Ok(order)
}

/// Orders positions by descending score, then ascending. Zero and minus zero are equal; no score is NaN.
pub(super) fn better(scores: &[f32], a: u32, b: u32) -> std::cmp::Ordering {
    let by_score = scores[b as usize].partial_cmp(&scores[a as usize]);
    by_score.unwrap_or(std::cmp::Ordering::Equal).then(a.cmp(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{bits, close, noise, on_threads};

    #[test]
    fn scores_are_weighted_relus() {
        let (heads, dim, n) = (3, 63, BLOCK + 7);
        let (q, w, keys) = (noise(1, heads * dim), noise(2, heads), noise(3, n * dim));
        let run = |n: usize| {
            let mut out = vec![0.0; n];
            index_score(&q, &w, |t| &keys[t * dim..][..dim], 0.25, &mut out);
            out
        };
        let got = on_threads(|| run(n));
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let want = |k: &[f32]| {
            let terms = q.chunks(dim).zip(&w).map(|(q, w)| f64::from(*w) * dot(q, k).max(0.0));
            (0.25 * terms.sum::<f64>()) as f32
        };
        close(&got, &keys.chunks(dim).map(want).collect::<Vec<f32>>(), 1e-7);
        assert_eq!(bits(&run(7)), bits(&got[..7]));
    }

    #[test]
    fn best_k_with_ties_to_the_lowest() {
        let scores = [1.0, 3.0, -0.0, 3.0, 0.0, 2.0, f32::NEG_INFINITY];
        assert_eq!(top_k(&scores, 1).unwrap(), [1]);
        assert_eq!(top_k(&scores, 3).unwrap(), [1, 3, 5]);
        assert_eq!(top_k(&scores, 5).unwrap(), [0, 1, 2, 3, 5]);
        assert_eq!(top_k(&scores, 7).unwrap(), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(top_k(&[0.0; 9], 4).unwrap(), [0, 1, 2, 3]);
        assert_eq!(top_k(&[], 4).unwrap(), [0u32; 0]);
    }

    #[test]
    fn nothing_is_chosen_by_nan() {
        assert_eq!(top_k(&[1.0, f32::NAN, 2.0], 2), Err(NotANumber { at: 1 }));
    }
}
