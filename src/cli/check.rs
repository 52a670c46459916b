//! `coli check`: every value that a device makes, against the oracle.

use super::args::{ActivationArgs, DeviceArgs, KvArgs, ModelArgs};
use super::device::{self, Choice};
use super::failure::Failure;
use crate::formats::activation::Activations;
use crate::graph::{Node, Role, Row, Value};
use crate::ops::{Kv, Op};
use crate::run::vulkan::Options;
use crate::run::{Device, Lockstep, Model, RunError, Session, Sizes};
use crate::text::Tokenizer;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

#[derive(clap::Args)]
#[command(after_help = "\
A short prompt and a few decoded tokens run on the device and on the oracle; every tensor is compared by relative
L2, every choice (experts, positions, tokens) must be the same. Exit code 6 if anything differs.
With --activations int8 every node gets the oracle's values as its inputs, since a last bit may decide a code;
experts, which take int8 once more inside, may differ by one code: 1/127. With --kv f16 the CPU is compared in the same
way; on a GPU, values that differ in a last bit may round apart and stay apart, so 1e-3 passes there.

Examples:
  coli check graphs/glm52.ron                       # the demo model on the best GPU
  coli check graphs/qwen3_moe.ron --model DIR --device vulkan:1 --all")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    on: DeviceArgs,
    #[command(flatten)]
    inputs: ActivationArgs,
    #[command(flatten)]
    caches: KvArgs,
    /// Largest relative L2 that passes (default: 1e-4, with --kv f16 on a GPU 1e-3)
    #[arg(long, value_name = "E")]
    tolerance: Option<f64>,
    /// Print every node, not only the ten worst
    #[arg(long)]
    all: bool,
}

/// What was found at a node over all steps.
#[derive(Default, Clone)]
struct Found {
    error: f64,
    compared: usize,
    /// A choice that differs.
    choice: Option<String>,
    /// Values are rounded to int8 inside of the node, where they differ already.
    inner: bool,
}

impl Found {
    fn is_bad(&self, tolerance: f64) -> bool {
        let tolerance = if self.inner { tolerance.max(ONE_CODE) } else { tolerance };
        self.choice.is_some() || self.error > tolerance
    }
}

/// By node.
type Findings = BTreeMap<String, Found>;

/// A vector of which one int8 code is rounded the other way differs by 1/127 of its largest value, so at most by this
/// share of its length, and a product passes such a share on.
const ONE_CODE: f64 = 1.0 / 127.0;

/// Relative L2 that a device's sums may be off by.
const TOLERANCE: f64 = 1e-4;
/// The same where values that differ in a last bit were rounded apart in caches of f16, layer after layer. Were all of them, each
/// would be off by 3e-4 in the mean.
const ROUNDED_APART: f64 = 1e-3;

const TEXT: &str = "The quick brown fox jumps over the lazy dog, and what does it mean?";
const PROMPT: usize = 20;
const DECODED: usize = 4;

pub fn run(args: Args) -> Result<(), Failure> {
    let activations = args.inputs.on(args.on.device)?;
    let model = args.model.load()?;
    let tokens = tokens(&model, PROMPT + DECODED)?;
    let sizes = Sizes { ctx: tokens.len() as u32, slots: 1, chunk: PROMPT as u32, kv: args.caches.kv };
    let (mut pair, name) = Pair::new(&args, &model, sizes, activations)?;
    let mut found = Findings::new();
    let mut different = vec![];
    let (prompt, decoded) = tokens.split_at(PROMPT);
    let steps = std::iter::once((Role::Prompt, prompt)).chain(decoded.chunks(1).map(|t| (Role::Decode, t)));
    let mut at = 0;
    for (role, tokens) in steps {
        let rows: Vec<Row> = tokens
            .iter()
            .enumerate()
            .map(|(i, t)| Row { token: *t, position: (at + i) as u32, slot: 0, logits: true })
            .collect();
        let [want, got] = pair.step(role, rows, &mut found)?;
        different.extend(tokens_differ(&want, &got, tokens.len(), at));
        at += tokens.len();
    }
    let apart = args.caches.kv == Kv::F16 && args.on.device != Choice::Cpu;
    let tolerance = args.tolerance.unwrap_or(if apart { ROUNDED_APART } else { TOLERANCE });
    report((args.all, tolerance), &name, &found, &different)
}

/// What is compared.
enum Pair {
    /// The oracle and a device, each with its own values all the way.
    Apart(Box<[Session; 2]>),
    /// The same inputs at every node, where a last bit may decide what it is rounded to: see [`Lockstep`].
    Together(Box<Lockstep>, Activations),
}

impl Pair {
    /// The pair, and the device's name.
    fn new(args: &Args, model: &Model, sizes: Sizes, activations: Activations) -> Result<(Self, String), Failure> {
        let (session, name) = match args.on.device {
            Choice::Cpu if !args.on.place.is_empty() => return Err(device::nothing_to_choose()),
            Choice::Cpu if activations == Activations::Int8 || sizes.kv == Kv::F16 => {
                let pair = Pair::Together(Box::new(Lockstep::new(model, sizes, activations)), activations);
                let (inputs, kv) = (activations.name(), sizes.kv.name());
                let name = format!("cpu, {inputs} activations, {kv} caches, every node from the oracle's values");
                return Ok((pair, name));
            }
            Choice::Cpu => (Session::new(model, Device::Cpu, sizes), "cpu".to_string()),
            Choice::Oracle => return Err(Failure::Usage("the oracle is what devices are compared with".into())),
            choice => {
                let number = if let Choice::Vulkan(n) = choice { n } else { None };
                let opened = device::open(number)?;
                let name = opened.capabilities().name.clone();
                let options = Options { rules: args.on.place.clone(), observe: true, ..Options::default() };
                (Session::on_vulkan(model, opened, sizes, &options)?, name)
            }
        };
        Ok((Pair::Apart(Box::new([Session::new(model, Device::Oracle, sizes), session])), name))
    }

    /// Runs a step on both and notes what differs; logits of the oracle and of the device.
    fn step(&mut self, role: Role, rows: Vec<Row>, found: &mut Findings) -> Result<[Vec<f32>; 2], RunError> {
        match self {
            Pair::Apart(sessions) => {
                let [oracle, session] = &mut **sessions;
                let mut values: HashMap<String, Value> = HashMap::new();
                let want = oracle.step(role, rows.clone(), &mut |n, v| drop(values.insert(n.path(), v.clone())))?;
                let mut see = |n: &Node, got: &Value| {
                    if let Some(want) = values.get(&n.path()) {
                        compare(want, got, found.entry(n.path()).or_default());
                    }
                };
                let got = session.step(role, rows, &mut see)?;
                Ok([want, got])
            }
            Pair::Together(pair, activations) => pair.step(role, rows, &mut |n, want, got| {
                let entry = found.entry(n.path()).or_default();
                entry.inner = *activations == Activations::Int8 && matches!(n.op, Op::MoeExperts { .. });
                compare(want, got, entry);
            }),
        }
    }
}

/// Tokens to run: real text where there is a tokenizer, else ids that repeat.
pub fn tokens(model: &Model, n: usize) -> Result<Vec<u32>, Failure> {
    let mut ids = match Tokenizer::load(&model.source) {
        Ok(t) => t.encode(TEXT)?,
        Err(_) => (0..64).map(|i| (i * 37 + 5) % model.graph.vocab as u32).collect(),
    };
    ids = ids.iter().copied().cycle().take(n).collect();
    Ok(ids)
}

fn compare(want: &Value, got: &Value, entry: &mut Found) {
    match (want, got) {
        (Value::Tensor(w), Value::Tensor(g)) => {
            entry.error = entry.error.max(relative_l2(g, w));
            entry.compared += 1;
        }
        (Value::Route { ids: w, .. }, Value::Route { ids: g, .. }) => {
            entry.compared += 1;
            if w != g {
                entry.choice = Some("chooses other experts".into());
            }
        }
        (Value::Selection(w), Value::Selection(g)) => {
            entry.compared += 1;
            if w != g {
                entry.choice = Some("selects other positions".into());
            }
        }
        _ => {}
    }
}

fn relative_l2(got: &[f32], want: &[f32]) -> f64 {
    if got.len() != want.len() || got.iter().any(|x| !x.is_finite()) {
        return f64::INFINITY;
    }
    let diff: f64 = got.iter().zip(want).map(|(g, w)| (f64::from(*g) - f64::from(*w)).powi(2)).sum();
    let norm: f64 = want.iter().map(|w| f64::from(*w).powi(2)).sum();
    if norm == 0.0 { diff.sqrt() } else { (diff / norm).sqrt() }
}

fn tokens_differ(want: &[f32], got: &[f32], rows: usize, first: usize) -> Vec<String> {
    let vocab = want.len() / rows.max(1);
    let best = |l: &[f32]| crate::text::argmax(l).ok();
    let pairs = want.chunks_exact(vocab).zip(got.chunks_exact(vocab)).enumerate();
    let wrong = pairs.filter(|(_, (w, g))| best(w) != best(g));
    wrong.map(|(i, _)| format!("another token after position {}", first + i)).collect()
}

fn report((all, tolerance): (bool, f64), name: &str, found: &Findings, tokens: &[String]) -> Result<(), Failure> {
    let mut rows: Vec<(&String, &Found)> = found.iter().filter(|(_, f)| f.compared > 0).collect();
    rows.sort_by(|a, b| {
        (b.1.choice.is_some(), b.1.error)
            .partial_cmp(&(a.1.choice.is_some(), a.1.error))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let bad = rows.iter().filter(|(_, f)| f.is_bad(tolerance)).count() + tokens.len();
    let mut out = std::io::stdout().lock();
    let shown = if all { rows.len() } else { rows.len().min(10) };
    for (node, f) in &rows[..shown] {
        writeln!(out, "{:9.2e}  {node}{}", f.error, f.choice.as_ref().map_or(String::new(), |c| format!("  {c}")))?;
    }
    for t in tokens {
        writeln!(out, "{t}")?;
    }
    writeln!(
        out,
        "{name}: {} nodes compared with the oracle over {} steps, {bad} differ (tolerance {:.0e})",
        rows.len(),
        1 + DECODED,
        tolerance
    )?;
    if bad > 0 {
        return Err(Failure::Check(format!("{bad} values differ from the oracle")));
    }
    Ok(())
}
