//! The operator pages of `docs/graph-format.md`, made from [`TABLE`](super::TABLE) so that they cannot go stale.

use super::{Field, OpInfo, TABLE, What};
use std::fmt::Write;

fn what(w: What) -> &'static str {
    match w {
        What::Operand => "resource",
        What::Operands => "list",
        What::Weight => "weight",
        What::Size => "size",
        What::Number => "number",
        What::Flag => "flag",
        What::Keyword => "keyword",
        What::State => "state",
    }
}

fn row(out: &mut String, f: &Field) {
    let need = if f.required { "" } else { ", optional" };
    let _ = writeln!(out, "| `{}` | {}{need} | {} |", f.name, what(f.what), f.doc.replace('|', "\\|"));
}

fn page(out: &mut String, op: &OpInfo) {
    let _ = writeln!(out, "#### `{}`\n\n{}\n\n| field | holds | meaning |\n|---|---|---|", op.name, op.summary);
    op.fields.iter().for_each(|f| row(out, f));
    let _ = writeln!(out, "\nResult: {}.\n\n    {}\n\nSource: {}.\n", op.output, op.equation, op.source);
}

/// Markdown of all operators.
pub fn markdown() -> String {
    let mut out = String::new();
    for (theme, ops) in TABLE {
        let _ = writeln!(out, "### {theme}\n");
        ops.iter().for_each(|op| page(&mut out, op));
    }
    out
}
