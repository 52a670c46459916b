//! The router's choice of experts.

use super::elementwise::softplus;
use super::index::{NotANumber, better};

/// How logits become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Score {
    Sigmoid,
    /// Over all experts.
    Softmax,
    /// `sqrt(log(1 + exp(z)))`
    SqrtSoftplus,
}

/// Attributes of a router (models.md A.6, C.5 router_topk).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Router {
    pub k: usize,
    pub score: Score,
    pub groups: usize,
    pub top_groups: usize,
    /// A group's score is the sum of its two best experts; else that of its best.
    pub top2: bool,
    pub renorm: bool,
    pub renorm_eps: f32,
    pub scale: f32,
}

/// Scores of one row of logits, in f64 and rounded once.
pub fn scores(z: &[f32], kind: Score) -> Vec<f32> {
    let wide = z.iter().map(|z| f64::from(*z));
    match kind {
        Score::Sigmoid => wide.map(|z| (1.0 / (1.0 + (-z).exp())) as f32).collect(),
        Score::SqrtSoftplus => wide.map(|z| softplus(z).sqrt() as f32).collect(),
        Score::Softmax => {
            let top = wide.clone().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = wide.clone().map(|z| (z - top).exp()).sum();
            wide.map(|z| ((z - top).exp() / total) as f32).collect()
        }
    }
}

/// The `k` experts of the largest biased scores, best first, ties to the lowest id; only those of the
/// `top_groups` best groups take part. `bias` is `[experts]`.
///
/// # Errors
/// [`NotANumber`] if a biased score is NaN.
pub fn choose(scores: &[f32], bias: Option<&[f32]>, router: &Router) -> Result<Vec<u32>, NotANumber> {
    let mut biased = scores.to_vec();
    if let Some(bias) = bias {
        biased.iter_mut().zip(bias).for_each(|(s, b)| *s += b);
    }
    if let Some(at) = biased.iter().position(|b| b.is_nan()) {
        return Err(NotANumber { at });
    }
    if router.top_groups < router.groups {
        let size = biased.len() / router.groups;
        let of: Vec<f32> = biased.chunks_exact(size).map(|g| group_score(g, router.top2)).collect();
        // The sum of infinities of both signs.
        if let Some(at) = of.iter().position(|g| g.is_nan()) {
            return Err(NotANumber { at: at * size });
        }
        for g in best(&of, router.groups).into_iter().skip(router.top_groups) {
            biased[g as usize * size..][..size].fill(f32::NEG_INFINITY);
        }
    }
    Ok(best(&biased, router.k))
}

fn best(scores: &[f32], k: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    order.sort_unstable_by(|a, b| better(scores, *a, *b));
    order.truncate(k);
    order
}

fn group_score(group: &[f32], top2: bool) -> f32 {
    let two = best(group, if top2 { 2 } else { 1 });
    two.into_iter().map(|e| group[e as usize]).sum()
}

/// Weights of the chosen experts: `w = s[ids]`, divided by `sum w + eps` if `renorm`, times the scale.
pub fn weigh(scores: &[f32], ids: &[u32], router: &Router) -> Vec<f32> {
    let chosen = ids.iter().map(|e| f64::from(scores[*e as usize]));
    let sum = if router.renorm { chosen.clone().sum::<f64>() + f64::from(router.renorm_eps) } else { 1.0 };
    chosen.map(|w| (w / sum) as f32 * router.scale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::close;

    const PLAIN: Router = Router {
        k: 2,
        score: Score::Sigmoid,
        groups: 1,
        top_groups: 1,
        top2: true,
        renorm: false,
        renorm_eps: 0.0,
        scale: 1.0,
    };

    #[test]
    fn scores_of_each_kind() {
        close(&scores(&[0.0, 2.0, -90.0], Score::Sigmoid), &[0.5, 0.880_797, 0.0], 1e-6);
        close(&scores(&[0.0, 1.0, 1000.0], Score::Softmax), &[0.0, 0.0, 1.0], 1e-7);
        close(&scores(&[1.0, 1.0], Score::Softmax), &[0.5, 0.5], 1e-7);
        let root = |x: f64| x.sqrt() as f32;
        close(&scores(&[0.0, 500.0], Score::SqrtSoftplus), &[root(2f64.ln()), root(500.0)], 1e-7);
    }

    #[test]
    fn best_first_and_ties_to_the_lowest() {
        let ids = |s: &[f32], bias: Option<&[f32]>, r: &Router| choose(s, bias, r).unwrap();
        assert_eq!(ids(&[0.1, 0.5, 0.5, 0.4], None, &PLAIN), [1, 2]);
        assert_eq!(ids(&[0.5; 4], None, &PLAIN), [0, 1]);
        assert_eq!(ids(&[0.1, 0.5, 0.5, 0.4], Some(&[0.45, 0.0, 0.0, 0.2]), &PLAIN), [3, 0]);
    }

    #[test]
    fn groups_limit_the_choice() {
        let two = Router { groups: 2, top_groups: 1, ..PLAIN };
        // Sums of two: 0.9 + 0.0 against 0.5 + 0.5. Best alone: 0.9 against 0.5.
        let s = [0.9, 0.0, 0.5, 0.5];
        assert_eq!(choose(&s, None, &two).unwrap(), [2, 3]);
        assert_eq!(choose(&s, None, &Router { top2: false, ..two }).unwrap(), [0, 1]);
        assert_eq!(choose(&[0.25; 4], None, &two).unwrap(), [0, 1]);
        assert_eq!(choose(&s, None, &Router { top_groups: 2, ..two }).unwrap(), [0, 2]);
    }

    #[test]
    fn nothing_is_chosen_by_nan() {
        assert_eq!(choose(&[0.1, f32::NAN], None, &PLAIN), Err(NotANumber { at: 1 }));
        assert_eq!(choose(&[0.1, 0.2], Some(&[f32::NAN, 0.0]), &PLAIN), Err(NotANumber { at: 0 }));
    }

    #[test]
    fn weights_are_unbiased_scores() {
        let s = [0.2, 0.6, 0.4];
        assert_eq!(weigh(&s, &[1, 0], &PLAIN), [0.6, 0.2]);
        close(&weigh(&s, &[1, 0], &Router { renorm: true, scale: 2.5, ..PLAIN }), &[1.875, 0.625], 1e-6);
    }
}
