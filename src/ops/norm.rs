//! Norms over the last dimension: per head when a tensor has heads.

use super::What::{Keyword, Number, Operand, Weight};
use super::op::{Gate, Op};
use super::types::{Type, WeightRole};
use super::{Args, OpInfo, field, optional};

pub const OPS: &[OpInfo] = &[
    OpInfo {
        name: "RmsNorm",
        summary: "Root-mean-square norm over the last dimension; without `w` it is unweighted.",
        fields: &[
            field("of", Operand, "[R, ..., n]"),
            optional("w", Weight, "[n]"),
            field("eps", Number, "added to the mean square"),
        ],
        output: "as `of`",
        equation: "y = x / sqrt(mean(x^2) + eps) * w",
        source: "models.md C.1 rmsnorm",
        check: rms_norm,
    },
    OpInfo {
        name: "RmsNormGated",
        summary: "Root-mean-square norm times a gate.",
        fields: &[
            field("of", Operand, "[R, ..., n]"),
            field("z", Operand, "gate input, shaped as `of`"),
            field("w", Weight, "[n]"),
            field("eps", Number, "added to the mean square"),
            field("gate", Keyword, "`sigmoid` or `silu`"),
        ],
        output: "as `of`",
        equation: "y = x / sqrt(mean(x^2) + eps) * w * gate(z)",
        source: "models.md C.1 rmsnorm_gated, B.4",
        check: rms_norm_gated,
    },
    OpInfo {
        name: "LayerNorm",
        summary: "Mean and variance norm over the last dimension.",
        fields: &[
            field("of", Operand, "[R, ..., n]"),
            field("w", Weight, "[n]"),
            field("bias", Weight, "[n]"),
            field("eps", Number, "added to the population variance"),
        ],
        output: "as `of`",
        equation: "y = (x - mean(x)) / sqrt(var(x) + eps) * w + bias",
        source: "models.md C.1 layernorm, A.5",
        check: layer_norm,
    },
    OpInfo {
        name: "L2Norm",
        summary: "Scales the last dimension to unit length, times a constant.",
        fields: &[
            field("of", Operand, "[R, ..., n]"),
            field("eps", Number, "added to the sum of squares"),
            optional("scale", Number, "factor, 1 if left out"),
        ],
        output: "as `of`",
        equation: "y = scale * x / sqrt(sum(x^2) + eps)",
        source: "models.md C.1 l2norm, B.4",
        check: l2_norm,
    },
];

fn rms_norm(a: &mut Args) -> Option<(Op, Type)> {
    let (x, eps) = (a.tensor("of"), a.number("eps"));
    let (x, eps) = (x?, eps?);
    let weighted = a.has("w");
    if weighted {
        a.weight("w", &[x.last()], WeightRole::Vector)?;
    }
    Some((Op::RmsNorm { n: x.last() as usize, eps: eps as f32, weighted }, x.op.ty))
}

fn rms_norm_gated(a: &mut Args) -> Option<(Op, Type)> {
    let (x, z, eps) = (a.tensor("of"), a.tensor("z"), a.number("eps"));
    let gate = a.keyword("gate", &[("sigmoid", Gate::Sigmoid), ("silu", Gate::Silu)]);
    let (x, z, eps, gate) = (x?, z?, eps?, gate?);
    if x.op.ty != z.op.ty {
        a.mismatch(
            format!("the gate `{}` is {}, but `{}` is {}", z.op.name, z.op.ty, x.op.name, x.op.ty),
            &[&x.op, &z.op],
        );
        return None;
    }
    a.weight("w", &[x.last()], WeightRole::Vector)?;
    Some((Op::RmsNormGated { n: x.last() as usize, eps: eps as f32, gate }, x.op.ty))
}

fn layer_norm(a: &mut Args) -> Option<(Op, Type)> {
    let (x, eps) = (a.tensor("of"), a.number("eps"));
    let (x, eps) = (x?, eps?);
    a.weight("w", &[x.last()], WeightRole::Vector)?;
    a.weight("bias", &[x.last()], WeightRole::Vector)?;
    Some((Op::LayerNorm { n: x.last() as usize, eps: eps as f32 }, x.op.ty))
}

fn l2_norm(a: &mut Args) -> Option<(Op, Type)> {
    let (x, eps, scale) = (a.tensor("of"), a.number("eps"), a.number_or("scale", 1.0));
    let (x, eps, scale) = (x?, eps?, scale?);
    Some((Op::L2Norm { n: x.last() as usize, eps: eps as f32, scale: scale as f32 }, x.op.ty))
}
