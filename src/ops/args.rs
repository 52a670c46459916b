//! Reading an operator call: fields to operands, numbers, weights and states, with every mistake reported.

use super::types::{ResourceId, RowDim, StateKind, StateNeed, Type, WeightNeed, WeightRole};
use crate::spec::{Call, Diagnostic, Diagnostics, Expr, Item, Scope, Span, Word, near};
use std::collections::BTreeMap;

/// A name in sight: what it stands for and where it was last assigned.
#[derive(Debug, Clone)]
pub struct Bound {
    /// None if its definition was in error: mistakes that follow from it are not reported.
    pub value: Option<(ResourceId, Type)>,
    pub defined: Span,
}

/// Names in sight.
pub type Env = BTreeMap<String, Bound>;

/// An operand of known type.
#[derive(Debug, Clone)]
pub struct Operand {
    pub id: ResourceId,
    pub ty: Type,
    /// Where the call mentions it, and where it was made.
    pub at: Span,
    pub defined: Span,
    pub name: String,
}

/// A tensor operand.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub op: Operand,
    pub rows: RowDim,
    pub dims: Vec<u64>,
}

impl Tensor {
    /// Size of the last dimension.
    pub fn last(&self) -> u64 {
        self.dims.last().copied().unwrap_or(1)
    }

    /// Values per row.
    pub fn width(&self) -> u64 {
        self.dims.iter().product()
    }

    /// The same rows with another last dimension.
    pub fn with_last(&self, n: u64) -> Type {
        let mut dims = self.dims.clone();
        if let Some(last) = dims.last_mut() {
            *last = n;
        }
        Type::Tensor { rows: self.rows, dims }
    }
}

/// A call being read.
pub struct Args<'a> {
    pub call: &'a Call,
    pub env: &'a Env,
    pub scope: Scope<'a>,
    /// Alternatives of the weight prefix, already filled in.
    pub prefixes: &'a [String],
    /// The file's `state` section.
    pub states: &'a [(Word, Call)],
    pub diags: &'a mut Diagnostics,
    /// What the op reads, in order.
    pub inputs: Vec<ResourceId>,
    pub weights: Vec<WeightNeed>,
    pub state: Option<StateNeed>,
}

impl<'a> Args<'a> {
    pub fn error(&mut self, span: Span, message: impl Into<String>) {
        self.diags.error(span, message);
    }

    pub fn has(&self, field: &str) -> bool {
        self.call.fields.iter().any(|(k, _)| k.text == field)
    }

    fn get(&self, field: &str) -> Option<&'a Item> {
        self.call.fields.iter().find(|(k, _)| k.text == field).map(|(_, v)| v)
    }

    fn need(&mut self, field: &str) -> Option<&'a Item> {
        let item = self.get(field);
        if item.is_none() {
            self.error(self.call.name.span.clone(), format!("`{}` needs `{field}`", self.call.name));
        }
        item
    }

    /// Span of a field's value, or of the op's name.
    pub fn span(&self, field: &str) -> Span {
        self.get(field).map_or(self.call.name.span.clone(), Item::span)
    }

    /// Any operand; it becomes the next input.
    pub fn operand(&mut self, field: &str) -> Option<Operand> {
        let item = self.need(field)?;
        self.resolve(item)
    }

    fn resolve(&mut self, item: &Item) -> Option<Operand> {
        let Item::Word(word) = item else {
            self.error(item.span(), format!("expected the name of a resource, found {}", item.kind()));
            return None;
        };
        let Some(bound) = self.env.get(&word.text) else {
            let hint = near::hint(&word.text, self.env.keys().map(String::as_str));
            self.error(word.span.clone(), format!("no resource `{word}` here{hint}"));
            return None;
        };
        let (id, ty) = bound.value.clone()?;
        self.inputs.push(id);
        Some(Operand { id, ty, at: word.span.clone(), defined: bound.defined.clone(), name: word.text.clone() })
    }

    /// A mismatch of operands: where each stands, and where each comes from with its shape.
    pub fn mismatch(&mut self, message: impl Into<String>, operands: &[&Operand]) {
        let Some(last) = operands.last() else { return };
        let mut d = Diagnostic::new(last.at.clone(), message);
        for o in operands {
            d = d.label(o.defined.clone(), format!("`{}` is {}", o.name, o.ty));
        }
        self.diags.push(d);
    }

    fn as_tensor(&mut self, op: Operand) -> Option<Tensor> {
        match &op.ty {
            Type::Tensor { rows, dims } => Some(Tensor { rows: *rows, dims: dims.clone(), op }),
            other => {
                let message = format!("`{}` is {other}, but a tensor is needed here", op.name);
                self.mismatch(message, &[&op]);
                None
            }
        }
    }

    /// A tensor operand.
    pub fn tensor(&mut self, field: &str) -> Option<Tensor> {
        let op = self.operand(field)?;
        self.as_tensor(op)
    }

    /// A list of tensor operands.
    pub fn tensors(&mut self, field: &str) -> Option<Vec<Tensor>> {
        let item = self.need(field)?;
        let Item::List(items, span) = item else {
            self.error(item.span(), format!("`{field}` is a list of resources, `[a, b]`"));
            return None;
        };
        if items.len() < 2 {
            self.error(span.clone(), format!("`{field}` needs two or more resources"));
            return None;
        }
        let found: Vec<Option<Tensor>> =
            items.iter().map(|i| self.resolve(i).and_then(|o| self.as_tensor(o))).collect();
        found.into_iter().collect()
    }

    /// Calls inside a list field, as `over: [Seg(kv: a), Seg(kv: b)]`.
    pub fn calls(&mut self, field: &str, name: &str, fields: &[&str]) -> Option<Vec<&'a Call>> {
        let item = self.need(field)?;
        let Item::List(items, _) = item else {
            self.error(item.span(), format!("`{field}` is a list `[{name}(...)]`"));
            return None;
        };
        let mut out = vec![];
        for i in items {
            match i {
                Item::Call(c) if c.name.text == name => {
                    for (key, _) in &c.fields {
                        if !fields.contains(&key.text.as_str()) {
                            let hint = near::hint(&key.text, fields.iter().copied());
                            self.error(key.span.clone(), format!("`{name}` has no field `{key}`{hint}"));
                        }
                    }
                    out.push(c);
                }
                other => self.error(other.span(), format!("expected `{name}(...)`, found {}", other.kind())),
            }
        }
        (out.len() == items.len() && !out.is_empty()).then_some(out)
    }

    /// An operand named inside a nested call.
    pub fn nested(&mut self, call: &Call, field: &str) -> Option<Operand> {
        let item = call.fields.iter().find(|(k, _)| k.text == field).map(|(_, v)| v)?;
        self.resolve(item)
    }

    fn expr(&mut self, item: &Item) -> Option<Expr> {
        let word = match item {
            Item::Text(w) => w,
            other => {
                self.error(other.span(), format!("expected a quoted expression, found {}", other.kind()));
                return None;
            }
        };
        match Expr::parse(word) {
            Ok(e) => Some(e),
            Err(e) => {
                self.error(e.span, e.message);
                None
            }
        }
    }

    fn report(&mut self, e: crate::spec::expr::ExprError) {
        let mut d = Diagnostic::new(e.span, e.message);
        d.help = e.help;
        self.diags.push(d);
    }

    fn eval_size(&mut self, item: &Item) -> Option<u64> {
        let e = self.expr(item)?;
        match self.scope.int(&e) {
            Ok(n) if (1..=1 << 40).contains(&n) => Some(n as u64),
            Ok(n) => {
                self.error(e.span, format!("a size must be between 1 and 2^40, this is {n}"));
                None
            }
            Err(err) => {
                self.report(err);
                None
            }
        }
    }

    /// A positive size.
    pub fn size(&mut self, field: &str) -> Option<u64> {
        let item = self.need(field)?;
        self.eval_size(item)
    }

    pub fn size_or(&mut self, field: &str, default: u64) -> Option<u64> {
        if self.has(field) { self.size(field) } else { Some(default) }
    }

    /// An offset: zero or more.
    pub fn offset_or(&mut self, field: &str, default: u64) -> Option<u64> {
        let Some(item) = self.get(field) else { return Some(default) };
        let e = self.expr(item)?;
        match self.scope.int(&e) {
            Ok(n) if n >= 0 => Some(n as u64),
            Ok(n) => {
                self.error(e.span, format!("an offset cannot be negative, this is {n}"));
                None
            }
            Err(err) => {
                self.report(err);
                None
            }
        }
    }

    /// One size, or a list of them.
    pub fn sizes(&mut self, field: &str) -> Option<Vec<u64>> {
        let item = self.need(field)?;
        match item {
            Item::List(items, _) => {
                let sizes: Vec<Option<u64>> = items.iter().map(|i| self.eval_size(i)).collect();
                sizes.into_iter().collect()
            }
            one => self.eval_size(one).map(|n| vec![n]),
        }
    }

    pub fn number(&mut self, field: &str) -> Option<f64> {
        let item = self.need(field)?;
        let e = self.expr(item)?;
        match self.scope.float(&e) {
            Ok(x) if x.is_finite() => Some(x),
            Ok(x) => {
                self.error(e.span, format!("this is {x}, not a finite number"));
                None
            }
            Err(err) => {
                self.report(err);
                None
            }
        }
    }

    pub fn number_or(&mut self, field: &str, default: f64) -> Option<f64> {
        if self.has(field) { self.number(field) } else { Some(default) }
    }

    pub fn flag_or(&mut self, field: &str, default: bool) -> Option<bool> {
        let Some(item) = self.get(field) else { return Some(default) };
        let e = self.expr(item)?;
        self.scope.bool(&e).map_err(|err| self.report(err)).ok()
    }

    /// A keyword: a bare word, or a quoted expression whose value is one (`"hidden_act"`).
    pub fn keyword<T: Clone>(&mut self, field: &str, known: &[(&str, T)]) -> Option<T> {
        let item = self.need(field)?;
        let (text, span) = match item {
            Item::Word(w) => (w.text.clone(), w.span.clone()),
            other => {
                let e = self.expr(other)?;
                match self.scope.eval(&e) {
                    Ok(crate::spec::Val::Str(s)) => (s, e.span),
                    Ok(v) => {
                        self.error(e.span, format!("expected a keyword, this is {v}"));
                        return None;
                    }
                    Err(err) => {
                        self.report(err);
                        return None;
                    }
                }
            }
        };
        let found = known.iter().find(|(k, _)| *k == text).map(|(_, v)| v.clone());
        if found.is_none() {
            let hint = near::hint(&text, known.iter().map(|(k, _)| *k));
            self.error(span, format!("`{field}` cannot be `{text}`{hint}"));
        }
        found
    }

    pub fn keyword_or<T: Clone>(&mut self, field: &str, known: &[(&str, T)], default: T) -> Option<T> {
        if self.has(field) { self.keyword(field, known) } else { Some(default) }
    }

    /// A weight by its quoted name or list of alternatives.
    pub fn weight(&mut self, field: &str, shape: &[u64], role: WeightRole) -> Option<()> {
        let item = self.need(field)?;
        let span = item.span();
        let items = match item {
            Item::List(items, _) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        if items.is_empty() {
            self.error(span, format!("`{field}` needs a weight's name"));
            return None;
        }
        let mut names = vec![];
        for prefix in self.prefixes {
            for i in items {
                let Item::Text(w) = i else {
                    self.error(i.span(), format!("`{field}` is a weight's quoted name, found {}", i.kind()));
                    return None;
                };
                names.push(format!("{prefix}{}", w.text));
            }
        }
        self.weights.push(WeightNeed { names, shape: shape.to_vec(), at_least: false, experts: None, role, span });
        Some(())
    }

    /// One matrix per expert; the name holds `{e}`.
    pub fn experts(&mut self, field: &str, shape: &[u64], experts: u64) -> Option<()> {
        self.weight(field, shape, WeightRole::Expert)?;
        let last = self.weights.last_mut()?;
        if last.names.iter().all(|n| n.contains("{e}")) {
            last.experts = Some(experts);
            return Some(());
        }
        let span = last.span.clone();
        self.error(span, "the name must hold `{e}`, the number of the expert");
        None
    }

    /// The state that the op writes. `want` checks its declared kind and says what is wrong with it.
    pub fn state(&mut self, field: &str, want: impl Fn(&StateKind) -> Result<(), String>) -> Option<StateKind> {
        let item = self.need(field)?;
        let Item::Word(word) = item else {
            self.error(item.span(), format!("expected the name of a state, found {}", item.kind()));
            return None;
        };
        let states = self.states;
        let Some(decl) = states.iter().position(|(n, _)| n.text == word.text) else {
            let hint = near::hint(&word.text, states.iter().map(|(n, _)| n.text.as_str()));
            self.error(word.span.clone(), format!("no state `{word}` in the `state` section{hint}"));
            return None;
        };
        let kind = super::state_decl::evaluate(&states[decl].1, self.scope, self.diags)?;
        if let Err(why) = want(&kind) {
            let d = Diagnostic::new(word.span.clone(), why);
            self.diags.push(d.label(states[decl].0.span.clone(), format!("`{word}` is {kind}")));
            return None;
        }
        self.state = Some(StateNeed { decl, kind, span: word.span.clone() });
        Some(kind)
    }
}
