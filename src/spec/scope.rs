//! Names to values: loop variables, the `config` section, `config.json`.

use super::config::Config;
use super::expr::{Expr, ExprError, Node, Val};
use super::near;
use super::source::{Span, Word};

/// One line of the `config` section: a name, and expressions of which the first that has a value counts.
#[derive(Debug, Clone)]
pub struct ConfigEntry {
    pub name: Word,
    pub alternatives: Vec<Expr>,
    pub span: Span,
}

/// Where an expression stands decides what it may say: the body of a graph file sees the names of the
/// `config` section and the loop variable; an entry of that section sees the entries above it, the loop
/// variable and the keys of `config.json`. Entries are evaluated when used, once per mention, so an entry
/// that mentions `l` has a value in each layer.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub entries: &'a [ConfigEntry],
    pub config: &'a Config,
    pub config_at: &'a [String],
    /// Loop variable and its value, inside a `Repeat`.
    pub var: Option<(&'a str, i64)>,
}

type Eval = Result<Val, ExprError>;

impl<'a> Scope<'a> {
    /// Value of an expression of the body.
    pub fn eval(&self, e: &Expr) -> Eval {
        self.node(e, None)
    }

    pub fn int(&self, e: &Expr) -> Result<i64, ExprError> {
        match self.eval(e)? {
            Val::Int(i) => Ok(i),
            v => Err(ExprError::new(&e.span, format!("this is {v}, not an integer"))),
        }
    }

    pub fn float(&self, e: &Expr) -> Result<f64, ExprError> {
        match self.eval(e)? {
            Val::Int(i) => Ok(i as f64),
            Val::Float(x) => Ok(x),
            v => Err(ExprError::new(&e.span, format!("this is {}, not a number", v.kind()))),
        }
    }

    pub fn bool(&self, e: &Expr) -> Result<bool, ExprError> {
        match self.eval(e)? {
            Val::Bool(b) => Ok(b),
            v => Err(ExprError::new(&e.span, format!("this is {}, not true or false", v.kind()))),
        }
    }

    /// `limit`: the number of config entries in sight and license to read `config.json`; None in the body.
    fn node(&self, e: &Expr, limit: Option<usize>) -> Eval {
        match &e.node {
            Node::Lit(v) => Ok(v.clone()),
            Node::Name(n) => self.name(n, &e.span, limit),
            Node::Field(a, key) => self.field(e, a, key, limit),
            Node::Index(a, i) => self.index(e, a, i, limit),
            Node::Neg(a) => match self.node(a, limit)? {
                Val::Int(i) => Ok(i.checked_neg().map_or(Val::Float(-(i as f64)), Val::Int)),
                Val::Float(x) => Ok(Val::Float(-x)),
                v => Err(ExprError::new(&a.span, format!("`-` needs a number, this is {}", v.kind()))),
            },
            Node::Not(a) => Ok(Val::Bool(!self.truth(a, limit)?)),
            Node::Bin("and", a, b) => Ok(Val::Bool(self.truth(a, limit)? && self.truth(b, limit)?)),
            Node::Bin("or", a, b) => Ok(Val::Bool(self.truth(a, limit)? || self.truth(b, limit)?)),
            Node::Bin(op, a, b) => binary(op, e, self.node(a, limit)?, self.node(b, limit)?),
            Node::If(c, a, b) => match self.truth(c, limit)? {
                true => self.node(a, limit),
                false => self.node(b, limit),
            },
            Node::Call("has", args) => match self.node(&args[0], limit) {
                Ok(v) => Ok(Val::Bool(v != Val::Null)),
                Err(ExprError { missing_key: Some(_), .. }) => Ok(Val::Bool(false)),
                Err(other) => Err(other),
            },
            Node::Call(f, args) => {
                let args: Vec<Val> = args.iter().map(|a| self.node(a, limit)).collect::<Result<_, _>>()?;
                function(f, e, &args)
            }
        }
    }

    fn truth(&self, e: &Expr, limit: Option<usize>) -> Result<bool, ExprError> {
        match self.node(e, limit)? {
            Val::Bool(b) => Ok(b),
            v => Err(ExprError::new(&e.span, format!("this is {}, not true or false", v.kind()))),
        }
    }

    fn name(&self, n: &str, span: &Span, limit: Option<usize>) -> Eval {
        if let Some((var, value)) = self.var
            && var == n
        {
            return Ok(Val::Int(value));
        }
        let seen = &self.entries[..limit.unwrap_or(self.entries.len())];
        if let Some(i) = seen.iter().rposition(|e| e.name.text == n) {
            return self.entry(i);
        }
        if limit.is_none() {
            let known = self.entries.iter().map(|e| e.name.text.as_str()).chain(self.var.map(|v| v.0));
            let hint = near::hint(n, known);
            return Err(ExprError::new(span, format!("no name `{n}` in the `config` section{hint}")));
        }
        match self.config.get(self.config_at, n) {
            Some(v) => Ok(Val::from_json(v)),
            None => Err(self.missing(n, span)),
        }
    }

    fn missing(&self, key: &str, span: &Span) -> ExprError {
        let last = key.rsplit('.').next().unwrap_or(key);
        let near = near::nearest(last, self.config.keys(self.config_at));
        ExprError {
            span: span.clone(),
            message: format!("{} has no key `{key}`", self.config.name),
            help: near.map(|n| format!("it has `{n}`")),
            missing_key: Some(key.into()),
        }
    }

    /// The first alternative with a value; if there is none, one error that names every key tried.
    fn entry(&self, i: usize) -> Eval {
        let entry = &self.entries[i];
        let mut tried: Vec<ExprError> = Vec::new();
        for e in &entry.alternatives {
            match self.node(e, Some(i)) {
                Err(error) if error.missing_key.is_some() => tried.push(error),
                done => return done,
            }
        }
        let keys: Vec<String> = tried.iter().filter_map(|e| e.missing_key.as_ref()).map(|k| format!("`{k}`")).collect();
        let mut error = match tried.len() {
            1 => tried.remove(0),
            _ => ExprError {
                span: entry.span.clone(),
                message: format!("{} has none of the keys {}", self.config.name, keys.join(", ")),
                help: tried.iter().find_map(|e| e.help.clone()),
                missing_key: None,
            },
        };
        error.missing_key = Some(keys.join(", "));
        Err(error)
    }

    fn field(&self, e: &Expr, a: &Expr, key: &str, limit: Option<usize>) -> Eval {
        let path = e.path().unwrap_or_else(|| key.into());
        match self.node(a, limit)? {
            Val::Object(map) => match map.get(key).filter(|v| !v.is_null()) {
                Some(v) => Ok(Val::from_json(v)),
                None => Err(self.missing(&path, &e.span)),
            },
            v => Err(ExprError::new(&a.span, format!("`.{key}` needs an object, this is {}", v.kind()))),
        }
    }

    fn index(&self, e: &Expr, a: &Expr, i: &Expr, limit: Option<usize>) -> Eval {
        let list = self.node(a, limit)?;
        let Val::Int(at) = self.node(i, limit)? else {
            return Err(ExprError::new(&i.span, "an index must be an integer"));
        };
        let (len, item) = match &list {
            Val::List(l) => (l.len(), usize::try_from(at).ok().and_then(|at| l.get(at)).cloned()),
            Val::Str(s) => {
                let c = usize::try_from(at).ok().and_then(|at| s.chars().nth(at));
                (s.chars().count(), c.map(|c| Val::Str(c.into())))
            }
            v => return Err(ExprError::new(&a.span, format!("`[...]` needs a list, this is {}", v.kind()))),
        };
        item.ok_or_else(|| {
            let what = a.path().unwrap_or_else(|| "the list".into());
            ExprError::new(&e.span, format!("index {at} is outside `{what}`, which has {len} entries"))
        })
    }
}

fn function(name: &str, e: &Expr, args: &[Val]) -> Eval {
    let mut numbers = Vec::with_capacity(args.len());
    for a in args {
        numbers.push(match a {
            Val::Int(i) => *i as f64,
            Val::Float(x) => *x,
            v => return Err(ExprError::new(&e.span, format!("`{name}` needs numbers, not {}", v.kind()))),
        });
    }
    let pick = |better: fn(f64, f64) -> bool| {
        let mut best = 0;
        for i in 1..numbers.len() {
            if better(numbers[i], numbers[best]) {
                best = i;
            }
        }
        args[best].clone()
    };
    Ok(match name {
        "min" => pick(|a, b| a < b),
        "max" => pick(|a, b| a > b),
        "ceil" => Val::Int(numbers[0].ceil() as i64),
        "sqrt" => Val::Float(libm::sqrt(numbers[0])),
        _ => Val::Float(libm::log(numbers[0])),
    })
}

fn binary(op: &'static str, e: &Expr, a: Val, b: Val) -> Eval {
    let bad =
        |a: &Val, b: &Val| Err(ExprError::new(&e.span, format!("`{op}` cannot join {} and {}", a.kind(), b.kind())));
    match (op, &a, &b) {
        ("in", x, Val::List(list)) => Ok(Val::Bool(list.contains(x))),
        ("in", Val::Str(x), Val::Str(text)) => Ok(Val::Bool(text.contains(x.as_str()))),
        (_, Val::Int(x), Val::Int(y)) => integers(op, e, *x, *y),
        (_, Val::Int(x), Val::Float(y)) => floats(op, e, *x as f64, *y),
        (_, Val::Float(x), Val::Int(y)) => floats(op, e, *x, *y as f64),
        (_, Val::Float(x), Val::Float(y)) => floats(op, e, *x, *y),
        ("==", Val::Str(_), Val::Str(_)) | ("==", Val::Bool(_), Val::Bool(_)) => Ok(Val::Bool(a == b)),
        ("!=", Val::Str(_), Val::Str(_)) | ("!=", Val::Bool(_), Val::Bool(_)) => Ok(Val::Bool(a != b)),
        _ => bad(&a, &b),
    }
}

fn integers(op: &str, e: &Expr, x: i64, y: i64) -> Eval {
    let some =
        |v: Option<i64>| v.map(Val::Int).ok_or_else(|| ExprError::new(&e.span, "the result does not fit in 64 bits"));
    match op {
        "+" => some(x.checked_add(y)),
        "-" => some(x.checked_sub(y)),
        "*" => some(x.checked_mul(y)),
        "/" | "%" if y == 0 => Err(ExprError::new(&e.span, "division by zero")),
        "/" if x.checked_rem(y) == Some(0) => some(x.checked_div(y)),
        "/" => Ok(Val::Float(x as f64 / y as f64)),
        "%" => some(x.checked_rem_euclid(y)),
        _ => compare(op, e, x.cmp(&y)),
    }
}

fn floats(op: &str, e: &Expr, x: f64, y: f64) -> Eval {
    match op {
        "+" => Ok(Val::Float(x + y)),
        "-" => Ok(Val::Float(x - y)),
        "*" => Ok(Val::Float(x * y)),
        "/" if y == 0.0 => Err(ExprError::new(&e.span, "division by zero")),
        "/" => Ok(Val::Float(x / y)),
        "%" => Err(ExprError::new(&e.span, "`%` needs integers")),
        _ => match x.partial_cmp(&y) {
            Some(order) => compare(op, e, order),
            None => Err(ExprError::new(&e.span, "not a number (NaN) cannot be compared")),
        },
    }
}

fn compare(op: &str, e: &Expr, order: std::cmp::Ordering) -> Eval {
    Ok(Val::Bool(match op {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        ">=" => order.is_ge(),
        _ => return Err(ExprError::new(&e.span, format!("`{op}` needs a list on its right"))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(text: &str) -> Result<Val, String> {
        let config = br#"{"n": 78, "types": ["full", "shared"], "pat": "FS", "nil": null,
            "lin": {"full": [4, 8], "lb": -5.0}, "inner": {"d": 64}}"#;
        let config = Config::parse("config.json", config).unwrap();
        let at = ["inner".to_string()];
        let word = |t: &str| Word { text: t.into(), span: 0..t.len() };
        let entry = |n: &str, e: &str| ConfigEntry {
            name: word(n),
            alternatives: vec![Expr::parse(&word(e)).map_err(|e| e.message).unwrap()],
            span: 0..1,
        };
        let entries = [entry("x", text)];
        let scope = Scope { entries: &entries, config: &config, config_at: &at, var: Some(("l", 3)) };
        scope.eval(&Expr::parse(&word("x")).unwrap()).map_err(|e| e.message)
    }

    #[test]
    fn says_what_published_configs_need() {
        for (text, want) in [
            ("max(l - 3 + 1, 0) % 4 == 0", Val::Bool(false)),
            ("(l + 1) in lin.full", Val::Bool(true)),
            ("types[l - 2] == 'shared'", Val::Bool(true)),
            ("if has(types) then types[0] == 'full' else false", Val::Bool(true)),
            ("has(nil) or has(lin.none) or has(nothing)", Val::Bool(false)),
            ("pat[1] == 'S'", Val::Bool(true)),
            ("n / 2 * d + 7 % 4", Val::Int(39 * 64 + 3)),
            ("1 / sqrt(d)", Val::Float(0.125)),
            ("1e-6", Val::Float(1e-6)),
            ("ceil(n / 12)", Val::Int(7)),
            ("not l < 2 and true", Val::Bool(true)),
            ("-lin.lb", Val::Float(5.0)),
            ("min(l, 2)", Val::Int(2)),
        ] {
            assert_eq!(eval(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn errors_name_the_cause() {
        for (text, part) in [
            ("nn", "no key `nn`"),
            ("lin.fll", "no key `lin.fll`"),
            ("types[5]", "index 5 is outside `types`, which has 2 entries"),
            ("types + 1", "cannot join"),
            ("n / 0", "division by zero"),
            ("9223372036854775807 + 1", "does not fit"),
            ("if n then 1 else 2", "not true or false"),
        ] {
            assert!(eval(text).unwrap_err().contains(part), "{text}: {:?}", eval(text));
        }
    }

    #[test]
    fn parse_errors_are_placed() {
        for (text, at, part) in [
            ("heads * ", 7, "too early"),
            ("a $ b", 2, "no meaning"),
            ("mix(a)", 0, "no function `mix`; did you mean `min`?"),
            ("(a", 1, "expected `)`"),
            ("a b", 2, "should end"),
        ] {
            let word = Word { text: text.into(), span: 0..text.len() };
            let e = Expr::parse(&word).unwrap_err();
            assert_eq!(e.span.start, at, "{text}: {e:?}");
            assert!(e.message.contains(part), "{text}: {e:?}");
        }
        let deep = "(".repeat(10_000);
        assert!(Expr::parse(&Word { text: deep.clone(), span: 0..deep.len() }).is_err());
    }
}
