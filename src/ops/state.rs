//! Ops that write what later steps read.

use super::What::{Flag, Keyword, Number, Operand, Size, State, Weight};
use super::op::{KdaGate, Op};
use super::types::{RowDim, StateKind, Type, WeightRole};
use super::{Args, OpInfo, field, optional};

pub const OPS: &[OpInfo] = &[
    OpInfo {
        name: "CacheAppend",
        summary: "Writes each row to the cache of its slot: a row of Tokens at its position, a row of Emitted/m at \
                  its window's number.",
        fields: &[field("of", Operand, "[R, ...]"), field("to", State, "Rows of the same width")],
        output: "the cache, readable by ops behind this one",
        equation: "rows[slot][pos / every] = x",
        source: "models.md C.3 cache_append",
        check: cache_append,
    },
    OpInfo {
        name: "RingAppend",
        summary: "As CacheAppend, but only the last `window` positions stay readable.",
        fields: &[field("of", Operand, "[Tokens, ...]"), field("to", State, "Ring of the same width")],
        output: "the cache; a query at pos sees positions pos-window+1 ..= pos",
        equation: "ring[slot][pos mod capacity] = x",
        source: "models.md C.3 ring_append; deepseek-v4.md 2",
        check: ring_append,
    },
    OpInfo {
        name: "CausalConv1d",
        summary: "Depthwise causal convolution over positions; before position 0 there are zeros.",
        fields: &[
            field("of", Operand, "[Tokens, ...], C values a row"),
            field("w", Weight, "[C, K]; the last tap meets the newest input"),
            field("to", State, "Window(len: K - 1, width: C)"),
            field("act", Keyword, "`silu` or `none`"),
        ],
        output: "as `of`",
        equation: "y_n[c] = act(sum_j w[c,j] u_(n-K+1+j)[c])",
        source: "models.md C.3 causal_conv1d, B.4",
        check: causal_conv1d,
    },
    OpInfo {
        name: "KdaGate",
        summary: "Logarithm of the per-channel decay of a delta rule.",
        fields: &[
            field("of", Operand, "z [Tokens, heads, k]"),
            field("a_log", Weight, "[heads]; longer is accepted, the rest is padding"),
            field("kind", Keyword, "`bounded` or `softplus`"),
            optional("bound", Number, "of `bounded`"),
        ],
        output: "as `of`",
        equation: "bounded: g = bound * sigmoid(exp(A[h]) z). softplus: g = -exp(A[h]) * log(1 + exp(z))",
        source: "models.md B.4, B.10, C.8 kda_gate",
        check: kda_gate,
    },
    OpInfo {
        name: "DeltaRule",
        summary: "Gated delta rule with a matrix state per head: decay, correct, read, in this order.",
        fields: &[
            field("q", Operand, "[Tokens, heads, k]"),
            field("k", Operand, "[Tokens, heads, k]"),
            field("v", Operand, "[Tokens, heads, v]"),
            field("g", Operand, "log decay [Tokens, heads, k]"),
            field("beta", Operand, "[Tokens, heads]"),
            field("to", State, "Matrix(heads, k, v)"),
        ],
        output: "[Tokens, heads, v]",
        equation: "S = diag(exp(g)) S; d = beta (v - S^T k); S = S + k d^T; o = S^T q",
        source: "models.md B.4, C.3 delta_rule",
        check: delta_rule,
    },
    OpInfo {
        name: "WindowPool",
        summary: "Softmax-weighted mean of each closed window of m positions, per channel.",
        fields: &[
            field("kv", Operand, "c [Tokens, w], w = d, or 2d with overlap (first half a, second half b)"),
            field("gate", Operand, "g, as `kv`"),
            field("ape", Weight, "[m, w], added to the gate by position in the window"),
            field("to", State, "Window(len: m or 2m with overlap, width: 2w)"),
            field("every", Size, "m"),
            field("overlap", Flag, "also pool the a half of the window before"),
        ],
        output: "[Emitted/m, d]",
        equation: "z_j = g_j + ape[j mod m]; c_w = sum_j softmax_j(z_j) * c_j over the window's positions. With overlap \
                   over 2m entries: half a of window w-1 and half b of window w; for w = 0 half b alone",
        source: "models.md C.6 window_pool; deepseek-v4.md 1.4 compressor",
        check: window_pool,
    },
];

fn append(a: &mut Args, ring: bool) -> Option<(u64, StateKind)> {
    let x = a.tensor("of")?;
    let every = match x.rows {
        RowDim::Tokens => 1,
        RowDim::Emitted(m) if !ring => m,
        _ => {
            a.mismatch(format!("rows of `{}`, {}, have no place in this state", x.op.name, x.op.ty), &[&x.op]);
            return None;
        }
    };
    let (width, name) = (x.width(), x.op.name.clone());
    let kind = a.state("to", |kind| match kind {
        StateKind::Rows { width: w, every: e } if !ring && *w == width && *e == every => Ok(()),
        StateKind::Ring { width: w, .. } if ring && *w == width => Ok(()),
        other => Err(format!(
            "`{name}` has {width} values per row, one row per {every} position(s), but the state is {other}"
        )),
    })?;
    Some((width, kind))
}

fn cache_append(a: &mut Args) -> Option<(Op, Type)> {
    let (width, kind) = append(a, false)?;
    let every = match kind {
        StateKind::Rows { every, .. } => every,
        _ => 1,
    };
    Some((Op::CacheAppend { width: width as usize }, Type::Cache { width, every, window: None }))
}

fn ring_append(a: &mut Args) -> Option<(Op, Type)> {
    let (width, kind) = append(a, true)?;
    let window = match kind {
        StateKind::Ring { window, .. } => Some(window),
        _ => None,
    };
    Some((Op::RingAppend { width: width as usize }, Type::Cache { width, every: 1, window }))
}

fn tokens_only(a: &mut Args, t: &super::args::Tensor) -> Option<()> {
    if t.rows == RowDim::Tokens {
        return Some(());
    }
    a.mismatch(format!("`{}` is {}, but a row per token is needed", t.op.name, t.op.ty), &[&t.op]);
    None
}

fn causal_conv1d(a: &mut Args) -> Option<(Op, Type)> {
    let x = a.tensor("of")?;
    tokens_only(a, &x)?;
    let silu = a.keyword("act", &[("silu", true), ("none", false)])?;
    let channels = x.width();
    let kind = a.state("to", |kind| match kind {
        StateKind::Window { width, .. } if *width == channels => Ok(()),
        other => Err(format!("the convolution has {channels} channels, but the state is {other}")),
    })?;
    let StateKind::Window { len, .. } = kind else { return None };
    a.weight("w", &[channels, len + 1], WeightRole::Vector)?;
    let op = Op::CausalConv1d { channels: channels as usize, taps: len as usize + 1, silu };
    Some((op, x.op.ty))
}

fn kda_gate(a: &mut Args) -> Option<(Op, Type)> {
    let z = a.tensor("of")?;
    let [heads, dim] = z.dims[..] else {
        a.mismatch(format!("`{}` is {}, but [Tokens, heads, k] is needed", z.op.name, z.op.ty), &[&z.op]);
        return None;
    };
    let kind = match a.keyword("kind", &[("bounded", true), ("softplus", false)])? {
        true => KdaGate::Bounded { bound: a.number("bound")? as f32 },
        false => KdaGate::Softplus,
    };
    a.weight("a_log", &[heads], WeightRole::Vector)?;
    if let Some(w) = a.weights.last_mut() {
        w.at_least = true;
    }
    Some((Op::KdaGate { heads: heads as usize, dim: dim as usize, kind }, z.op.ty))
}

fn delta_rule(a: &mut Args) -> Option<(Op, Type)> {
    let [q, k, v, g, beta] = ["q", "k", "v", "g", "beta"].map(|f| a.tensor(f));
    let (q, k, v, g, beta) = (q?, k?, v?, g?, beta?);
    tokens_only(a, &q)?;
    let ([heads, dk], [_, dv]) = (&q.dims[..], &v.dims[..]) else {
        a.mismatch("queries and values need heads: [Tokens, heads, channels]", &[&q.op, &v.op]);
        return None;
    };
    let (heads, dk, dv) = (*heads, *dk, *dv);
    for (t, want) in [(&k, vec![heads, dk]), (&v, vec![heads, dv]), (&g, vec![heads, dk]), (&beta, vec![heads])] {
        let want = Type::Tensor { rows: RowDim::Tokens, dims: want };
        if t.op.ty != want {
            let message = format!("`{}` is {}, but beside `{}` it must be {want}", t.op.name, t.op.ty, q.op.name);
            a.mismatch(message, &[&q.op, &t.op]);
            return None;
        }
    }
    a.state("to", |kind| match kind {
        StateKind::Matrix { heads: h, k, v } if (*h, *k, *v) == (heads, dk, dv) => Ok(()),
        other => Err(format!("the rule needs Matrix(heads {heads}, k {dk}, v {dv}), but the state is {other}")),
    })?;
    let op = Op::DeltaRule { heads: heads as usize, k: dk as usize, v: dv as usize };
    Some((op, Type::tensor(RowDim::Tokens, &[heads, dv])))
}

fn window_pool(a: &mut Args) -> Option<(Op, Type)> {
    let (kv, gate, m, overlap) = (a.tensor("kv"), a.tensor("gate"), a.size("every"), a.flag_or("overlap", false));
    let (kv, gate, m, overlap) = (kv?, gate?, m?, overlap?);
    tokens_only(a, &kv)?;
    let width = kv.width();
    if kv.op.ty != gate.op.ty || (overlap && width % 2 != 0) {
        let message = format!(
            "`{}` is {}, but `{}` is {}; both need one width, even with overlap",
            gate.op.name, gate.op.ty, kv.op.name, kv.op.ty
        );
        a.mismatch(message, &[&kv.op, &gate.op]);
        return None;
    }
    a.weight("ape", &[m, width], WeightRole::Vector)?;
    let len = if overlap { 2 * m } else { m };
    a.state("to", |kind| match kind {
        StateKind::Window { len: l, width: w } if (*l, *w) == (len, 2 * width) => Ok(()),
        other => Err(format!("the pool needs Window(len {len}, width {}), but the state is {other}", 2 * width)),
    })?;
    let d = if overlap { width / 2 } else { width };
    let op = Op::WindowPool { m: m as usize, d: d as usize, overlap };
    Some((op, Type::tensor(RowDim::Emitted(m), &[d])))
}
