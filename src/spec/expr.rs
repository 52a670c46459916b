//! Expressions over configuration names: `heads * (nope + rope)`, `compress_ratios[l] == 4`,
//! `if has(indexer_types) then indexer_types[l] == 'full' else l < 3`.
//!
//! Precedence from loose to tight: `if then else`, `or`, `and`, `not`, comparisons and `in`, `+ -`,
//! `* / %`, unary `-`, `a.b` and `a[i]`. Integers stay exact: `/` gives an integer when it divides, else a
//! float; overflow is an error. `has(path)` is true if the key exists and is not null.

use super::source::{Span, Word};

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Val {
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
    List(Vec<Val>),
    Null,
    /// A JSON object, reachable only through `a.b`.
    Object(serde_json::Map<String, serde_json::Value>),
}

impl Val {
    pub fn kind(&self) -> &'static str {
        match self {
            Val::Int(_) => "an integer",
            Val::Float(_) => "a number",
            Val::Bool(_) => "true or false",
            Val::Str(_) => "text",
            Val::List(_) => "a list",
            Val::Null => "null",
            Val::Object(_) => "an object",
        }
    }

    pub fn from_json(v: &serde_json::Value) -> Val {
        use serde_json::Value as J;
        match v {
            J::Null => Val::Null,
            J::Bool(b) => Val::Bool(*b),
            J::Number(n) => n.as_i64().map_or_else(|| Val::Float(n.as_f64().unwrap_or(f64::NAN)), Val::Int),
            J::String(s) => Val::Str(s.clone()),
            J::Array(a) => Val::List(a.iter().map(Val::from_json).collect()),
            J::Object(o) => Val::Object(o.clone()),
        }
    }
}

impl std::fmt::Display for Val {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Val::Int(i) => write!(f, "{i}"),
            Val::Float(x) => write!(f, "{x}"),
            Val::Bool(b) => write!(f, "{b}"),
            Val::Str(s) => write!(f, "'{s}'"),
            Val::Null => write!(f, "null"),
            Val::List(_) | Val::Object(_) => f.write_str(self.kind()),
        }
    }
}

/// A parsed expression; every part knows its place in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub node: Node,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Lit(Val),
    Name(String),
    Field(Box<Expr>, String),
    Index(Box<Expr>, Box<Expr>),
    Neg(Box<Expr>),
    Not(Box<Expr>),
    Bin(&'static str, Box<Expr>, Box<Expr>),
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    Call(&'static str, Vec<Expr>),
}

/// Why an expression has no value, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct ExprError {
    pub span: Span,
    pub message: String,
    pub help: Option<String>,
    /// The cause is a key that is not in `config.json`; an alternative may still answer.
    pub missing_key: Option<String>,
}

impl ExprError {
    pub fn new(span: &Span, message: impl Into<String>) -> Self {
        Self { span: span.clone(), message: message.into(), help: None, missing_key: None }
    }
}

const FUNCTIONS: [&str; 6] = ["min", "max", "ceil", "sqrt", "ln", "has"];
const KEYWORDS: [&str; 9] = ["if", "then", "else", "and", "or", "not", "in", "true", "false"];
/// Deeper nesting is a mistake, and would end in a stack overflow.
const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone, PartialEq)]
enum Tok {
    Int(i64),
    Float(f64),
    Str(String),
    Name(String),
    Sym(&'static str),
}

const SYMBOLS: [&str; 19] =
    ["==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", ".", ",", "=", "!"];

fn lex(text: &str, base: usize) -> Result<Vec<(Tok, Span)>, ExprError> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let run = |f: &dyn Fn(char) -> bool| rest.find(|c| !f(c)).unwrap_or(rest.len());
        let (tok, len) = if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        } else if c.is_ascii_digit() {
            number(rest, base + at)?
        } else if c.is_alphabetic() || c == '_' {
            let n = run(&|c| c.is_alphanumeric() || c == '_');
            (Tok::Name(rest[..n].into()), n)
        } else if c == '\'' {
            let end = rest[1..].find('\'').ok_or_else(|| {
                ExprError::new(&(base + at..base + text.len()), "the text that starts here has no closing '")
            })?;
            (Tok::Str(rest[1..1 + end].into()), end + 2)
        } else if let Some(s) = SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
            (Tok::Sym(s), s.len())
        } else {
            let span = base + at..base + at + c.len_utf8();
            return Err(ExprError::new(&span, format!("`{c}` has no meaning in an expression")));
        };
        out.push((tok, base + at..base + at + len));
        at += len;
    }
    Ok(out)
}

fn number(rest: &str, at: usize) -> Result<(Tok, usize), ExprError> {
    let bytes = rest.as_bytes();
    let mut n = 0;
    while n < bytes.len() && (bytes[n].is_ascii_digit() || bytes[n] == b'.') {
        n += 1;
    }
    if n < bytes.len() && matches!(bytes[n], b'e' | b'E') {
        let sign = usize::from(matches!(bytes.get(n + 1), Some(b'+' | b'-')));
        let digits = rest[n + 1 + sign..].bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            n += 1 + sign + digits;
        }
    }
    let text = &rest[..n];
    let tok = text.parse().map(Tok::Int).ok().or_else(|| text.parse().map(Tok::Float).ok());
    tok.map(|t| (t, n)).ok_or_else(|| ExprError::new(&(at..at + n), format!("`{text}` is not a number")))
}

struct Parser {
    toks: Vec<(Tok, Span)>,
    at: usize,
    depth: usize,
    end: Span,
}

impl Expr {
    /// Parses the text of a word. Spans are those of the file (the word must not contain escapes).
    pub fn parse(word: &Word) -> Result<Expr, ExprError> {
        let toks = lex(&word.text, word.span.start)?;
        let end = word.span.end.max(word.span.start + 1);
        let mut p = Parser { toks, at: 0, depth: 0, end: end - 1..end };
        let e = p.expr()?;
        match p.toks.get(p.at) {
            None => Ok(e),
            Some((_, span)) => Err(ExprError::new(span, "the expression should end before this")),
        }
    }

    /// Calls `f` for each name the expression mentions.
    pub fn names(&self, f: &mut impl FnMut(&str)) {
        match &self.node {
            Node::Lit(_) => {}
            Node::Name(n) => f(n),
            Node::Field(a, _) | Node::Neg(a) | Node::Not(a) => a.names(f),
            Node::Index(a, b) | Node::Bin(_, a, b) => {
                a.names(f);
                b.names(f);
            }
            Node::If(a, b, c) => {
                a.names(f);
                b.names(f);
                c.names(f);
            }
            Node::Call(_, args) => args.iter().for_each(|a| a.names(f)),
        }
    }

    /// `a.b.c` as text, for messages about keys.
    pub fn path(&self) -> Option<String> {
        match &self.node {
            Node::Name(n) => Some(n.clone()),
            Node::Field(a, b) => Some(format!("{}.{b}", a.path()?)),
            _ => None,
        }
    }
}

impl Parser {
    fn peek_sym(&self, s: &str) -> bool {
        matches!(self.toks.get(self.at), Some((Tok::Sym(x), _)) if *x == s)
    }

    fn peek_word(&self, s: &str) -> bool {
        matches!(self.toks.get(self.at), Some((Tok::Name(x), _)) if x == s)
    }

    fn eat_sym(&mut self, s: &str) -> bool {
        let hit = self.peek_sym(s);
        self.at += usize::from(hit);
        hit
    }

    fn eat_word(&mut self, s: &str) -> bool {
        let hit = self.peek_word(s);
        self.at += usize::from(hit);
        hit
    }

    fn here(&self) -> Span {
        self.toks.get(self.at).map_or(self.end.clone(), |t| t.1.clone())
    }

    fn need_sym(&mut self, s: &str) -> Result<(), ExprError> {
        if self.eat_sym(s) { Ok(()) } else { Err(ExprError::new(&self.here(), format!("expected `{s}` here"))) }
    }

    fn need_word(&mut self, s: &str) -> Result<(), ExprError> {
        if self.eat_word(s) { Ok(()) } else { Err(ExprError::new(&self.here(), format!("expected `{s}` here"))) }
    }

    fn expr(&mut self) -> Result<Expr, ExprError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ExprError::new(&self.here(), format!("nested more than {MAX_DEPTH} deep")));
        }
        let start = self.here().start;
        let e = if self.eat_word("if") {
            let c = self.expr()?;
            self.need_word("then")?;
            let a = self.expr()?;
            self.need_word("else")?;
            let b = self.expr()?;
            let span = start..b.span.end;
            Expr { node: Node::If(c.into(), a.into(), b.into()), span }
        } else {
            self.binary(0)?
        };
        self.depth -= 1;
        Ok(e)
    }

    /// Binary operators by level; `not` sits between `and` and the comparisons.
    fn binary(&mut self, level: usize) -> Result<Expr, ExprError> {
        const LEVELS: [&[&str]; 5] =
            [&["or"], &["and"], &["==", "!=", "<=", ">=", "<", ">", "in"], &["+", "-"], &["*", "/", "%"]];
        if level == LEVELS.len() {
            return self.unary();
        }
        if level == 2 && self.peek_word("not") {
            let span = self.here();
            self.at += 1;
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(ExprError::new(&span, format!("nested more than {MAX_DEPTH} deep")));
            }
            let e = self.binary(2)?;
            self.depth -= 1;
            let span = span.start..e.span.end;
            return Ok(Expr { node: Node::Not(e.into()), span });
        }
        let mut left = self.binary(level + 1)?;
        while let Some(op) = LEVELS[level].iter().find(|op| self.peek_sym(op) || self.peek_word(op)) {
            self.at += 1;
            let right = self.binary(level + 1)?;
            let span = left.span.start..right.span.end;
            left = Expr { node: Node::Bin(op, left.into(), right.into()), span };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, ExprError> {
        let start = self.here().start;
        if self.eat_sym("-") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(ExprError::new(&self.here(), format!("nested more than {MAX_DEPTH} deep")));
            }
            let e = self.unary()?;
            self.depth -= 1;
            let span = start..e.span.end;
            return Ok(Expr { node: Node::Neg(e.into()), span });
        }
        let mut e = self.atom()?;
        loop {
            if self.eat_sym(".") {
                let span = self.here();
                let Some((Tok::Name(n), _)) = self.toks.get(self.at).cloned() else {
                    return Err(ExprError::new(&span, "expected a key after `.`"));
                };
                self.at += 1;
                let span = start..span.end;
                e = Expr { node: Node::Field(e.into(), n), span };
            } else if self.eat_sym("[") {
                let i = self.expr()?;
                let end = self.here().end;
                self.need_sym("]")?;
                e = Expr { node: Node::Index(e.into(), i.into()), span: start..end };
            } else {
                return Ok(e);
            }
        }
    }

    fn atom(&mut self) -> Result<Expr, ExprError> {
        let Some((tok, span)) = self.toks.get(self.at).cloned() else {
            return Err(ExprError::new(&self.end, "the expression ends too early"));
        };
        self.at += 1;
        let node = match tok {
            Tok::Int(i) => Node::Lit(Val::Int(i)),
            Tok::Float(x) => Node::Lit(Val::Float(x)),
            Tok::Str(s) => Node::Lit(Val::Str(s)),
            Tok::Name(n) if n == "true" || n == "false" => Node::Lit(Val::Bool(n == "true")),
            Tok::Name(n) if KEYWORDS.contains(&n.as_str()) => {
                return Err(ExprError::new(&span, format!("`{n}` cannot stand here")));
            }
            Tok::Name(n) if self.peek_sym("(") => return self.function(&n, span),
            Tok::Name(n) => Node::Name(n),
            Tok::Sym("(") => {
                let e = self.expr()?;
                let end = self.here().end;
                self.need_sym(")")?;
                return Ok(Expr { node: e.node, span: span.start..end });
            }
            Tok::Sym(s) => return Err(ExprError::new(&span, format!("`{s}` cannot stand here"))),
        };
        Ok(Expr { node, span })
    }

    fn function(&mut self, name: &str, span: Span) -> Result<Expr, ExprError> {
        let Some(known) = FUNCTIONS.iter().find(|f| **f == name) else {
            let hint = super::near::hint(name, FUNCTIONS);
            return Err(ExprError::new(&span, format!("no function `{name}`{hint}")));
        };
        self.need_sym("(")?;
        let mut args = vec![self.expr()?];
        while self.eat_sym(",") {
            args.push(self.expr()?);
        }
        let end = self.here().end;
        self.need_sym(")")?;
        let want = match *known {
            "min" | "max" => 2..=8,
            _ => 1..=1,
        };
        if !want.contains(&args.len()) {
            let need = if *want.start() == 1 { "one argument" } else { "two or more arguments" };
            return Err(ExprError::new(&(span.start..end), format!("`{name}` takes {need}")));
        }
        Ok(Expr { node: Node::Call(known, args), span: span.start..end })
    }
}
