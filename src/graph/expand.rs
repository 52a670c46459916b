//! Unrolls a program over its layers, checking every call in every layer.

use super::kinds;
use super::lint;
use super::node::{Checked, Edge, Graph, Node, Resource, State, StateId, Weight, WeightId};
use crate::ops::{self, Args, Bound, Env, Op, ResourceId, RowDim, Type, state_decl};
use crate::spec::arch::Repeat;
use crate::spec::expr::ExprError;
use crate::spec::{Arch, Call, Config, Diagnostic, Diagnostics, Expr, Report, Run, Scope, Span, Word, near};
use petgraph::graph::DiGraph;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const HEADING: &str = "this graph does not fit together";
/// More layers than any model has: an absurd config must not fill the memory.
const MAX_LAYERS: i64 = 4096;

/// Expands one program of a graph file for a model's configuration.
pub fn expand(arch: &Arch, config: &Config, program: &str) -> Result<Graph, Report> {
    let mut x = Expander::new(arch, config);
    x.check_family();
    // Everything else that is wrong would follow from the wrong family.
    std::mem::take(&mut x.diags).finish(&arch.source, HEADING)?;
    x.check_place();
    let Some((_, runs)) = arch.programs.iter().find(|(n, _)| n.text == program) else {
        let names: Vec<&str> = arch.programs.iter().map(|(n, _)| n.text.as_str()).collect();
        let span = arch.programs.first().map_or(0..0, |(n, _)| n.span.clone());
        let message = format!("no program `{program}`{}", near::hint(program, names));
        return Err(Report::one(&arch.source, HEADING, Diagnostic::new(span, message)));
    };
    x.start();
    x.runs(runs, None);
    x.finish(program)
}

/// Where the program is: inside which repetition, in which layer.
#[derive(Clone, Copy)]
struct Layer<'a> {
    number: u32,
    var: &'a str,
    prefixes: &'a [String],
}

struct Expander<'a> {
    arch: &'a Arch,
    config: &'a Config,
    diags: Diagnostics,
    env: Env,
    dag: DiGraph<Node, Edge>,
    resources: Vec<Resource>,
    weights: Vec<Weight>,
    weight_ids: HashMap<Vec<String>, WeightId>,
    states: Vec<State>,
    /// (state declaration, layer) to state.
    state_ids: BTreeMap<(usize, Option<u32>), StateId>,
    layer_nodes: Vec<(u32, Vec<String>, std::ops::Range<usize>)>,
    blocks_run: Vec<String>,
    seen_blocks: BTreeSet<String>,
    repeated: bool,
}

impl<'a> Expander<'a> {
    fn new(arch: &'a Arch, config: &'a Config) -> Self {
        Self {
            arch,
            config,
            diags: Diagnostics::default(),
            env: Env::new(),
            dag: DiGraph::new(),
            resources: vec![],
            weights: vec![],
            weight_ids: HashMap::new(),
            states: vec![],
            state_ids: BTreeMap::new(),
            layer_nodes: vec![],
            blocks_run: vec![],
            seen_blocks: BTreeSet::new(),
            repeated: false,
        }
    }

    fn scope<'s>(&'s self, layer: Option<Layer<'s>>) -> Scope<'s> {
        Scope {
            entries: &self.arch.config,
            config: self.config,
            config_at: &self.arch.config_at,
            var: layer.map(|l| (l.var, i64::from(l.number))),
        }
    }

    fn report(&mut self, e: ExprError) {
        let mut d = Diagnostic::new(e.span, e.message);
        d.help = e.help;
        self.diags.push(d);
    }

    /// The config must be of a family that the file answers for.
    fn check_family(&mut self) {
        let wanted = &self.arch.model_type;
        let Some(first) = wanted.first() else { return };
        let names: Vec<String> = wanted.iter().map(|w| format!("`{w}`")).collect();
        let found = match self.config.model_type() {
            Some(t) if wanted.iter().any(|w| w.text == t) => return,
            Some(t) => format!("is a `{t}` model"),
            None => "has no key `model_type`".into(),
        };
        let message = format!("{} {found}, but this file describes {}", self.config.name, names.join(", "));
        let d = Diagnostic::new(first.span.clone(), message);
        self.diags.push(d.help("give the graph file that fits the model, or add its model_type here"));
    }

    fn check_place(&mut self) {
        for (_, place) in &self.arch.place {
            if !["cpu", "gpu", "stream"].contains(&place.text.as_str()) {
                let hint = near::hint(&place.text, ["cpu", "gpu", "stream"]);
                self.diags.error(place.span.clone(), format!("no place `{place}`{hint}"));
            }
        }
    }

    /// Tokens and empty stacks are there from the start.
    fn start(&mut self) {
        let id = self.resource("tokens", Type::Tokens);
        self.env.insert("tokens".into(), Bound { value: Some((id, Type::Tokens)), defined: 0..0 });
        for (name, call) in &self.arch.stacks {
            let mut diags = std::mem::take(&mut self.diags);
            let size = state_decl::stack(call, self.scope(None), &mut diags);
            self.diags = diags;
            let value = size.map(|(width, max)| {
                let ty = Type::Stack { width, len: 0, max };
                (self.resource(&name.text, ty.clone()), ty)
            });
            self.env.insert(name.text.clone(), Bound { value, defined: name.span.clone() });
        }
    }

    fn resource(&mut self, name: &str, ty: Type) -> ResourceId {
        self.resources.push(Resource { name: name.into(), ty, producer: None });
        ResourceId(self.resources.len() as u32 - 1)
    }

    fn runs(&mut self, runs: &'a [Run], layer: Option<Layer<'_>>) {
        for run in runs {
            match run {
                Run::Block(name) => self.block(name, layer),
                Run::Pick { by, yes, no } => match self.scope(layer).bool(by) {
                    Ok(true) => self.runs(yes, layer),
                    Ok(false) => self.runs(no, layer),
                    Err(e) => self.report(e),
                },
                Run::Repeat(r) if layer.is_none() && !self.repeated => self.repeat(r),
                Run::Repeat(r) => {
                    self.diags.error(r.span.start..r.span.start + 6, "a program has one `Repeat`, outside of others");
                }
            }
        }
    }

    fn repeat(&mut self, r: &'a Repeat) {
        self.repeated = true;
        let count = match self.scope(None).int(&r.count) {
            Ok(n) if (1..=MAX_LAYERS).contains(&n) => n,
            Ok(n) => {
                let message = format!("{n} layers: the count must lie between 1 and {MAX_LAYERS}");
                return self.diags.error(r.count.span.clone(), message);
            }
            Err(e) => return self.report(e),
        };
        self.keep(&r.carry);
        let mut crossed: BTreeSet<&str> = BTreeSet::new();
        for number in 0..count as u32 {
            let bare = Layer { number, var: &r.var.text, prefixes: &[] };
            let prefixes: Vec<String> = r.weights.iter().filter_map(|w| self.fill(w, Some(bare))).collect();
            let empty = [String::new()];
            let prefixes = if prefixes.is_empty() { &empty[..] } else { &prefixes[..] };
            let first = self.dag.node_count();
            self.blocks_run.clear();
            self.runs(&r.run, Some(Layer { prefixes, ..bare }));
            let blocks = std::mem::take(&mut self.blocks_run);
            self.layer_nodes.push((number, blocks, first..self.dag.node_count()));
            self.keep(&r.carry);
            crossed.extend(r.carry.iter().map(|w| w.text.as_str()).filter(|n| self.env.contains_key(*n)));
        }
        let quiet = !self.diags.is_empty();
        for word in r.carry.iter().filter(|w| !quiet && !crossed.contains(w.text.as_str())) {
            self.diags.error(word.span.clone(), format!("`{word}` is carried, but nothing assigns it"));
        }
    }

    /// Only tokens and what is carried crosses the border of a layer.
    fn keep(&mut self, carry: &[Word]) {
        self.env.retain(|name, _| name == "tokens" || carry.iter().any(|w| w.text == *name));
    }

    /// Replaces `{expression}` in a weight prefix or pattern.
    fn fill(&mut self, word: &Word, layer: Option<Layer<'_>>) -> Option<String> {
        let mut out = String::new();
        let mut rest = word.text.as_str();
        let mut at = word.span.start;
        while let Some(open) = rest.find('{') {
            let Some(close) = rest[open..].find('}') else {
                self.diags.error(at + open..at + open + 1, "this `{` has no `}`");
                return None;
            };
            out.push_str(&rest[..open]);
            let start = at + open + 1;
            let inner = Word { text: rest[open + 1..open + close].into(), span: start..start + close - 1 };
            let value = Expr::parse(&inner).and_then(|e| self.scope(layer).eval(&e));
            match value {
                Ok(crate::spec::Val::Str(s)) => out.push_str(&s),
                Ok(v) => out.push_str(&v.to_string()),
                Err(e) => {
                    self.report(e);
                    return None;
                }
            }
            at += open + close + 1;
            rest = &rest[open + close + 1..];
        }
        out.push_str(rest);
        Some(out)
    }

    fn block(&mut self, name: &Word, layer: Option<Layer<'_>>) {
        let Some(block) = self.arch.block(&name.text) else {
            let hint = near::hint(&name.text, self.arch.blocks.iter().map(|b| b.name.text.as_str()));
            return self.diags.error(name.span.clone(), format!("no block `{name}`{hint}"));
        };
        self.seen_blocks.insert(name.text.clone());
        self.blocks_run.push(name.text.clone());
        let mut times: HashMap<&str, usize> = HashMap::new();
        for (target, call) in &block.steps {
            let n = times.entry(&target.text).or_default();
            *n += 1;
            let label = if *n == 1 { target.text.clone() } else { format!("{target}#{n}") };
            self.step(&block.name.text, target, &label, call, layer);
        }
    }

    fn step(&mut self, block: &str, target: &Word, label: &str, call: &'a Call, layer: Option<Layer<'_>>) {
        if target.text == "tokens" {
            return self.diags.error(target.span.clone(), "`tokens` is the input and cannot be assigned");
        }
        let value = self.check(call, layer).and_then(|c| {
            let ty = c.ty.clone();
            self.node(block, target, label, c, layer).map(|id| (id, ty))
        });
        self.env.insert(target.text.clone(), Bound { value, defined: target.span.clone() });
    }

    fn check(&mut self, call: &Call, layer: Option<Layer<'_>>) -> Option<Checked> {
        let formed = self.arch.formed(call);
        let call = formed.as_ref().unwrap_or(call);
        let none = [String::new()];
        let mut diags = std::mem::take(&mut self.diags);
        let mut args = Args {
            call,
            env: &self.env,
            scope: self.scope(layer),
            prefixes: layer.map_or(&none[..], |l| l.prefixes),
            states: &self.arch.state,
            diags: &mut diags,
            inputs: vec![],
            weights: vec![],
            state: None,
        };
        let checked = ops::check(&mut args);
        let Args { inputs, weights, state, .. } = args;
        self.diags = diags;
        let (op, ty) = checked?;
        Some(Checked { op, ty, inputs, weights, state })
    }

    fn node(
        &mut self,
        block: &str,
        target: &Word,
        label: &str,
        c: Checked,
        layer: Option<Layer<'_>>,
    ) -> Option<ResourceId> {
        let number = layer.map(|l| l.number);
        let index = petgraph::graph::NodeIndex::new(self.dag.node_count());
        let mut weights = vec![];
        for need in c.weights {
            weights.push(self.weight(need, number)?);
        }
        let state = match c.state {
            Some(need) => Some(self.state(need, number, index)?),
            None => None,
        };
        let output = self.resource(&target.text, c.ty);
        self.resources[output.0 as usize].producer = Some(index);
        let node = Node {
            op: c.op,
            layer: number,
            block: block.into(),
            name: label.into(),
            inputs: c.inputs,
            output,
            weights,
            state,
            span: target.span.clone(),
        };
        self.dag.add_node(node);
        for (input, resource) in self.dag[index].inputs.clone().into_iter().enumerate() {
            if let Some(producer) = self.resources[resource.0 as usize].producer {
                self.dag.add_edge(producer, index, Edge { input, resource });
            }
        }
        Some(output)
    }

    /// The same weight may be read by several nodes; it must have one shape.
    fn weight(&mut self, need: crate::ops::WeightNeed, layer: Option<u32>) -> Option<WeightId> {
        if let Some(id) = self.weight_ids.get(&need.names) {
            let first = &self.weights[id.0 as usize].need;
            if (&first.shape, first.experts, first.at_least) == (&need.shape, need.experts, need.at_least) {
                return Some(*id);
            }
            let message =
                format!("`{}` is read as {:?} here, but as {:?} elsewhere", need.names[0], need.shape, first.shape);
            let d = Diagnostic::new(need.span.clone(), message)
                .label(first.span.clone(), format!("{:?} here", first.shape));
            self.diags.push(d);
            return None;
        }
        let id = WeightId(self.weights.len() as u32);
        self.weight_ids.insert(need.names.clone(), id);
        self.weights.push(Weight { need, layer });
        Some(id)
    }

    fn state(
        &mut self,
        need: crate::ops::StateNeed,
        layer: Option<u32>,
        writer: petgraph::graph::NodeIndex,
    ) -> Option<StateId> {
        let name = &self.arch.state[need.decl].0;
        if self.state_ids.contains_key(&(need.decl, layer)) {
            self.diags.error(need.span, format!("the state `{name}` is written twice in one layer"));
            return None;
        }
        let id = StateId(self.states.len() as u32);
        self.state_ids.insert((need.decl, layer), id);
        self.states.push(State { name: name.text.clone(), layer, kind: need.kind, writer });
        Some(id)
    }

    /// The program must end with logits.
    fn logits(&mut self, program: &str) -> Option<(ResourceId, u64)> {
        let span: Span =
            self.arch.programs.iter().find(|(n, _)| n.text == program).map_or(0..0, |(n, _)| n.span.clone());
        match self.env.get("logits").cloned() {
            None => {
                self.diags.error(span, "the program must end with a resource named `logits`");
                None
            }
            Some(Bound { value: None, .. }) => None,
            Some(Bound { value: Some((id, ty)), defined }) => match ty {
                Type::Tensor { rows: RowDim::Outputs, dims } if dims.len() == 1 => Some((id, dims[0])),
                other => {
                    self.diags.error(defined, format!("`logits` is {other}, but must be [Outputs, vocab]: use LmHead"));
                    None
                }
            },
        }
    }

    fn finish(mut self, program: &str) -> Result<Graph, Report> {
        let logits = self.logits(program);
        let ignore: Vec<String> = self.arch.ignore.iter().filter_map(|w| self.fill(w, None)).collect();
        if self.diags.is_empty() {
            lint::unused(
                self.arch,
                &self.dag,
                &self.resources,
                &self.states,
                &self.seen_blocks,
                logits,
                &mut self.diags,
            );
            self.check_vocab(logits);
        }
        self.diags.finish(&self.arch.source, HEADING)?;
        let (logits, vocab) = logits.unwrap_or((ResourceId(0), 0));
        let kinds = kinds::find(&self.dag, &self.weights, &self.layer_nodes);
        Ok(Graph {
            source: self.arch.source.clone(),
            program: program.into(),
            dag: self.dag,
            resources: self.resources,
            weights: self.weights,
            states: self.states,
            kinds,
            layers: self.layer_nodes.len() as u32,
            logits,
            vocab,
            ignore,
            place: self.arch.place.iter().map(|(p, w)| (p.text.clone(), w.text.clone())).collect(),
        })
    }

    /// A token id that comes out must be able to go in again.
    fn check_vocab(&mut self, logits: Option<(ResourceId, u64)>) {
        let Some((_, vocab)) = logits else { return };
        for node in self.dag.node_weights() {
            if let Op::EmbedRow { vocab: rows, .. } = &node.op
                && *rows as u64 != vocab
            {
                let message = format!("the embedding has {rows} rows, but there are {vocab} logits");
                self.diags.error(node.span.clone(), message);
            }
        }
    }
}
