//! The sections of a graph file.

use super::diag::{Diagnostic, Diagnostics, Report};
use super::expr::Expr;
use super::near;
use super::scope::ConfigEntry;
use super::source::{Source, Span, Word};
use super::tree::{self, Call, Item};
use std::sync::Arc;

/// A graph file: what it says, with every word's place, and nothing checked against a model yet.
#[derive(Debug, Clone)]
pub struct Arch {
    pub source: Arc<Source>,
    /// `model_type` values of `config.json` that this file answers for.
    pub model_type: Vec<Word>,
    /// Inner objects of `config.json` that are searched before its top level.
    pub config_at: Vec<String>,
    pub config: Vec<ConfigEntry>,
    pub state: Vec<(Word, Call)>,
    pub stacks: Vec<(Word, Call)>,
    /// Operator calls with some fields filled in; a block that calls one by name adds the rest.
    pub forms: Vec<(Word, Call)>,
    pub blocks: Vec<Block>,
    pub programs: Vec<(Word, Vec<Run>)>,
    /// Globs of tensors that are left out on purpose; `{expression}` is filled in.
    pub ignore: Vec<Word>,
    /// Placement hints: node pattern and place.
    pub place: Vec<(Word, Word)>,
}

/// Straight-line code: `name: Op(...)`, top to bottom.
#[derive(Debug, Clone)]
pub struct Block {
    pub name: Word,
    pub steps: Vec<(Word, Call)>,
}

/// What a program runs.
#[derive(Debug, Clone)]
pub enum Run {
    Block(Word),
    /// One of two lists, by a condition.
    Pick {
        by: Expr,
        yes: Vec<Run>,
        no: Vec<Run>,
    },
    Repeat(Repeat),
}

/// The layers: `run` once for each value of `var`, handing on only what `carry` names.
#[derive(Debug, Clone)]
pub struct Repeat {
    pub var: Word,
    pub count: Expr,
    /// Alternatives of the prefix in front of every weight name inside.
    pub weights: Vec<Word>,
    pub carry: Vec<Word>,
    pub run: Vec<Run>,
    pub span: Span,
}

const HEADING: &str = "this graph file does not fit together";
const SECTIONS: [&str; 10] =
    ["model_type", "config_at", "config", "state", "stacks", "forms", "blocks", "programs", "ignore", "place"];

impl Arch {
    /// The call with the fields of its form, if it names one; its own fields come first and win.
    pub fn formed(&self, call: &Call) -> Option<Call> {
        let (_, form) = self.forms.iter().find(|(n, _)| n.text == call.name.text)?;
        let own = |key: &Word| call.fields.iter().any(|(k, _)| k.text == key.text);
        let fields = call.fields.iter().chain(form.fields.iter().filter(|(k, _)| !own(k))).cloned().collect();
        let name = Word { text: form.name.text.clone(), span: call.name.span.clone() };
        Some(Call { name, fields, span: call.span.clone() })
    }

    /// Reads a graph file. Every structural mistake is collected; names and shapes are `graph`'s business.
    pub fn parse(source: Arc<Source>) -> Result<Arch, Report> {
        let item = tree::read(&source)?;
        let mut r = Reader { diags: Diagnostics::default() };
        let arch = r.arch(source.clone(), item);
        r.diags.finish(&source, HEADING)?;
        arch.ok_or_else(|| {
            let item = Diagnostic::new(0..1.min(source.text.len()), "a graph file is one `Arch(...)`");
            Report::one(&source, HEADING, item)
        })
    }

    pub fn block(&self, name: &str) -> Option<&Block> {
        self.blocks.iter().find(|b| b.name.text == name)
    }
}

struct Reader {
    diags: Diagnostics,
}

impl Reader {
    fn arch(&mut self, source: Arc<Source>, item: Item) -> Option<Arch> {
        let call = match item {
            Item::Call(c) if c.name.text == "Arch" => c,
            other => {
                self.diags.error(other.span(), "a graph file is one `Arch(...)`");
                return None;
            }
        };
        let mut arch = Arch {
            source,
            model_type: vec![],
            config_at: vec![],
            config: vec![],
            state: vec![],
            stacks: vec![],
            forms: vec![],
            blocks: vec![],
            programs: vec![],
            ignore: vec![],
            place: vec![],
        };
        let mut seen: Vec<Word> = vec![];
        for (key, item) in call.fields {
            if let Some(first) = seen.iter().find(|w| w.text == key.text) {
                let d = Diagnostic::new(key.span.clone(), format!("section `{key}` stands twice"));
                self.diags.push(d.label(first.span.clone(), "first here"));
            }
            self.section(&mut arch, &key, item);
            seen.push(key);
        }
        for need in ["model_type", "config", "blocks", "programs"] {
            if !seen.iter().any(|w| w.text == need) {
                self.diags.error(call.name.span.clone(), format!("the section `{need}` is missing"));
            }
        }
        Some(arch)
    }

    fn section(&mut self, arch: &mut Arch, key: &Word, item: Item) {
        match key.text.as_str() {
            "model_type" => arch.model_type = self.texts(item),
            "config_at" => arch.config_at = self.texts(item).into_iter().map(|w| w.text).collect(),
            "config" => arch.config = self.config(item),
            "state" => arch.state = self.calls(item),
            "stacks" => arch.stacks = self.calls(item),
            "forms" => {
                arch.forms = self.calls(item);
                self.unique(arch.forms.iter().map(|f| &f.0), "form");
            }
            "blocks" => {
                for (name, body) in self.map(item) {
                    let steps = self.calls(body);
                    arch.blocks.push(Block { name, steps });
                }
                self.unique(arch.blocks.iter().map(|b| &b.name), "block");
            }
            "programs" => {
                for (name, body) in self.map(item) {
                    let run = self.runs(body);
                    arch.programs.push((name, run));
                }
            }
            "ignore" => arch.ignore = self.texts(item),
            "place" => {
                for (pattern, place) in self.map(item) {
                    if let Some(place) = self.word(place) {
                        arch.place.push((pattern, place));
                    }
                }
            }
            other => {
                let hint = near::hint(other, SECTIONS);
                self.diags.error(key.span.clone(), format!("no section `{other}`{hint}"));
            }
        }
    }

    fn unique<'a>(&mut self, names: impl Iterator<Item = &'a Word>, what: &str) {
        let mut seen: Vec<&Word> = vec![];
        for name in names {
            if let Some(first) = seen.iter().find(|w| w.text == name.text) {
                let d = Diagnostic::new(name.span.clone(), format!("{what} `{name}` is defined twice"));
                self.diags.push(d.label(first.span.clone(), "first here"));
            }
            seen.push(name);
        }
    }

    fn expect(&mut self, item: &Item, wanted: &str) {
        self.diags.error(item.span(), format!("expected {wanted}, found {}", item.kind()));
    }

    fn map(&mut self, item: Item) -> Vec<(Word, Item)> {
        match item {
            Item::Map(entries, _) => entries,
            other => {
                self.expect(&other, "a map `{ name: ... }`");
                vec![]
            }
        }
    }

    fn calls(&mut self, item: Item) -> Vec<(Word, Call)> {
        let mut out = vec![];
        for (name, value) in self.map(item) {
            match value {
                Item::Call(call) => out.push((name, call)),
                other => self.expect(&other, "an operator call `Op(...)`"),
            }
        }
        out
    }

    fn word(&mut self, item: Item) -> Option<Word> {
        match item {
            Item::Word(w) | Item::Text(w) => Some(w),
            other => {
                self.expect(&other, "a name");
                None
            }
        }
    }

    /// One text, or a list of them.
    fn texts(&mut self, item: Item) -> Vec<Word> {
        match item {
            Item::List(items, _) => items.into_iter().filter_map(|i| self.word(i)).collect(),
            other => self.word(other).into_iter().collect(),
        }
    }

    fn expr(&mut self, word: &Word) -> Option<Expr> {
        match Expr::parse(word) {
            Ok(e) => Some(e),
            Err(e) => {
                self.diags.error(e.span, e.message);
                None
            }
        }
    }

    fn config(&mut self, item: Item) -> Vec<ConfigEntry> {
        let mut out = vec![];
        for (name, value) in self.map(item) {
            let span = value.span();
            let texts = self.texts(value);
            let alternatives: Vec<Expr> = texts.iter().filter_map(|w| self.expr(w)).collect();
            if alternatives.len() == texts.len() && !texts.is_empty() {
                out.push(ConfigEntry { name, alternatives, span });
            }
        }
        self.unique(out.iter().map(|e| &e.name), "config name");
        out
    }

    fn runs(&mut self, item: Item) -> Vec<Run> {
        match item {
            Item::List(items, _) => items.into_iter().filter_map(|i| self.run(i)).collect(),
            other => self.run(other).into_iter().collect(),
        }
    }

    fn run(&mut self, item: Item) -> Option<Run> {
        match item {
            Item::Word(w) => Some(Run::Block(w)),
            Item::Call(c) if c.name.text == "Pick" => self.pick(c),
            Item::Call(c) if c.name.text == "Repeat" => self.repeat(c),
            Item::Call(c) => {
                let hint = near::hint(&c.name.text, ["Pick", "Repeat"]);
                self.diags.error(c.name.span, format!("a program runs blocks, `Pick` and `Repeat`{hint}"));
                None
            }
            other => {
                self.expect(&other, "a block name, `Pick(...)` or `Repeat(...)`");
                None
            }
        }
    }

    fn pick(&mut self, call: Call) -> Option<Run> {
        let (mut by, mut yes, mut no) = (None, vec![], vec![]);
        for (key, item) in call.fields {
            match key.text.as_str() {
                "by" => by = self.word(item).and_then(|w| self.expr(&w)),
                "yes" => yes = self.runs(item),
                "no" => no = self.runs(item),
                other => {
                    let hint = near::hint(other, ["by", "yes", "no"]);
                    self.diags.error(key.span, format!("`Pick` has no field `{other}`{hint}"));
                }
            }
        }
        if by.is_none() {
            self.diags.error(call.name.span, "`Pick` needs `by`, a condition");
        }
        Some(Run::Pick { by: by?, yes, no })
    }

    fn repeat(&mut self, call: Call) -> Option<Run> {
        const FIELDS: [&str; 5] = ["var", "count", "weights", "carry", "run"];
        let (mut var, mut count) = (None, None);
        let (mut weights, mut carry, mut run) = (vec![], vec![], vec![]);
        for (key, item) in call.fields {
            match key.text.as_str() {
                "var" => var = self.word(item),
                "count" => count = self.word(item).and_then(|w| self.expr(&w)),
                "weights" => weights = self.texts(item),
                "carry" => carry = self.texts(item),
                "run" => run = self.runs(item),
                other => {
                    let hint = near::hint(other, FIELDS);
                    self.diags.error(key.span, format!("`Repeat` has no field `{other}`{hint}"));
                }
            }
        }
        for (name, there) in
            [("var", var.is_some()), ("count", count.is_some()), ("carry", !carry.is_empty()), ("run", !run.is_empty())]
        {
            if !there {
                self.diags.error(call.name.span.clone(), format!("`Repeat` needs `{name}`"));
            }
        }
        Some(Run::Repeat(Repeat { var: var?, count: count?, weights, carry, run, span: call.span }))
    }
}
