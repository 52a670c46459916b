//! The command line: one file a subcommand. Results go to stdout, everything else to stderr.

mod args;
mod bench_device;
mod bench_kernels;
mod bench_layers;
mod check;
mod convert;
mod demo;
mod device;
mod devices;
mod exec;
mod failure;
mod files;
mod generate;
mod graph;
mod inspect;
mod kernels;
mod logits;
mod plan;
mod progress;
mod quality;
mod render;
mod report;
mod shaders;
mod sweep;
mod trace;

use clap::{Parser, Subcommand};
use failure::Failure;
pub use render::report_text;
use std::process::ExitCode;

const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("COLI_GIT_HASH"), "), features: ", env!("COLI_FEATURES"));

/// Runs mixture-of-experts language models from a graph file.
#[derive(Parser)]
#[command(name = "coli", version, long_version = LONG_VERSION, propagate_version = true)]
#[command(after_help = "\
Examples:
  coli exec graphs/glm52.ron --prompt 'What does hummingbird mean?'
  coli exec graphs/qwen3_moe.ron --model ~/models/Qwen3-30B-A3B --prompt-file question.txt
  coli plan graphs/glm52.ron --config tests/configs/glm52.json
  coli convert glm52 ~/models/GLM-5.2 ~/models/glm52-int4 --experts int4-g64 --dense int8
  coli graph graphs/glm52.ron --config tests/configs/glm52.json --layers 0,3 | dot -Tsvg > glm.svg

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 model or graph file invalid, 4 device not available,
5 out of memory, 6 a check failed.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a model and print what it answers
    Exec(exec::Args),
    /// Print what a graph costs: parameters, layer kinds, state, transients, bytes per token
    Plan(plan::Args),
    /// Draw the expanded graph
    Graph(graph::Args),
    /// Compare every value on a device with the oracle, worst first
    Check(check::Args),
    /// Time the passes of a few steps and write a Chrome trace
    Trace(trace::Args),
    /// List Vulkan devices with what they can do, and why not
    Devices(devices::Args),
    /// Write a model's weights in other formats
    Convert(convert::Args),
    /// List what a model directory holds: formats, parameters, problems
    Inspect(inspect::Args),
    /// Measure
    Bench(Bench),
    /// List the compute kernels, and with --stats what a driver's compiler makes of them
    Shaders(shaders::Args),
}

/// Measurements.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  coli bench --report gpu.json            two minutes; then send gpu.json
  coli bench kernels --device vulkan")]
struct Bench {
    #[command(flatten)]
    report: report::Args,
    #[command(subcommand)]
    what: Option<BenchCommand>,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Share of questions that a model answers word for word: tells weight formats apart
    Quality(quality::Args),
    /// Time a decode step of real-size layers with made-up weights on a Vulkan device
    Decode(bench_layers::Args),
    /// The same of a prompt step
    Prefill(bench_layers::Args),
    /// Products with stored matrices, beside the memory they read from
    Kernels(bench_kernels::Args),
}

/// Runs the command line and returns the exit code.
pub fn run() -> ExitCode {
    // Wrong usage ends here with code 2, --help and --version with 0.
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Exec(args) => exec::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Graph(args) => graph::run(args),
        Command::Check(args) => check::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Bench(Bench { report, what }) => bench(report, what),
        Command::Shaders(args) => shaders::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has gone (`| head`): nothing is wrong, and nobody to tell.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            render::failure(&failure);
            ExitCode::from(failure.code())
        }
    }
}

/// A measurement, or all of them.
fn bench(report: report::Args, what: Option<BenchCommand>) -> Result<(), Failure> {
    match what {
        None => report::run(report),
        Some(BenchCommand::Quality(args)) => quality::run(args),
        Some(BenchCommand::Decode(args)) => bench_layers::decode(args),
        Some(BenchCommand::Prefill(args)) => bench_layers::prefill(args),
        Some(BenchCommand::Kernels(args)) => bench_kernels::run(args),
    }
}
