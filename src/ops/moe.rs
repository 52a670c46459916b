//! Routing and experts.

use super::What::{Flag, Keyword, Number, Operand, Size, Weight};
use super::elementwise::glu_kind;
use super::op::{GroupScore, Op, Router, Score};
use super::types::{RowDim, Type, WeightRole};
use super::{Args, OpInfo, field, optional};

pub const OPS: &[OpInfo] = &[
    OpInfo {
        name: "RouterLogits",
        summary: "The router's linear map, always in f32.",
        fields: &[
            field("of", Operand, "[Tokens, I]"),
            field("w", Weight, "[experts, I]"),
            field("experts", Size, "number of experts"),
        ],
        output: "[Tokens, experts]",
        equation: "z = W x",
        source: "models.md C.5 router_logits",
        check: router_logits,
    },
    OpInfo {
        name: "RouterTopk",
        summary: "Chooses k experts a row and weighs them. With `table` they are read by token id, and only weighed.",
        fields: &[
            field("of", Operand, "logits z [Tokens, experts]"),
            optional("bias", Weight, "[experts], added to the scores for the choice only"),
            optional("tokens", Operand, "`tokens`, with `table`"),
            optional("table", Weight, "[vocab, k] expert ids"),
            optional("vocab", Size, "rows of `table`"),
            field("k", Size, "experts a row"),
            field("score", Keyword, "`sigmoid`, `softmax` or `sqrtsoftplus`"),
            optional("groups", Size, "groups of neighbouring experts, 1 if left out"),
            optional("top_groups", Size, "groups that may be chosen from, all if left out"),
            optional("group_score", Keyword, "`top2sum` (default) or `max`"),
            optional("renorm", Flag, "divide the weights by their sum"),
            optional("renorm_eps", Number, "added to the sum"),
            optional("scale", Number, "factor of the weights, 1 if left out"),
        ],
        output: "route [Tokens, k], by descending biased score, ties to the lowest id; in the table's order with `table`",
        equation: "s = score(z); b = s + bias, -inf outside the top_groups best groups; ids = k largest of b; \
                   w = s[ids]; renorm: w = w / (sum w + renorm_eps); w = w * scale",
        source: "models.md A.6, C.5 router_topk; deepseek-v4.md 1.4 MoE",
        check: router_topk,
    },
    OpInfo {
        name: "MoeExperts",
        summary: "The chosen experts' gated MLPs, weighed. Each expert's output is rounded to f32, then summed in rank order.",
        fields: &[
            field("of", Operand, "[Tokens, I]"),
            field("route", Operand, "route"),
            field("gate", Weight, "[ff, I] per expert; the name holds `{e}`"),
            field("up", Weight, "[ff, I] per expert"),
            field("down", Weight, "[I, ff] per expert"),
            field("ff", Size, "hidden width of an expert"),
            field("kind", Keyword, "as in Glu"),
            optional("beta", Number, "of `situ`"),
            optional("linear_beta", Number, "of `situ`"),
            optional("limit", Number, "of `silu_clamped`"),
        ],
        output: "as `of`",
        equation: "y = sum_j w_j down_(e_j) glu(gate_(e_j) x, up_(e_j) x), j in rank order",
        source: "models.md A.6, C.5 moe_experts; DESIGN 6 (expert sum)",
        check: moe_experts,
    },
];

fn router_logits(a: &mut Args) -> Option<(Op, Type)> {
    let (x, experts) = (a.tensor("of"), a.size("experts"));
    let (x, experts) = (x?, experts?);
    if x.rows != RowDim::Tokens {
        a.mismatch(format!("`{}` is {}, but a row per token is needed", x.op.name, x.op.ty), &[&x.op]);
        return None;
    }
    a.weight("w", &[experts, x.width()], WeightRole::Router)?;
    let op = Op::RouterLogits { inp: x.width() as usize, experts: experts as usize };
    Some((op, Type::tensor(x.rows, &[experts])))
}

fn router_topk(a: &mut Args) -> Option<(Op, Type)> {
    let (z, k) = (a.tensor("of"), a.size("k"));
    let score = a.keyword(
        "score",
        &[("sigmoid", Score::Sigmoid), ("softmax", Score::Softmax), ("sqrtsoftplus", Score::SqrtSoftplus)],
    );
    let (z, k, score) = (z?, k?, score?);
    let ([experts], RowDim::Tokens) = (&z.dims[..], z.rows) else {
        a.mismatch(format!("`{}` is {}, but [Tokens, experts] is needed", z.op.name, z.op.ty), &[&z.op]);
        return None;
    };
    let experts = *experts;
    let groups = a.size_or("groups", 1)?;
    let top_groups = a.size_or("top_groups", groups)?;
    let group_score = a.keyword_or(
        "group_score",
        &[("top2sum", GroupScore::Top2Sum), ("max", GroupScore::Max)],
        GroupScore::Top2Sum,
    )?;
    if experts % groups != 0 || top_groups > groups || k > experts / groups * top_groups {
        let message = format!("{k} of {experts} experts cannot be chosen from {top_groups} of {groups} groups");
        a.error(a.span(if a.has("groups") { "groups" } else { "k" }), message);
        return None;
    }
    let (renorm, eps, scale) =
        (a.flag_or("renorm", false)?, a.number_or("renorm_eps", 0.0)?, a.number_or("scale", 1.0)?);
    let (bias, table) = (a.has("bias"), a.has("table"));
    if bias {
        a.weight("bias", &[experts], WeightRole::Vector)?;
    }
    if table {
        routing_table(a, k)?;
    }
    let router = Router {
        k: k as usize,
        experts: experts as usize,
        score,
        groups: groups as usize,
        top_groups: top_groups as usize,
        group_score,
        renorm,
        renorm_eps: eps as f32,
        scale: scale as f32,
        bias,
        table,
    };
    Some((Op::RouterTopk(router), Type::Route { k, experts }))
}

fn routing_table(a: &mut Args, k: u64) -> Option<()> {
    let (tokens, vocab) = (a.operand("tokens"), a.size("vocab"));
    let (tokens, vocab) = (tokens?, vocab?);
    if tokens.ty != Type::Tokens {
        a.mismatch(format!("a table is read by `tokens`, but `{}` is {}", tokens.name, tokens.ty), &[&tokens]);
        return None;
    }
    if a.has("bias") {
        a.error(a.span("bias"), "experts from a table are not chosen by score, so a bias has no effect");
        return None;
    }
    a.weight("table", &[vocab, k], WeightRole::Table)
}

fn moe_experts(a: &mut Args) -> Option<(Op, Type)> {
    let (x, route, ff, kind) = (a.tensor("of"), a.operand("route"), a.size("ff"), glu_kind(a));
    let (x, route, ff, kind) = (x?, route?, ff?, kind?);
    let Type::Route { k, experts } = route.ty else {
        a.mismatch(format!("`{}` is {}, but a route is needed (RouterTopk)", route.name, route.ty), &[&route]);
        return None;
    };
    if x.rows != RowDim::Tokens {
        a.mismatch(format!("`{}` is {}, but a row per token is needed", x.op.name, x.op.ty), &[&x.op]);
        return None;
    }
    let inp = x.width();
    let gate = a.experts("gate", &[ff, inp], experts);
    let up = a.experts("up", &[ff, inp], experts);
    let down = a.experts("down", &[inp, ff], experts);
    gate.and(up).and(down)?;
    let op = Op::MoeExperts {
        inp: inp as usize,
        ff: ff as usize,
        out: inp as usize,
        experts: experts as usize,
        k: k as usize,
        kind,
    };
    Some((op, x.op.ty))
}
