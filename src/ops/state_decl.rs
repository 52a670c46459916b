//! The declarations of the `state` and `stacks` sections.

use super::args::{Args, Env};
use super::types::StateKind;
use crate::spec::{Call, Diagnostics, Scope, near};

const KINDS: [(&str, &[&str]); 4] = [
    ("Rows", &["width", "every"]),
    ("Ring", &["width", "window"]),
    ("Window", &["len", "width"]),
    ("Matrix", &["heads", "k", "v"]),
];

/// A declared state with its sizes, in the layer that `scope` stands for.
pub fn evaluate(call: &Call, scope: Scope, diags: &mut Diagnostics) -> Option<StateKind> {
    let Some((_, fields)) = KINDS.iter().find(|(k, _)| *k == call.name.text) else {
        let hint = near::hint(&call.name.text, KINDS.map(|k| k.0));
        diags.error(call.name.span.clone(), format!("no kind of state `{}`{hint}", call.name));
        return None;
    };
    let env = Env::new();
    let mut a = sizes_only(call, scope, &env, diags);
    check_fields(&mut a, fields);
    Some(match call.name.text.as_str() {
        "Rows" => StateKind::Rows { width: a.size("width")?, every: a.size_or("every", 1)? },
        "Ring" => StateKind::Ring { width: a.size("width")?, window: a.size("window")? },
        "Window" => StateKind::Window { len: a.size("len")?, width: a.size("width")? },
        _ => StateKind::Matrix { heads: a.size("heads")?, k: a.size("k")?, v: a.size("v")? },
    })
}

/// Width and capacity of a declared stack.
pub fn stack(call: &Call, scope: Scope, diags: &mut Diagnostics) -> Option<(u64, u64)> {
    if call.name.text != "Stack" {
        diags.error(call.name.span.clone(), format!("expected `Stack(of, max)`, found `{}`", call.name));
        return None;
    }
    let env = Env::new();
    let mut a = sizes_only(call, scope, &env, diags);
    check_fields(&mut a, &["of", "max"]);
    let width = a.size("of");
    Some((width?, a.size("max")?))
}

fn sizes_only<'a>(call: &'a Call, scope: Scope<'a>, env: &'a Env, diags: &'a mut Diagnostics) -> Args<'a> {
    Args { call, env, scope, prefixes: &[], states: &[], diags, inputs: vec![], weights: vec![], state: None }
}

/// Reports fields that the callee does not have, and fields that stand twice.
pub fn check_fields(a: &mut Args, known: &[&str]) {
    let call = a.call;
    for (i, (key, _)) in call.fields.iter().enumerate() {
        if !known.contains(&key.text.as_str()) {
            let hint = near::hint(&key.text, known.iter().copied());
            a.error(key.span.clone(), format!("`{}` has no field `{key}`{hint}", call.name));
        } else if call.fields[..i].iter().any(|(k, _)| k.text == key.text) {
            a.error(key.span.clone(), format!("field `{key}` stands twice"));
        }
    }
}
