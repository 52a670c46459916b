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

impl Job<'_> {
    /// After a failure of the device: says what happened and feeds everything so far to another session.
    fn take_over(
        &mut self,
        error: RunError,
        all: &[u32],
        want: Want,
        fell_back: &mut bool,
    ) -> Result<Vec<f32>, Failure> {
        match (&error, self.fallback.take()) {
            (RunError::Vulkan(_), Some(make)) => {
                eprintln!("the device failed: {error}\ngoing on with the CPU from the same tokens");
                self.session = make();
                *fell_back = true;
                Ok(self.session.append(0, all, want, &mut |_| {})?)
            }
            _ => Err(error.into()),
        }
    }
}

/// Feeds the prompt and samples up to `n` tokens.
pub fn run(mut job: Job, prompt: &[u32], n: u32, progress: &Progress) -> Result<Outcome, Failure> {
    let start = Instant::now();
    let want = if job.logits.is_some() { Want::All } else { Want::Last };
    let bar = progress.prefill(prompt.len());
    let mut fell_back = false;
    let mut logits = match job.session.append(0, prompt, want, &mut |done| bar.set_position(done as u64)) {
        Err(e) => job.take_over(e, prompt, want, &mut fell_back)?,
        Ok(logits) => logits,
    };
    bar.finish_and_clear();
    let prefill = since(start);
    let mut printer = Printer { stream: job.tokenizer.map(|t| t.stream(true)), text: String::new(), print: job.stream };
    let mut tokens: Vec<u32> = vec![];
    let mut finish = Finish::Length;
    let (mut first_token, decode_start) = (prefill, Instant::now());
    // Rows without a token in the tokenizer are padding of the matrix and can never be meant.
    let named = job.tokenizer.map_or(job.vocab, |t| t.vocab_size().min(job.vocab));
    // Logits of the last position are not written: there is one row per token that has a next one.
    let mut pending = logits.split_off(logits.len() - job.vocab);
    write(&mut job.logits, &logits)?;
    while (tokens.len() as u32) < n {
        let next = job.sampler.pick(&pending[..named])?;
        if tokens.is_empty() {
            first_token = since(start);
        }
        if job.stops.contains(next) {
            finish = Finish::Stop;
            break;
        }
        tokens.push(next);
        printer.push(next)?;
        write(&mut job.logits, &pending)?;
        if tokens.len() as u32 == n {
            break;
        }
        let position = job.session.len(0);
        if position == job.session.limits().ctx {
            finish = Finish::Context;
            break;
        }
        let row = Row { token: next, position, slot: 0, logits: true };
        pending = match job.session.step(Role::Decode, vec![row], &mut |_, _| {}) {
            Err(e) => job.take_over(e, &[prompt, &tokens].concat(), Want::Last, &mut fell_back)?,
            Ok(logits) => logits,
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
