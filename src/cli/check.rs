//! `coli check`: every value that a device makes, against the oracle.

use super::args::{DeviceArgs, ModelArgs};
use super::device;
use super::failure::Failure;
use crate::graph::{Node, Role, Row, Value};
use crate::run::vulkan::Options;
use crate::run::{Device, Model, RunError, Session, Sizes};
use crate::text::Tokenizer;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

#[derive(clap::Args)]
#[command(after_help = "\
A short prompt and a few decoded tokens run on the device and on the oracle; every tensor is compared by relative
L2, every choice (experts, positions, tokens) must be the same. Exit code 6 if anything differs.

Examples:
  coli check graphs/glm52.ron                       # the demo model on the best GPU
  coli check graphs/qwen3_moe.ron --model DIR --device vulkan:1 --all")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    on: DeviceArgs,
    /// Largest relative L2 that passes
    #[arg(long, value_name = "E", default_value_t = 1e-4)]
    tolerance: f64,
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
}

/// A step's values by node.
type Values = HashMap<String, Value>;

const TEXT: &str = "The quick brown fox jumps over the lazy dog, and what does it mean?";
const PROMPT: usize = 20;
const DECODED: usize = 4;

pub fn run(args: Args) -> Result<(), Failure> {
    let model = args.model.load()?;
    let tokens = tokens(&model, PROMPT + DECODED)?;
    let sizes = Sizes { ctx: tokens.len() as u32, slots: 1, chunk: PROMPT as u32 };
    let mut oracle = Session::new(&model, Device::Oracle, sizes);
    let (mut session, name) = match args.on.device {
        device::Choice::Cpu if !args.on.place.is_empty() => return Err(device::nothing_to_choose()),
        device::Choice::Cpu => (Session::new(&model, Device::Cpu, sizes), "cpu".to_string()),
        device::Choice::Oracle => return Err(Failure::Usage("the oracle is what devices are compared with".into())),
        choice => {
            let number = if let device::Choice::Vulkan(n) = choice { n } else { None };
            let opened = device::open(number)?;
            let name = opened.capabilities().name.clone();
            let options = Options { rules: args.on.place.clone(), observe: true, ..Options::default() };
            (Session::on_vulkan(&model, opened, sizes, &options)?, name)
        }
    };
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
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
        at += tokens.len();
        let (want, want_logits) = values(&mut oracle, role, &rows)?;
        let (got, got_logits) = values(&mut session, role, &rows)?;
        compare(&want, &got, &mut found);
        different.extend(tokens_differ(&want_logits, &got_logits, rows.len(), at - tokens.len()));
    }
    report(&args, &name, &found, &different)
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

fn values(session: &mut Session, role: Role, rows: &[Row]) -> Result<(Values, Vec<f32>), RunError> {
    let mut seen = Values::new();
    let mut watch = |n: &Node, v: &Value| drop(seen.insert(n.path(), v.clone()));
    let logits = session.step(role, rows.to_vec(), &mut watch)?;
    Ok((seen, logits))
}

fn compare(want: &Values, got: &Values, found: &mut BTreeMap<String, Found>) {
    for (name, got) in got {
        let Some(want) = want.get(name) else { continue };
        let entry = found.entry(name.clone()).or_default();
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

fn report(args: &Args, name: &str, found: &BTreeMap<String, Found>, tokens: &[String]) -> Result<(), Failure> {
    let mut rows: Vec<(&String, &Found)> = found.iter().filter(|(_, f)| f.compared > 0).collect();
    rows.sort_by(|a, b| {
        (b.1.choice.is_some(), b.1.error)
            .partial_cmp(&(a.1.choice.is_some(), a.1.error))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let bad = rows.iter().filter(|(_, f)| f.choice.is_some() || f.error > args.tolerance).count() + tokens.len();
    let mut out = std::io::stdout().lock();
    let shown = if args.all { rows.len() } else { rows.len().min(10) };
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
        args.tolerance
    )?;
    if bad > 0 {
        return Err(Failure::Check(format!("{bad} values differ from the oracle")));
    }
    Ok(())
}
