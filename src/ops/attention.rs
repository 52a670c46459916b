//! Attention over caches, and the choice of what to attend to.

use super::What::{Number, Operand, Operands, Size, Weight};
use super::args::{Operand as Got, Tensor};
use super::op::{Op, Segment};
use super::types::{RowDim, Type, WeightRole};
use super::{Args, OpInfo, field, optional};

pub const OPS: &[OpInfo] = &[
    OpInfo {
        name: "Attn",
        summary: "Softmax attention over one or more segments of cache in one softmax. A query sees cache rows up to \
                  its own position, of a ring the last `window`, of a compressed cache the closed windows.",
        fields: &[
            field("q", Operand, "[Tokens, heads, d]"),
            field(
                "over",
                Operands,
                "list of `Seg(k: cache, v: cache, select: selection)`; `kv: cache` if keys are the values; \
                                     `select` is optional. A key row holds kv_heads * d values",
            ),
            field("scale", Number, "factor of the scores"),
            optional("sink", Weight, "[heads], a logit that takes part in the denominator only"),
        ],
        output: "[Tokens, heads, dv]",
        equation: "s_t = scale q_h . k_(t, h / (heads/kv_heads)); p = softmax over all visible t of all segments (and the sink); \
                   o_h = sum_t p_t v_t",
        source: "models.md C.4 attn; deepseek-v4.md 1.4 attention",
        check: attn,
    },
    OpInfo {
        name: "AttnLatent",
        summary: "Absorbed latent attention: one key row [c | k_rope] for all heads, of which c is also the value.",
        fields: &[
            field("q", Operand, "absorbed query [Tokens, heads, rank]"),
            field("q_rope", Operand, "[Tokens, heads, rope]"),
            field("kv", Operand, "cache of width rank + rope"),
            optional("select", Operand, "selection; all earlier positions if left out"),
            field("scale", Number, "factor of the scores"),
        ],
        output: "[Tokens, heads, rank]",
        equation: "s_t = scale (q_h . c_t + q_rope_h . k_t); l_h = sum_t softmax(s)_t c_t",
        source: "models.md A.4 absorbed form, C.4 attn_latent",
        check: attn_latent,
    },
    OpInfo {
        name: "IndexScore",
        summary: "Scores every visible cache row by a small relu attention.",
        fields: &[
            field("q", Operand, "[Tokens, heads, d]"),
            field("k", Operand, "cache of width d"),
            field("weights", Operand, "[Tokens, heads]"),
            field("scale", Number, "factor of the whole sum; positive, so it does not change the order"),
        ],
        output: "scores [Tokens, Rows/every]",
        equation: "S_t = scale * sum_h w_h * max(0, q_h . k_t)",
        source: "models.md A.5, C.4 index_score; deepseek-v4.md 1.4 indexer",
        check: index_score,
    },
    OpInfo {
        name: "TopkSelect",
        summary: "The k best-scored cache rows, ties to the lowest, ascending; all visible rows while there are at most k.",
        fields: &[field("of", Operand, "scores"), field("k", Size, "rows to keep")],
        output: "selection [Tokens, k]",
        equation: "sel = the min(k, visible) rows with the largest S",
        source: "models.md A.5, C.4 topk_select",
        check: topk_select,
    },
];

fn cache(a: &mut Args, op: &Got) -> Option<(u64, u64, Option<u64>)> {
    match op.ty {
        Type::Cache { width, every, window } => Some((width, every, window)),
        _ => {
            a.mismatch(format!("`{}` is {}, but a cache is needed (CacheAppend, RingAppend)", op.name, op.ty), &[op]);
            None
        }
    }
}

fn heads(a: &mut Args, t: &Tensor) -> Option<(u64, u64)> {
    match (t.rows, &t.dims[..]) {
        (RowDim::Tokens, [heads, d]) => Some((*heads, *d)),
        _ => {
            a.mismatch(format!("`{}` is {}, but [Tokens, heads, channels] is needed", t.op.name, t.op.ty), &[&t.op]);
            None
        }
    }
}

/// A selection must choose rows of the cache that it is used with; a ring keeps too few to choose from.
fn selection(a: &mut Args, select: &Got, cache: &Got, every: u64) -> Option<()> {
    let ring = matches!(cache.ty, Type::Cache { window: Some(_), .. });
    match select.ty {
        Type::Selection { every: e, .. } if e == every && !ring => Some(()),
        _ => {
            a.mismatch(
                format!(
                    "`{}` is {}, which does not choose rows of `{}`, {}",
                    select.name, select.ty, cache.name, cache.ty
                ),
                &[cache, select],
            );
            None
        }
    }
}

/// One `Seg(...)`: its segment, kv heads and value channels.
fn segment(a: &mut Args, call: &crate::spec::Call, d: u64) -> Option<(Segment, u64, u64)> {
    let has = |f: &str| call.fields.iter().any(|(k, _)| k.text == f);
    if has("kv") == has("k") || has("k") != has("v") {
        a.error(call.span.clone(), "a segment has either `kv`, or both `k` and `v`");
        return None;
    }
    let shared = has("kv");
    let k = a.nested(call, if shared { "kv" } else { "k" })?;
    let at = a.inputs.len() - 1;
    let (width, every, window) = cache(a, &k)?;
    if width % d != 0 {
        a.mismatch(format!("`{}` is {}: its rows do not hold whole keys of {d} channels", k.name, k.ty), &[&k]);
        return None;
    }
    let kv_heads = width / d;
    let (mut v_at, mut v_dim) = (None, d);
    if !shared {
        let v = a.nested(call, "v")?;
        v_at = Some(a.inputs.len() - 1);
        let (v_width, v_every, v_window) = cache(a, &v)?;
        if v_width % kv_heads != 0 || (v_every, v_window) != (every, window) {
            a.mismatch(format!("values `{}`, {}, do not go with keys `{}`, {}", v.name, v.ty, k.name, k.ty), &[&k, &v]);
            return None;
        }
        v_dim = v_width / kv_heads;
    }
    let mut select = None;
    if has("select") {
        let s = a.nested(call, "select")?;
        select = Some(a.inputs.len() - 1);
        selection(a, &s, &k, every)?;
    }
    let segment = Segment { k: at, v: v_at, select, every: every as usize, window: window.map(|w| w as usize) };
    Some((segment, kv_heads, v_dim))
}

fn attn(a: &mut Args) -> Option<(Op, Type)> {
    let (q, scale) = (a.tensor("q"), a.number("scale"));
    let calls = a.calls("over", "Seg", &["k", "v", "kv", "select"]);
    let (q, scale, calls) = (q?, scale?, calls?);
    let (heads, d) = heads(a, &q)?;
    let parts: Vec<_> = calls.into_iter().map(|c| segment(a, c, d)).collect();
    let parts: Vec<_> = parts.into_iter().collect::<Option<_>>()?;
    let (_, kv_heads, v_dim) = parts[0];
    if parts.iter().any(|p| (p.1, p.2) != (kv_heads, v_dim)) || heads % kv_heads != 0 {
        let found: Vec<String> =
            parts.iter().map(|p| format!("{} kv heads with {} value channels", p.1, p.2)).collect();
        a.error(
            a.span("over"),
            format!("segments must agree and divide {heads} heads, these have {}", found.join(", ")),
        );
        return None;
    }
    let sink = a.has("sink");
    if sink {
        a.weight("sink", &[heads], WeightRole::Vector)?;
    }
    let op = Op::Attn {
        heads: heads as usize,
        kv_heads: kv_heads as usize,
        dim: d as usize,
        v_dim: v_dim as usize,
        scale: scale as f32,
        sink,
        segments: parts.into_iter().map(|p| p.0).collect(),
    };
    Some((op, Type::tensor(RowDim::Tokens, &[heads, v_dim])))
}

fn attn_latent(a: &mut Args) -> Option<(Op, Type)> {
    let (q, q_rope, kv, scale) = (a.tensor("q"), a.tensor("q_rope"), a.operand("kv"), a.number("scale"));
    let select = if a.has("select") { Some(a.operand("select")) } else { None };
    let (q, q_rope, kv, scale) = (q?, q_rope?, kv?, scale?);
    let ((n, rank), (n_rope, rope)) = (heads(a, &q)?, heads(a, &q_rope)?);
    let (width, every, window) = cache(a, &kv)?;
    if n != n_rope || width != rank + rope || every != 1 || window.is_some() {
        let message = format!(
            "`{}` is {}, but {} heads of {rank} and {rope} channels need rows of {}",
            kv.name,
            kv.ty,
            n,
            rank + rope
        );
        a.mismatch(message, &[&q.op, &q_rope.op, &kv]);
        return None;
    }
    let has_select = select.is_some();
    if let Some(s) = select {
        selection(a, &s?, &kv, every)?;
    }
    let op = Op::AttnLatent {
        heads: n as usize,
        rank: rank as usize,
        rope: rope as usize,
        scale: scale as f32,
        select: has_select,
    };
    Some((op, Type::tensor(RowDim::Tokens, &[n, rank])))
}

fn index_score(a: &mut Args) -> Option<(Op, Type)> {
    let (q, k, w, scale) = (a.tensor("q"), a.operand("k"), a.tensor("weights"), a.number("scale"));
    let (q, k, w, scale) = (q?, k?, w?, scale?);
    let (n, d) = heads(a, &q)?;
    let (width, every, window) = cache(a, &k)?;
    if width != d || w.dims != [n] || window.is_some() {
        let message = format!(
            "`{}` is {} and `{}` is {}, but {n} heads of {d} channels are scored",
            k.name, k.ty, w.op.name, w.op.ty
        );
        a.mismatch(message, &[&q.op, &w.op, &k]);
        return None;
    }
    if scale <= 0.0 {
        a.error(a.span("scale"), format!("the factor must be positive, this is {scale}"));
        return None;
    }
    let op = Op::IndexScore { heads: n as usize, dim: d as usize, scale: scale as f32, every: every as usize };
    Some((op, Type::Scores { every }))
}

fn topk_select(a: &mut Args) -> Option<(Op, Type)> {
    let (of, k) = (a.operand("of"), a.size("k"));
    let (of, k) = (of?, k?);
    let Type::Scores { every } = of.ty else {
        a.mismatch(format!("`{}` is {}, but scores are needed (IndexScore)", of.name, of.ty), &[&of]);
        return None;
    };
    Some((Op::TopkSelect { k: k as usize }, Type::Selection { k, every }))
}
