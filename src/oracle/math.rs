//! Scalar functions and reductions, in f64 with one rounding by the caller.

/// Dot product, accumulated in f64 from the first entry on.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
}

pub fn sum_squares(a: &[f32]) -> f64 {
    a.iter().map(|x| f64::from(*x) * f64::from(*x)).sum()
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// log(1 + exp(x)) without overflow.
pub fn softplus(x: f64) -> f64 {
    if x > 0.0 { x + libm::log1p(libm::exp(-x)) } else { libm::log1p(libm::exp(x)) }
}

/// Softmax weights of some scores, with an optional extra logit that only joins the denominator.
pub fn softmax(scores: &[f32], sink: Option<f32>) -> Vec<f64> {
    let max = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    let e: Vec<f64> = scores.iter().map(|s| libm::exp(f64::from(*s) - f64::from(max))).collect();
    let extra = sink.map_or(0.0, |s| libm::exp(f64::from(s) - f64::from(max)));
    let total = e.iter().sum::<f64>() + extra;
    e.into_iter().map(|x| x / total).collect()
}

/// Indices of the `k` largest, largest first, ties to the lowest index.
pub fn top_k(scores: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    order.truncate(k);
    order
}
