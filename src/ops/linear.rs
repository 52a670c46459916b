//! Embedding, linear maps, output head.

use super::What::{Operand, Size, Weight};
use super::op::Op;
use super::types::{RowDim, Type, WeightRole};
use super::{Args, OpInfo, field, optional};

pub const OPS: &[OpInfo] = &[
    OpInfo {
        name: "EmbedRow",
        summary: "Looks up a row of the embedding matrix per token.",
        fields: &[
            field("of", Operand, "`tokens`"),
            field("w", Weight, "[rows, out]"),
            field("rows", Size, "vocabulary"),
            field("out", Size, "width"),
            optional("repeat", Size, "copies, as streams: [Tokens, repeat, out]"),
        ],
        output: "[Tokens, out], or [Tokens, repeat, out]",
        equation: "x = W[token]",
        source: "models.md C.1 embed_row",
        check: embed_row,
    },
    OpInfo {
        name: "Linear",
        summary: "A matrix times each row. Trailing dimensions of `of` are flattened.",
        fields: &[
            field("of", Operand, "[R, ...], I values a row"),
            field("w", Weight, "[O, I]"),
            field("out", Size, "size, or list of sizes; their product is O"),
            optional("bias", Weight, "[O]"),
        ],
        output: "[R, out...]",
        equation: "y[o] = sum_i W[o,i] x[i] + bias[o]",
        source: "models.md C.1 linear",
        check: linear,
    },
    OpInfo {
        name: "LmHead",
        summary: "A linear map of the rows that want logits, and only of those.",
        fields: &[field("of", Operand, "[Tokens, I]"), field("w", Weight, "[O, I]"), field("out", Size, "vocabulary")],
        output: "[Outputs, out]",
        equation: "logits = W x",
        source: "models.md C.7 lm_head",
        check: lm_head,
    },
    OpInfo {
        name: "LinearGrouped",
        summary: "A block-diagonal linear map: group g of the input meets rows g*out.. of the matrix only.",
        fields: &[
            field("of", Operand, "[R, ...], groups * I values a row"),
            field("w", Weight, "[groups * out, I]"),
            field("groups", Size, "number of blocks"),
            field("out", Size, "outputs per group"),
        ],
        output: "[R, groups, out]",
        equation: "y[g,o] = sum_i W[g*out+o, i] x[g,i]",
        source: "models.md C.1 linear_grouped",
        check: linear_grouped,
    },
    OpInfo {
        name: "MlaAbsorbQ",
        summary: "Moves a query into the latent space: the key rows of kv_b, transposed, per head.",
        fields: &[
            field("of", Operand, "[R, heads, nope]"),
            field("w", Weight, "kv_b [heads * (nope + v_dim), rank]; per head nope key rows, then v_dim value rows"),
            field("v_dim", Size, "value rows per head"),
            field("rank", Size, "latent width"),
        ],
        output: "[R, heads, rank]",
        equation: "qa[h,r] = sum_i W[h*(nope+v_dim)+i, r] q[h,i]",
        source: "models.md A.4 absorbed form, C.4 mla_absorb_q",
        check: absorb_q,
    },
    OpInfo {
        name: "MlaExpandV",
        summary: "Leaves the latent space: the value rows of kv_b, per head.",
        fields: &[
            field("of", Operand, "[R, heads, rank]"),
            field("w", Weight, "kv_b [heads * (nope + v_dim), rank]"),
            field("nope", Size, "key rows per head"),
            field("v_dim", Size, "value rows per head"),
        ],
        output: "[R, heads, v_dim]",
        equation: "ctx[h,o] = sum_r W[h*(nope+v_dim)+nope+o, r] l[h,r]",
        source: "models.md A.4 absorbed form, C.4 mla_expand_v",
        check: expand_v,
    },
];

fn embed_row(a: &mut Args) -> Option<(Op, Type)> {
    let of = a.operand("of");
    let (rows, out, repeat) = (a.size("rows"), a.size("out"), a.size_or("repeat", 1));
    let (of, vocab, d, repeat) = (of?, rows?, out?, repeat?);
    if of.ty != Type::Tokens {
        a.mismatch(format!("`EmbedRow` reads `tokens`, but `{}` is {}", of.name, of.ty), &[&of]);
        return None;
    }
    a.weight("w", &[vocab, d], WeightRole::Embedding)?;
    let dims = if a.has("repeat") { vec![repeat, d] } else { vec![d] };
    let op = Op::EmbedRow { d: d as usize, repeat: repeat as usize, vocab: vocab as usize };
    Some((op, Type::Tensor { rows: RowDim::Tokens, dims }))
}

fn linear(a: &mut Args) -> Option<(Op, Type)> {
    let (x, dims) = (a.tensor("of"), a.sizes("out"));
    let (x, dims) = (x?, dims?);
    let (inp, out) = (x.width(), dims.iter().product());
    a.weight("w", &[out, inp], WeightRole::Matrix)?;
    let bias = a.has("bias");
    if bias {
        a.weight("bias", &[out], WeightRole::Vector)?;
    }
    let op = Op::Linear { inp: inp as usize, out: out as usize, bias };
    Some((op, Type::Tensor { rows: x.rows, dims }))
}

fn lm_head(a: &mut Args) -> Option<(Op, Type)> {
    let (x, out) = (a.tensor("of"), a.size("out"));
    let (x, out) = (x?, out?);
    if x.rows != RowDim::Tokens {
        a.mismatch(format!("`LmHead` needs one row per token, but `{}` is {}", x.op.name, x.op.ty), &[&x.op]);
        return None;
    }
    a.weight("w", &[out, x.width()], WeightRole::Head)?;
    let op = Op::LmHead { inp: x.width() as usize, out: out as usize };
    Some((op, Type::tensor(RowDim::Outputs, &[out])))
}

fn linear_grouped(a: &mut Args) -> Option<(Op, Type)> {
    let (x, groups, out) = (a.tensor("of"), a.size("groups"), a.size("out"));
    let (x, groups, out) = (x?, groups?, out?);
    if x.width() % groups != 0 {
        let message = format!("{} values of `{}` do not divide into {groups} groups", x.width(), x.op.name);
        a.mismatch(message, &[&x.op]);
        return None;
    }
    let inp = x.width() / groups;
    a.weight("w", &[groups * out, inp], WeightRole::Matrix)?;
    let op = Op::LinearGrouped { groups: groups as usize, inp: inp as usize, out: out as usize };
    Some((op, Type::tensor(x.rows, &[groups, out])))
}

fn absorb_q(a: &mut Args) -> Option<(Op, Type)> {
    let (q, v_dim, rank) = (a.tensor("of"), a.size("v_dim"), a.size("rank"));
    let (q, v_dim, rank) = (q?, v_dim?, rank?);
    let [heads, nope] = q.dims[..] else {
        a.mismatch(format!("`{}` is {}, but [R, heads, nope] is needed", q.op.name, q.op.ty), &[&q.op]);
        return None;
    };
    a.weight("w", &[heads * (nope + v_dim), rank], WeightRole::Matrix)?;
    let op = Op::MlaAbsorbQ { heads: heads as usize, nope: nope as usize, v_dim: v_dim as usize, rank: rank as usize };
    Some((op, Type::tensor(q.rows, &[heads, rank])))
}

fn expand_v(a: &mut Args) -> Option<(Op, Type)> {
    let (l, nope, v_dim) = (a.tensor("of"), a.size("nope"), a.size("v_dim"));
    let (l, nope, v_dim) = (l?, nope?, v_dim?);
    let [heads, rank] = l.dims[..] else {
        a.mismatch(format!("`{}` is {}, but [R, heads, rank] is needed", l.op.name, l.op.ty), &[&l.op]);
        return None;
    };
    a.weight("w", &[heads * (nope + v_dim), rank], WeightRole::Matrix)?;
    let op = Op::MlaExpandV { heads: heads as usize, nope: nope as usize, v_dim: v_dim as usize, rank: rank as usize };
    Some((op, Type::tensor(l.rows, &[heads, v_dim])))
}
