//! Elementwise ops, and ops that only say where values lie.

use super::What::{Keyword, Number, Operand, Operands, Size};
use super::op::{GluKind, Op};
use super::types::Type;
use super::{Args, OpInfo, field, optional};

pub const OPS: &[OpInfo] = &[
    OpInfo {
        name: "Add",
        summary: "Sum of two tensors of one shape.",
        fields: &[field("a", Operand, "[R, ...]"), field("b", Operand, "as `a`")],
        output: "as `a`",
        equation: "y = a + b",
        source: "models.md C.1 add",
        check: add,
    },
    OpInfo {
        name: "MulSigmoid",
        summary: "Gates a tensor.",
        fields: &[field("of", Operand, "[R, ...]"), field("z", Operand, "as many values a row as `of`")],
        output: "as `of`",
        equation: "y = x * sigmoid(z)",
        source: "models.md C.1 mul_sigmoid, B.5",
        check: mul_sigmoid,
    },
    OpInfo {
        name: "Sigmoid",
        summary: "Logistic function of each value.",
        fields: &[field("of", Operand, "[R, ...]")],
        output: "as `of`",
        equation: "y = 1 / (1 + exp(-x))",
        source: "models.md B.4 (beta)",
        check: sigmoid,
    },
    OpInfo {
        name: "Glu",
        summary: "Gated unit between the projections of an MLP.",
        fields: &[
            field("gate", Operand, "g [R, ...]"),
            field("up", Operand, "u, as `gate`"),
            field("kind", Keyword, "`silu`, `gelu`, `situ` or `silu_clamped`"),
            optional("beta", Number, "of `situ`"),
            optional("linear_beta", Number, "of `situ`"),
            optional("limit", Number, "of `silu_clamped`"),
        ],
        output: "as `gate`",
        equation: "silu: g*sigmoid(g)*u. gelu: 0.5*g*(1+tanh(sqrt(2/pi)*(g+0.044715*g^3)))*u. \
                   situ: beta*tanh(g/beta)*sigmoid(g) * linear_beta*tanh(u/linear_beta). \
                   silu_clamped: silu(min(g,limit)) * clamp(u,-limit,limit)",
        source: "models.md C.1 glu, B.6; deepseek-v4.md 1.4 MoE",
        check: glu,
    },
    OpInfo {
        name: "Slice",
        summary: "A range of the last dimension; in a tensor with heads, of each head.",
        fields: &[
            field("of", Operand, "[R, ..., n]"),
            optional("at", Size, "first channel, 0 if left out"),
            field("len", Size, "channels"),
        ],
        output: "[R, ..., len]",
        equation: "y[..., i] = x[..., at + i]",
        source: "models.md C.1 slice",
        check: slice,
    },
    OpInfo {
        name: "Concat",
        summary: "Joins tensors along the last dimension.",
        fields: &[field("of", Operands, "two or more tensors that agree in all but the last dimension")],
        output: "[R, ..., sum of the last]",
        equation: "y = [a | b | ...]",
        source: "models.md C.1 concat",
        check: concat,
    },
    OpInfo {
        name: "View",
        summary: "The same values under another name, and with `shape` under other dimensions.",
        fields: &[field("of", Operand, "[R, ...]"), optional("shape", Size, "list of sizes with the same product")],
        output: "[R, shape...]",
        equation: "y = x",
        source: "models.md C.1 view",
        check: view,
    },
];

fn same(a: &mut Args, first: &str, second: &str) -> Option<Type> {
    let (x, y) = (a.tensor(first), a.tensor(second));
    let (x, y) = (x?, y?);
    if x.op.ty != y.op.ty {
        let message = format!("`{}` is {}, but `{}` is {}", y.op.name, y.op.ty, x.op.name, x.op.ty);
        a.mismatch(message, &[&x.op, &y.op]);
        return None;
    }
    Some(x.op.ty)
}

fn add(a: &mut Args) -> Option<(Op, Type)> {
    Some((Op::Add, same(a, "a", "b")?))
}

fn mul_sigmoid(a: &mut Args) -> Option<(Op, Type)> {
    let (x, z) = (a.tensor("of"), a.tensor("z"));
    let (x, z) = (x?, z?);
    if x.rows != z.rows || x.width() != z.width() {
        let message = format!("the gate `{}` is {}, but `{}` is {}", z.op.name, z.op.ty, x.op.name, x.op.ty);
        a.mismatch(message, &[&x.op, &z.op]);
        return None;
    }
    Some((Op::MulSigmoid, x.op.ty))
}

fn sigmoid(a: &mut Args) -> Option<(Op, Type)> {
    Some((Op::Sigmoid, a.tensor("of")?.op.ty))
}

/// Reads `kind` and the numbers that go with it; numbers of another kind are refused.
pub fn glu_kind(a: &mut Args) -> Option<GluKind> {
    let kind = a.keyword("kind", &[("silu", 0), ("gelu", 1), ("situ", 2), ("silu_clamped", 3)])?;
    for (field, of) in [("beta", 2), ("linear_beta", 2), ("limit", 3)] {
        if a.has(field) && of != kind {
            a.error(a.span(field), format!("this kind of unit has no `{field}`"));
            return None;
        }
    }
    Some(match kind {
        0 => GluKind::Silu,
        1 => GluKind::Gelu,
        2 => GluKind::Situ { beta: positive(a, "beta")?, linear_beta: positive(a, "linear_beta")? },
        _ => GluKind::SiluClamped { limit: positive(a, "limit")? },
    })
}

/// A number over zero: these divide, or are a distance.
fn positive(a: &mut Args, field: &str) -> Option<f32> {
    match a.number(field)? {
        x if x > 0.0 => Some(x as f32),
        x => {
            a.error(a.span(field), format!("`{field}` must be over 0, this is {x}"));
            None
        }
    }
}

fn glu(a: &mut Args) -> Option<(Op, Type)> {
    let ty = same(a, "gate", "up");
    let kind = glu_kind(a);
    Some((Op::Glu(kind?), ty?))
}

fn slice(a: &mut Args) -> Option<(Op, Type)> {
    let (x, at, len) = (a.tensor("of"), a.offset_or("at", 0), a.size("len"));
    let (x, at, len) = (x?, at?, len?);
    if at + len > x.last() {
        let message =
            format!("channels {at}..{} do not lie in `{}`, whose last dimension is {}", at + len, x.op.name, x.last());
        a.mismatch(message, &[&x.op]);
        return None;
    }
    let op = Op::Slice { width: x.last() as usize, at: at as usize, len: len as usize };
    Some((op, x.with_last(len)))
}

fn concat(a: &mut Args) -> Option<(Op, Type)> {
    let parts = a.tensors("of")?;
    let outer = |t: &super::args::Tensor| (t.rows, t.dims[..t.dims.len().saturating_sub(1)].to_vec());
    for p in &parts[1..] {
        if outer(p) != outer(&parts[0]) {
            let first = &parts[0].op;
            let message = format!(
                "`{}` is {}, but `{}` is {}: only the last dimension may differ",
                p.op.name, p.op.ty, first.name, first.ty
            );
            a.mismatch(message, &[first, &p.op]);
            return None;
        }
    }
    let widths = parts.iter().map(|p| p.last() as usize).collect();
    Some((Op::Concat { widths }, parts[0].with_last(parts.iter().map(|p| p.last()).sum())))
}

fn view(a: &mut Args) -> Option<(Op, Type)> {
    let x = a.tensor("of")?;
    if !a.has("shape") {
        return Some((Op::View, x.op.ty));
    }
    let dims = a.sizes("shape")?;
    let product: u64 = dims.iter().product();
    if product != x.width() {
        let message = format!("the shape holds {product} values a row, but `{}` is {}", x.op.name, x.op.ty);
        a.mismatch(message, &[&x.op]);
        return None;
    }
    Some((Op::View, Type::Tensor { rows: x.rows, dims }))
}
