//! Residual streams that are more than a sum: attention residuals (Kimi K3), hyper-connections (DeepSeek V4).

use super::What::{Number, Operand, Size, Weight};
use super::op::Op;
use super::types::{RowDim, Type, WeightRole};
use super::{Args, OpInfo, field};

pub const OPS: &[OpInfo] = &[
    OpInfo {
        name: "AttnResMix",
        summary: "Attention over the entries of a stack and one more vector; with an empty stack, that vector.",
        fields: &[
            field("of", Operand, "p [Tokens, d], the newest entry"),
            field("stack", Operand, "stack of width d"),
            field("w", Weight, "[d], norm"),
            field("proj", Weight, "[d], query"),
            field("eps", Number, "added to the mean square"),
        ],
        output: "[Tokens, d]",
        equation: "s_e = v_e . (w * proj) / sqrt(mean(v_e^2) + eps); y = sum_e softmax(s)_e v_e",
        source: "models.md B.3, C.6 attn_res_mix",
        check: attn_res_mix,
    },
    OpInfo {
        name: "AttnResPush",
        summary: "Adds an entry to a stack.",
        fields: &[field("of", Operand, "[Tokens, d]"), field("to", Operand, "stack of width d")],
        output: "the stack, one longer",
        equation: "stack = [stack..., x]",
        source: "models.md B.3, C.6 attn_res_push",
        check: attn_res_push,
    },
    OpInfo {
        name: "HcWeights",
        summary: "Coefficients that read from and write to n residual streams.",
        fields: &[
            field("of", Operand, "X [Tokens, n, d]"),
            field("fn", Weight, "[(2+n)*n, n*d]"),
            field("base", Weight, "[(2+n)*n]"),
            field("scale", Weight, "[3]: pre, post, comb"),
            field("eps", Number, "e below"),
            field("norm_eps", Number, "of the unweighted RMS norm of the flattened streams"),
            field("iters", Size, "Sinkhorn rounds"),
        ],
        output: "hyper-connection weights of n streams: pre[n], post[n], comb[n, n]",
        equation: "m = fn . RMS(vec X); pre = sigmoid(m_1 s_0 + b_1) + e; post = 2 sigmoid(m_2 s_1 + b_2); \
                   C = softmax over columns (m_3 s_2 + b_3) + e; C /= column sums + e; \
                   then iters - 1 times: C /= row sums + e, C /= column sums + e",
        source: "models.md C.6 hc_weights; deepseek-v4.md 1.4 HC-pre",
        check: hc_weights,
    },
    OpInfo {
        name: "HcCollapse",
        summary: "Reads one vector from the streams.",
        fields: &[field("of", Operand, "X [Tokens, n, d]"), field("mix", Operand, "hyper-connection weights")],
        output: "[Tokens, d]",
        equation: "u = sum_j pre_j X_j",
        source: "models.md C.6 hc_collapse",
        check: hc_collapse,
    },
    OpInfo {
        name: "HcExpand",
        summary: "Writes a sublayer's output back to the streams.",
        fields: &[
            field("of", Operand, "y [Tokens, d]"),
            field("x", Operand, "X [Tokens, n, d]"),
            field("mix", Operand, "hyper-connection weights"),
        ],
        output: "[Tokens, n, d]",
        equation: "X'_k = post_k y + sum_j comb[j,k] X_j (the sum runs over the first index)",
        source: "models.md C.6 hc_expand; deepseek-v4.md 1.4 HC-post",
        check: hc_expand,
    },
    OpInfo {
        name: "HcHead",
        summary: "Reads the final vector from the streams.",
        fields: &[
            field("of", Operand, "X [Tokens, n, d]"),
            field("fn", Weight, "[n, n*d]"),
            field("base", Weight, "[n]"),
            field("scale", Weight, "[1]"),
            field("eps", Number, "e below"),
            field("norm_eps", Number, "of the unweighted RMS norm of the flattened streams"),
        ],
        output: "[Tokens, d]",
        equation: "pre = sigmoid(scale (fn . RMS(vec X)) + base) + e; x = sum_j pre_j X_j",
        source: "models.md C.6 hc_head; deepseek-v4.md 1.4 head",
        check: hc_head,
    },
];

/// The operand and the stack must be [Tokens, d] and a stack of width d.
fn with_stack(a: &mut Args, x: &str, stack: &str) -> Option<(u64, u64, u64)> {
    let (x, s) = (a.tensor(x), a.operand(stack));
    let (x, s) = (x?, s?);
    match s.ty {
        Type::Stack { width, len, max } if width == x.width() && x.rows == RowDim::Tokens => Some((width, len, max)),
        _ => {
            let message = format!("`{}` is {}, but `{}` is {}", s.name, s.ty, x.op.name, x.op.ty);
            a.mismatch(message, &[&x.op, &s]);
            None
        }
    }
}

fn attn_res_mix(a: &mut Args) -> Option<(Op, Type)> {
    let (stack, eps) = (with_stack(a, "of", "stack"), a.number("eps"));
    let ((d, len, _), eps) = (stack?, eps?);
    a.weight("w", &[d], WeightRole::Vector)?;
    a.weight("proj", &[d], WeightRole::Vector)?;
    let op = Op::AttnResMix { d: d as usize, len: len as usize, eps: eps as f32 };
    Some((op, Type::tensor(RowDim::Tokens, &[d])))
}

fn attn_res_push(a: &mut Args) -> Option<(Op, Type)> {
    let (width, len, max) = with_stack(a, "of", "to")?;
    if len == max {
        a.error(a.span("to"), format!("the stack already holds its {max} entries"));
        return None;
    }
    Some((Op::AttnResPush { d: width as usize }, Type::Stack { width, len: len + 1, max }))
}

fn streams(a: &mut Args, field: &str) -> Option<(u64, u64)> {
    let x = a.tensor(field)?;
    match (x.rows, &x.dims[..]) {
        (RowDim::Tokens, [n, d]) => Some((*n, *d)),
        _ => {
            a.mismatch(format!("`{}` is {}, but streams [Tokens, n, d] are needed", x.op.name, x.op.ty), &[&x.op]);
            None
        }
    }
}

fn mix(a: &mut Args, n: u64) -> Option<()> {
    let m = a.operand("mix")?;
    if m.ty == (Type::HcMix { streams: n }) {
        return Some(());
    }
    a.mismatch(format!("`{}` is {}, but weights of {n} streams are needed (HcWeights)", m.name, m.ty), &[&m]);
    None
}

fn hc_weights(a: &mut Args) -> Option<(Op, Type)> {
    let (x, eps, norm_eps, iters) = (streams(a, "of"), a.number("eps"), a.number("norm_eps"), a.size("iters"));
    let ((n, d), eps, norm_eps, iters) = (x?, eps?, norm_eps?, iters?);
    let out = (2 + n) * n;
    a.weight("fn", &[out, n * d], WeightRole::Vector)?;
    a.weight("base", &[out], WeightRole::Vector)?;
    a.weight("scale", &[3], WeightRole::Vector)?;
    let op = Op::HcWeights {
        n: n as usize,
        d: d as usize,
        eps: eps as f32,
        norm_eps: norm_eps as f32,
        iters: iters as usize,
    };
    Some((op, Type::HcMix { streams: n }))
}

fn hc_collapse(a: &mut Args) -> Option<(Op, Type)> {
    let (n, d) = streams(a, "of")?;
    mix(a, n)?;
    Some((Op::HcCollapse { n: n as usize, d: d as usize }, Type::tensor(RowDim::Tokens, &[d])))
}

fn hc_expand(a: &mut Args) -> Option<(Op, Type)> {
    let (y, x) = (a.tensor("of"), streams(a, "x"));
    let (y, (n, d)) = (y?, x?);
    if y.rows != RowDim::Tokens || y.width() != d {
        a.mismatch(format!("`{}` is {}, but the streams are {d} wide", y.op.name, y.op.ty), &[&y.op]);
        return None;
    }
    mix(a, n)?;
    Some((Op::HcExpand { n: n as usize, d: d as usize }, Type::tensor(RowDim::Tokens, &[n, d])))
}

fn hc_head(a: &mut Args) -> Option<(Op, Type)> {
    let (x, eps, norm_eps) = (streams(a, "of"), a.number("eps"), a.number("norm_eps"));
    let ((n, d), eps, norm_eps) = (x?, eps?, norm_eps?);
    a.weight("fn", &[n, n * d], WeightRole::Vector)?;
    a.weight("base", &[n], WeightRole::Vector)?;
    a.weight("scale", &[1], WeightRole::Vector)?;
    let op = Op::HcHead { n: n as usize, d: d as usize, eps: eps as f32, norm_eps: norm_eps as f32 };
    Some((op, Type::tensor(RowDim::Tokens, &[d])))
}
