//! `coli exec`: runs a model and prints what it answers.

use super::args::{ActivationArgs, DeviceArgs, KvArgs, ModelArgs};
use super::device::{self, Choice};
use super::failure::Failure;
use super::files;
use super::generate::{self, Finish, Job, Outcome};
use super::logits::LogitsFile;
use super::progress::Progress;
use crate::run::vulkan::{Fault, Options};
use crate::run::{Device, Model, Session, Sizes};
use crate::text::{ChatTemplate, GenerationDefaults, Message, Sampler, Sampling, Stops, Tokenizer};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  coli exec graphs/glm52.ron --prompt 'What does hummingbird mean?'     # the embedded demo model
  coli exec glm52 --prompt 'Define ocean.' --think                      # a built-in graph, by name
  coli exec graphs/qwen3.ron --model DIR --prompt-file - < question.txt
  coli exec graphs/glm52.ron --model DIR --tokens 1,2,3 -n 8 --logits-out logits.safetensors")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// What to say to the model
    #[arg(long, value_name = "TEXT", group = "input")]
    prompt: Option<String>,
    /// The same from a file; - reads stdin
    #[arg(long, value_name = "FILE", group = "input")]
    prompt_file: Option<PathBuf>,
    /// Token ids, taken as they are
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',', group = "input")]
    tokens: Option<Vec<u32>>,
    /// Tokens to generate at most
    #[arg(short, value_name = "N", default_value_t = 256)]
    n: u32,
    /// Feed the prompt as it is, without the model's chat template
    #[arg(long)]
    raw: bool,
    /// Let a thinking model think before it answers
    #[arg(long, conflicts_with = "raw")]
    think: bool,
    /// Sampling temperature; 0 takes the most likely token (default: the model's generation_config.json, else 0)
    #[arg(long, value_name = "T")]
    temp: Option<f64>,
    /// Sample from the most likely tokens that together have this probability
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Sample from the K most likely tokens
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// Leave out tokens less likely than this share of the best
    #[arg(long, value_name = "P")]
    min_p: Option<f64>,
    /// Seed of the sampler: the same seed gives the same text
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    on: DeviceArgs,
    #[command(flatten)]
    inputs: ActivationArgs,
    #[command(flatten)]
    caches: KvArgs,
    /// Slower, for reports of faults: a breadcrumb behind every pass, and transients poisoned before each step
    #[arg(long)]
    debug: bool,
    /// Make the device fail, to see what happens: lost@STEP, submit@STEP, memory@STEP or stuck@STEP
    #[arg(long, value_name = "KIND@STEP", value_parser = device::parse_fault, hide = !cfg!(debug_assertions))]
    fault: Option<Fault>,
    /// Positions to make room for (default: prompt and -n, at most what the model allows)
    #[arg(long, value_name = "N", value_parser = files::parse_count)]
    ctx: Option<u32>,
    /// Prompt tokens per step
    #[arg(long, value_name = "N", default_value = "128", value_parser = files::parse_count)]
    chunk: u32,
    /// Write `logits` [positions, vocab] and `tokens` to a safetensors file
    #[arg(long, value_name = "FILE")]
    logits_out: Option<PathBuf>,
    /// One JSON document on stdout instead of text
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let activations = args.inputs.on(args.on.device)?;
    let progress = Progress::new();
    let model = args.model.load()?;
    let tokenizer = tokenizer(&args, &model)?;
    let prompt = prompt(&args, &model, tokenizer.as_ref())?;
    progress.load(&model);
    let sampler = Sampler::new(sampling(&args).or(&GenerationDefaults::load(&model.source)?))?;
    let stops = Stops::load(&model.source, model.graph.vocab as usize)?;
    let sizes = Sizes { ctx: context(&args, &model, prompt.len())?, slots: 1, chunk: args.chunk, kv: args.caches.kv };
    let options = Options { rules: args.on.place.clone(), fault: args.fault, debug: args.debug, ..Options::default() };
    let (session, name) = device::session(&model, args.on.device, sizes, activations, &options)?;
    // With `auto` a device that fails half-way is not the end: the CPU goes on from the same tokens.
    let on_cpu = || Session::new(&model, Device::Cpu, sizes);
    let can_fall_back = args.on.device == Choice::Auto && session.is_on_vulkan();
    let mut job = Job {
        session,
        fallback: if can_fall_back { Some(&on_cpu) } else { None },
        sampler,
        stops,
        tokenizer: tokenizer.as_ref(),
        vocab: model.graph.vocab as usize,
        logits: None,
        stream: !args.json,
    };
    if let Some(path) = &args.logits_out {
        job.logits = Some(LogitsFile::create(path, job.vocab)?);
    }
    let outcome = generate::run(job, &prompt, args.n, &progress)?;
    let name = if outcome.fell_back { format!("cpu, after {name}") } else { name };
    close(&args, &name, &outcome, &prompt)
}

fn tokenizer(args: &Args, model: &Model) -> Result<Option<Tokenizer>, Failure> {
    match Tokenizer::load(&model.source) {
        Ok(t) => Ok(Some(t)),
        Err(crate::text::Error::NoTokenizer { .. }) if args.tokens.is_some() => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn prompt(args: &Args, model: &Model, tokenizer: Option<&Tokenizer>) -> Result<Vec<u32>, Failure> {
    let text = match (&args.tokens, &args.prompt, &args.prompt_file) {
        (Some(ids), ..) => return Ok(ids.clone()),
        (_, Some(text), _) => text.clone(),
        (_, _, Some(path)) => files::text(path)?,
        _ => return Err(Failure::Usage("give the model something to say: --prompt, --prompt-file or --tokens".into())),
    };
    let template = if args.raw { None } else { ChatTemplate::load(&model.source)? };
    let text = match template {
        None => text,
        Some(t) => {
            let mut extra = serde_json::Map::new();
            extra.insert("enable_thinking".into(), args.think.into());
            t.render(&[Message::new("user", text)], true, &extra)?
        }
    };
    let ids = match tokenizer {
        Some(t) => t.encode(&text)?,
        None => vec![],
    };
    match ids.is_empty() {
        true => Err(Failure::Usage("the prompt has no tokens; say something".into())),
        false => Ok(ids),
    }
}

fn sampling(args: &Args) -> Sampling {
    Sampling { temperature: args.temp, top_p: args.top_p, top_k: args.top_k, min_p: args.min_p, seed: args.seed }
}

/// Positions to allocate: what is needed, within what the model was made for.
fn context(args: &Args, model: &Model, prompt: usize) -> Result<u32, Failure> {
    let need = u32::try_from(prompt).unwrap_or(u32::MAX).saturating_add(args.n);
    let most = model.max_positions().unwrap_or(u32::MAX);
    match args.ctx {
        Some(ctx) if ctx > most => {
            Err(Failure::Usage(format!("--ctx {ctx} is more than the {most} positions that config.json allows")))
        }
        Some(ctx) => Ok(ctx),
        None => Ok(need.min(most).max(1)),
    }
}

fn close(args: &Args, device: &str, o: &Outcome, prompt: &[u32]) -> Result<(), Failure> {
    let rate = |n: usize, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    let decoded = o.tokens.len().saturating_sub(1);
    if args.json {
        let doc = json!({
            "schema": 1,
            "device": device,
            "text": o.text,
            "prompt_tokens": prompt,
            "tokens": o.tokens,
            "finish": o.finish.name(),
            "prefill": {"tokens": prompt.len(), "seconds": o.prefill, "tokens_per_second": rate(prompt.len(), o.prefill)},
            "decode": {"tokens": decoded, "seconds": o.decode, "tokens_per_second": rate(decoded, o.decode)},
            "time_to_first_token_seconds": o.first_token,
        });
        writeln!(std::io::stdout(), "{doc}")?;
    }
    let note = match o.finish {
        Finish::Stop => "",
        Finish::Length => "; stopped by -n",
        Finish::Context => "; stopped at the end of the context",
    };
    eprintln!(
        "{}: prefill {} tokens, {:.1} tok/s; decode {} tokens, {:.1} tok/s; first token after {:.3} s{note}",
        device,
        prompt.len(),
        rate(prompt.len(), o.prefill),
        decoded,
        rate(decoded, o.decode),
        o.first_token,
    );
    Ok(())
}

/// Seconds since a moment.
pub fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}
