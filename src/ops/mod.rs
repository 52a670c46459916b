//! The operators a graph file may use: attributes, shape rule, documentation. The extension point.
//!
//! Each operator is an [`OpInfo`] in [`TABLE`]: its fields, what they mean, its equation with its source,
//! and `check`, which turns a call into an [`Op`] with numbers for attributes and the type of its result.
//! How an operator is computed is elsewhere: `oracle` (reference), `cpu` and `run` (fast).
//!
//! Invariant: no operator hides mathematics in its name. Eps, scales, layouts and kinds are fields.

pub mod args;
pub mod attention;
pub mod docs;
pub mod elementwise;
pub mod linear;
pub mod moe;
pub mod norm;
pub mod op;
pub mod position;
pub mod residual;
pub mod state;
pub mod state_decl;
pub mod types;

pub use args::{Args, Bound, Env};
pub use op::Op;
pub use types::{Kv, ResourceId, RowDim, StateKind, StateNeed, Type, WeightNeed, WeightRole};

/// What a field of a call holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Operand,
    Operands,
    Weight,
    Size,
    Number,
    Flag,
    Keyword,
    State,
}

/// A field of an operator call.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub what: What,
    pub required: bool,
    pub doc: &'static str,
}

const fn field(name: &'static str, what: What, doc: &'static str) -> Field {
    Field { name, what, required: true, doc }
}

const fn optional(name: &'static str, what: What, doc: &'static str) -> Field {
    Field { name, what, required: false, doc }
}

type Check = fn(&mut Args) -> Option<(Op, Type)>;

/// Everything known about an operator.
pub struct OpInfo {
    pub name: &'static str,
    pub summary: &'static str,
    pub fields: &'static [Field],
    pub output: &'static str,
    pub equation: &'static str,
    /// Where the equation comes from.
    pub source: &'static str,
    pub check: Check,
}

/// Operators by theme, in the order of the documentation.
pub static TABLE: &[(&str, &[OpInfo])] = &[
    ("Embedding and linear maps", linear::OPS),
    ("Norms", norm::OPS),
    ("Elementwise and layout", elementwise::OPS),
    ("Position", position::OPS),
    ("State", state::OPS),
    ("Attention", attention::OPS),
    ("Mixture of experts", moe::OPS),
    ("Residual topologies", residual::OPS),
];

/// The operator of that name.
pub fn find(name: &str) -> Option<&'static OpInfo> {
    all().find(|o| o.name == name)
}

pub fn all() -> impl Iterator<Item = &'static OpInfo> {
    TABLE.iter().flat_map(|(_, ops)| ops.iter())
}

/// Reads one call. Mistakes go to `args.diags`; None if there were any.
pub fn check(args: &mut Args) -> Option<(Op, Type)> {
    let name = &args.call.name;
    let Some(info) = find(&name.text) else {
        let hint = crate::spec::near::hint(&name.text, all().map(|o| o.name));
        args.error(name.span.clone(), format!("no operator `{name}`{hint}"));
        return None;
    };
    let known: Vec<&str> = info.fields.iter().map(|f| f.name).collect();
    state_decl::check_fields(args, &known);
    (info.check)(args)
}
