//! Rotary position embedding.

use super::What::{Keyword, Number, Operand, Size};
use super::op::{Op, Rope, RopeIn, RopeOut};
use super::types::Type;
use super::{Args, OpInfo, field, optional};

pub const OPS: &[OpInfo] = &[OpInfo {
    name: "Rope",
    summary: "Rotates channel pairs by an angle that grows with the position. A row of `Emitted/m` stands at the \
              first position of its window.",
    fields: &[
        field("of", Operand, "[R, ..., n], R = Tokens or Emitted/m"),
        optional("at", Size, "first rotated channel, 0 if left out"),
        optional("dims", Size, "rotated channels, to the end if left out"),
        field("theta", Number, "base of the frequencies"),
        field("in_layout", Keyword, "`interleaved`: pairs (2j, 2j+1); `half`: pairs (j, j + dims/2)"),
        field("out_layout", Keyword, "`same`: in place; `half`: results at j and j + dims/2"),
        optional("direction", Keyword, "`forward` (default) or `inverse`"),
        optional("yarn_factor", Number, "YaRN stretch; 1 or left out is none"),
        optional("yarn_orig", Number, "context length before the stretch"),
        optional("yarn_fast", Number, "beta_fast"),
        optional("yarn_slow", Number, "beta_slow"),
    ],
    output: "as `of`",
    equation: "f_j = theta^(-2j/dims); phi = f32(pos) * f32(f_j); (a, b) -> (a cos phi - b sin phi, b cos phi + a sin phi). \
               YaRN: f_j = (1-g)*f_j/factor + g*f_j, g = 1 - clamp((j-lo)/(hi-lo), 0, 1), lo = floor(c(fast)), hi = ceil(c(slow)), \
               c(beta) = dims*ln(orig/(2 pi beta)) / (2 ln theta), both clipped to [0, dims-1]",
    source: "models.md A.4, C.2; deepseek-v4.md 1.4",
    check: rope,
}];

fn rope(a: &mut Args) -> Option<(Op, Type)> {
    let x = a.tensor("of");
    let at = a.offset_or("at", 0);
    let layout_in = a.keyword("in_layout", &[("interleaved", RopeIn::Interleaved), ("half", RopeIn::Half)]);
    let layout_out = a.keyword("out_layout", &[("same", RopeOut::Same), ("half", RopeOut::Half)]);
    let inverse = a.keyword_or("direction", &[("forward", false), ("inverse", true)], false);
    let (x, at) = (x?, at?);
    if matches!(x.rows, super::RowDim::Outputs) {
        a.mismatch(format!("rows of `{}` have no position", x.op.name), &[&x.op]);
        return None;
    }
    let dims = a.size_or("dims", x.last().saturating_sub(at))?;
    if at + dims > x.last() || dims % 2 != 0 || dims == 0 {
        let message = format!(
            "channels {at}..{} of `{}` cannot be rotated: it is {}, and pairs need an even number",
            at + dims,
            x.op.name,
            x.op.ty
        );
        a.mismatch(message, &[&x.op]);
        return None;
    }
    let inv_freq = frequencies(a, dims)?;
    let rope = Rope {
        at: at as usize,
        dims: dims as usize,
        inv_freq,
        layout_in: layout_in?,
        layout_out: layout_out?,
        inverse: inverse?,
    };
    Some((Op::Rope { width: x.last() as usize, rope }, x.op.ty))
}

/// One frequency per pair, in f64 and rounded once.
fn frequencies(a: &mut Args, dims: u64) -> Option<Vec<f32>> {
    let (theta, factor) = (a.number("theta")?, a.number_or("yarn_factor", 1.0)?);
    if theta <= 1.0 || factor <= 0.0 {
        a.error(
            a.span("theta"),
            format!("theta must be over 1 and the YaRN factor over 0, these are {theta} and {factor}"),
        );
        return None;
    }
    let n = dims as f64;
    let plain = |j: u64| libm::pow(theta, -2.0 * j as f64 / n);
    if factor == 1.0 {
        return Some((0..dims / 2).map(|j| plain(j) as f32).collect());
    }
    let (orig, fast, slow) = (a.number("yarn_orig")?, a.number("yarn_fast")?, a.number("yarn_slow")?);
    if orig <= 0.0 || fast <= 0.0 || slow <= 0.0 {
        a.error(a.span("yarn_orig"), "the YaRN context and betas must be over 0");
        return None;
    }
    let c = |beta: f64| n * libm::log(orig / (2.0 * std::f64::consts::PI * beta)) / (2.0 * libm::log(theta));
    let lo = libm::floor(c(fast)).clamp(0.0, n - 1.0);
    let hi = libm::ceil(c(slow)).clamp(0.0, n - 1.0);
    // A span of no width would divide by zero; the reference widens it by a thousandth.
    let width = if hi == lo { 0.001 } else { hi - lo };
    let blend = |j: u64| {
        let gamma = 1.0 - ((j as f64 - lo) / width).clamp(0.0, 1.0);
        ((1.0 - gamma) * plain(j) / factor + gamma * plain(j)) as f32
    };
    Some((0..dims / 2).map(blend).collect())
}
