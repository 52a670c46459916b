//! `coli bench quality`: the share of questions that a model answers word for word.

use super::args::{ActivationArgs, KvArgs, ModelArgs};
use super::exec::since;
use super::failure::Failure;
use super::files;
use super::progress::Progress;
use crate::formats::activation::Activations;
use crate::graph::{Role, Row};
use crate::ops::Kv;
use crate::run::{Device, Model, Session, Sizes, Want};
use crate::text::{ChatTemplate, Message, Stops, Tokenizer, argmax};
use serde::Deserialize;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args)]
#[command(after_help = "\
The list has one JSON object per line, {\"question\": ..., \"answer\": ...}. Answers are greedy; one that
differs in any character counts as wrong.

Examples:
  coli bench quality graphs/glm52.ron --list tests/models/dictionary_eval.jsonl --limit 100
  coli bench quality graphs/glm52.ron --model DIR --list words.jsonl --json")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    inputs: ActivationArgs,
    #[command(flatten)]
    caches: KvArgs,
    /// Questions with their exact answers
    #[arg(long, value_name = "FILE")]
    list: PathBuf,
    /// Only the first N
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Questions answered at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=8))]
    slots: u32,
    /// Print each wrong answer on stderr
    #[arg(long)]
    show: bool,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    question: String,
    answer: String,
}

/// A question being answered in a slot.
struct Active {
    index: usize,
    tokens: Vec<u32>,
    next: u32,
}

struct Bench {
    model: Model,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    stops: Stops,
    session: Session,
    questions: Vec<Question>,
    /// An answer longer than this is wrong; it need not be finished.
    longest: usize,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let model = args.model.load()?;
    let mut questions = questions(&args.list)?;
    questions.truncate(args.limit.unwrap_or(usize::MAX));
    if questions.is_empty() {
        return Err(Failure::Usage(format!("{} holds no questions", args.list.display())));
    }
    let start = Instant::now();
    let total = questions.len();
    let mut bench = Bench::new(model, questions, (args.slots, args.caches.kv), args.inputs.activations)?;
    let answers = bench.answer_all(&Progress::new())?;
    let mut right = 0;
    for (q, got) in bench.questions.iter().zip(&answers) {
        right += usize::from(*got == q.answer);
        if args.show && *got != q.answer {
            eprintln!("{}\n  wanted {}\n  got    {got}", q.question, q.answer);
        }
    }
    let weights = bench.model.weights.bytes();
    let bits = weights as f64 * 8.0 / bench.model.graph.weights.iter().map(|w| w.parameters()).sum::<u64>() as f64;
    let share = 100.0 * right as f64 / total as f64;
    let (activations, kv) = (args.inputs.activations.name(), args.caches.kv.name());
    let text = match args.json {
        true => json!({
            "schema": 1, "model": bench.model.source.label(), "questions": total, "exact": right, "share": share,
            "activations": activations, "kv": kv, "weight_bytes": weights, "bits_per_parameter": bits, "seconds": since(start),
        })
        .to_string(),
        false => format!(
            "{}: {right} of {total} exact, {share:.1} %; {bits:.2} bits per parameter, {activations} activations, {kv} caches",
            bench.model.source.label()
        ),
    };
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn questions(path: &std::path::Path) -> Result<Vec<Question>, Failure> {
    let text = files::text(path)?;
    let parse = |(i, line): (usize, &str)| {
        let bad = |e| Failure::Model(format!("{}:{}: {e}", path.display(), i + 1));
        serde_json::from_str(line).map_err(bad)
    };
    text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()).map(parse).collect()
}

impl Bench {
    fn new(
        model: Model,
        questions: Vec<Question>,
        (slots, kv): (u32, Kv),
        activations: Activations,
    ) -> Result<Self, Failure> {
        let tokenizer = Tokenizer::load(&model.source)?;
        let mut longest = 0;
        for q in &questions {
            longest = longest.max(tokenizer.encode(&q.answer)?.len() + 1);
        }
        let template = ChatTemplate::load(&model.source)?;
        let stops = Stops::load(&model.source, model.graph.vocab as usize)?;
        let ctx = model.max_positions().unwrap_or(4096).min(4096);
        let sizes = Sizes { ctx, slots, chunk: 128, kv };
        let session = Session::with_activations(&model, Device::Cpu, sizes, activations);
        Ok(Self { model, tokenizer, template, stops, session, questions, longest })
    }

    fn prompt(&self, question: &str) -> Result<Vec<u32>, Failure> {
        let text = match &self.template {
            None => question.to_string(),
            Some(t) => {
                let mut extra = serde_json::Map::new();
                extra.insert("enable_thinking".into(), false.into());
                t.render(&[Message::new("user", question)], true, &extra)?
            }
        };
        Ok(self.tokenizer.encode(&text)?)
    }

    /// Fills free slots with questions and decodes all slots in one step, until every answer has ended.
    fn answer_all(&mut self, progress: &Progress) -> Result<Vec<String>, Failure> {
        let bar = progress.prefill(self.questions.len()).with_message("questions");
        let slots = self.session.limits().slots as usize;
        let mut answers = vec![String::new(); self.questions.len()];
        let mut active: Vec<Option<Active>> = (0..slots).map(|_| None).collect();
        let mut waiting = 0..self.questions.len();
        loop {
            for (slot, place) in active.iter_mut().enumerate().filter(|(_, a)| a.is_none()) {
                if let Some(index) = waiting.next() {
                    *place = Some(self.start(slot as u32, index)?);
                }
            }
            if active.iter().all(Option::is_none) {
                break;
            }
            self.step(&mut active)?;
            for place in &mut active {
                let ended = |a: &Active| self.stops.contains(a.next) || a.tokens.len() > self.longest;
                if let Some(a) = place.take_if(|a| ended(a)) {
                    answers[a.index] = self.tokenizer.decode(&a.tokens, true)?;
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        Ok(answers)
    }

    fn start(&mut self, slot: u32, index: usize) -> Result<Active, Failure> {
        let prompt = self.prompt(&self.questions[index].question)?;
        self.session.reset(slot)?;
        let logits = self.session.append(slot, &prompt, Want::Last, &mut |_| {})?;
        Ok(Active { index, tokens: vec![], next: argmax(&logits)? })
    }

    /// One token for every slot that is answering.
    fn step(&mut self, active: &mut [Option<Active>]) -> Result<(), Failure> {
        let mut rows = vec![];
        for (slot, a) in active.iter().enumerate() {
            if let Some(a) = a.as_ref().filter(|a| !self.stops.contains(a.next)) {
                let slot = slot as u32;
                rows.push(Row { token: a.next, position: self.session.len(slot), slot, logits: true });
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let vocab = self.session.limits().vocab as usize;
        let logits = self.session.step(Role::Decode, rows.clone(), &mut |_, _| {})?;
        for (row, logits) in rows.iter().zip(logits.chunks_exact(vocab)) {
            if let Some(a) = &mut active[row.slot as usize] {
                a.tokens.push(a.next);
                a.next = argmax(logits)?;
            }
        }
        Ok(())
    }
}
