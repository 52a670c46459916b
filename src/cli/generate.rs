//! Prompt in, tokens out.

use super::exec::since;
use super::failure::Failure;
use super::logits::LogitsFile;
use super::progress::Progress;
use crate::graph::{Role, Row};
use crate::run::{RunError, Session, Want};
use crate::text::{Sampler, Stops, Tokenizer};
use std::io::Write;
use std::time::Instant;

/// One generation.
pub struct Job<'a> {
    pub session: Session,
    /// Makes a session that can take over when the device fails.
    pub fallback: Option<&'a dyn Fn() -> Session>,
    pub sampler: Sampler,
    pub stops: Stops,
    pub tokenizer: Option<&'a Tokenizer>,
    pub vocab: usize,
    pub logits: Option<LogitsFile>,
    /// Print text as it comes.
    pub stream: bool,
}

/// Why generation ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    Stop,
    Length,
    Context,
}

impl Finish {
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Context => "context",
        }
    }
}

/// What came out. Seconds throughout.
pub struct Outcome {
    /// Generated tokens; a stop token is not among them.
    pub tokens: Vec<u32>,
    pub text: String,
    pub finish: Finish,
    pub prefill: f64,
    pub decode: f64,
    pub first_token: f64,
    /// The device failed, and the CPU went on.
    pub fell_back: bool,
}

/// Text on its way to stdout, or ids where there is no tokenizer.
struct Printer<'a> {
    stream: Option<crate::text::Utf8Stream<'a>>,
    text: String,
    print: bool,
}

impl Printer<'_> {
    fn push(&mut self, id: u32) -> Result<(), Failure> {
        let part = match &mut self.stream {
            Some(s) => s.push(id)?,
            None if self.text.is_empty() => id.to_string(),
            None => format!(",{id}"),
        };
        self.put(&part)
    }

    fn put(&mut self, part: &str) -> Result<(), Failure> {
        self.text.push_str(part);
        if self.print {
            let mut out = std::io::stdout();
            out.write_all(part.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<String, Failure> {
        if let Some(s) = &mut self.stream {
            let rest = s.flush()?;
            self.put(&rest)?;
        }
        if self.print {
            let mut out = std::io::stdout();
            writeln!(out)?;
            out.flush()?;
        }
        Ok(self.text)
    }
}

/// What the next token comes from.
enum Next {
    /// The session has chosen it: nobody else wants the logits.
    Token(u32),
    /// Logits of the last position.
    Logits(Vec<f32>),
}

impl Job<'_> {
    /// Whether the most likely token is all that is wanted of a step.
    fn greedy(&self) -> bool {
        self.sampler.is_greedy() && self.logits.is_none()
    }

    /// Ids that may be chosen: rows without a token in the tokenizer are padding of the matrix and can never be meant.
    fn named(&self) -> usize {
        self.tokenizer.map_or(self.vocab, |t| t.vocab_size().min(self.vocab))
    }

    /// Appends tokens; what comes next. Logits are of all of them, or of the last one.
    fn feed(&mut self, tokens: &[u32], want: Want, done: &mut dyn FnMut(usize)) -> Result<Next, RunError> {
        if self.greedy()
            && let Some(token) = self.session.append_greedy(0, tokens, self.named() as u32, done)?
        {
            return Ok(Next::Token(token));
        }
        Ok(Next::Logits(self.session.append(0, tokens, want, done)?))
    }

    /// Appends a generated token; what comes next.
    fn decode(&mut self, row: Row) -> Result<Next, RunError> {
        if self.greedy() {
            let chosen = self.session.greedy(Role::Decode, vec![row], self.named() as u32)?;
            // One row that wants logits: one token.
            return Ok(Next::Token(chosen[0]));
        }
        Ok(Next::Logits(self.session.step(Role::Decode, vec![row], &mut |_, _| {})?))
    }

    /// After a failure of the device: says what happened and feeds everything so far to another session.
    fn take_over(&mut self, error: RunError, all: &[u32], want: Want, fell_back: &mut bool) -> Result<Next, Failure> {
        match (&error, self.fallback.take()) {
            (RunError::Vulkan(_), Some(make)) => {
                eprintln!("the device failed: {error}\ngoing on with the CPU from the same tokens");
                self.session = make();
                *fell_back = true;
                Ok(self.feed(all, want, &mut |_| {})?)
            }
            _ => Err(error.into()),
        }
    }

    /// Feeds the prompt. The logits of all positions but the last are written, if they are wanted: there is one row per
    /// token that has a next one.
    fn prefill(&mut self, prompt: &[u32], progress: &Progress, fell_back: &mut bool) -> Result<Next, Failure> {
        let want = if self.logits.is_some() { Want::All } else { Want::Last };
        let bar = progress.prefill(prompt.len());
        let mut next = match self.feed(prompt, want, &mut |done| bar.set_position(done as u64)) {
            Err(e) => self.take_over(e, prompt, want, fell_back)?,
            Ok(next) => next,
        };
        bar.finish_and_clear();
        if let Next::Logits(logits) = &mut next {
            let last = logits.split_off(logits.len() - self.vocab);
            write(&mut self.logits, logits)?;
            *logits = last;
        }
        Ok(next)
    }
}

/// Feeds the prompt and samples up to `n` tokens.
pub fn run(mut job: Job, prompt: &[u32], n: u32, progress: &Progress) -> Result<Outcome, Failure> {
    let start = Instant::now();
    let mut fell_back = false;
    let mut pending = job.prefill(prompt, progress, &mut fell_back)?;
    let prefill = since(start);
    let mut printer = Printer { stream: job.tokenizer.map(|t| t.stream(true)), text: String::new(), print: job.stream };
    let mut tokens: Vec<u32> = vec![];
    let mut finish = Finish::Length;
    let (mut first_token, decode_start) = (prefill, Instant::now());
    let named = job.named();
    while (tokens.len() as u32) < n {
        let next = match &pending {
            Next::Token(token) => *token,
            Next::Logits(logits) => job.sampler.pick(&logits[..named])?,
        };
        if tokens.is_empty() {
            first_token = since(start);
        }
        if job.stops.contains(next) {
            finish = Finish::Stop;
            break;
        }
        tokens.push(next);
        printer.push(next)?;
        if let Next::Logits(logits) = &pending {
            write(&mut job.logits, logits)?;
        }
        if tokens.len() as u32 == n {
            break;
        }
        let position = job.session.len(0);
        if position == job.session.limits().ctx {
            finish = Finish::Context;
            break;
        }
        pending = match job.decode(Row { token: next, position, slot: 0, logits: true }) {
            Err(e) => job.take_over(e, &[prompt, &tokens].concat(), Want::Last, &mut fell_back)?,
            Ok(next) => next,
        };
    }
    let decode = since(decode_start);
    if let Some(file) = job.logits {
        file.finish(&[prompt, &tokens].concat())?;
    }
    Ok(Outcome { text: printer.finish()?, tokens, finish, prefill, decode, first_token, fell_back })
}

fn write(file: &mut Option<LogitsFile>, logits: &[f32]) -> Result<(), Failure> {
    file.as_mut().map_or(Ok(()), |f| f.push(logits))
}
