//! Plans on a device with made-up weights, for time alone: layers of any size without a model.
//!
//! Weights are 16 random rows in their real encoding, repeated; norms are ones. Every pass has its time by the device's
//! clock. Nothing is compared with anything here.

pub mod machine;

use super::bind::{self, BoundPlan, On};
use super::weights::{self, DeviceWeights, Source};
use super::{Options, VulkanError, needs, state_buffers};
use crate::formats::layout::{self, Tiled};
use crate::formats::{Format, Matrix, View, encode};
use crate::graph::{Graph, Limits, Role, Row, States, Step, StepError, WeightId};
use crate::plan::compile::Instr;
use crate::plan::pass::Ending;
use crate::plan::place::Rule;
use crate::plan::{Plan, Shape, compile};
use crate::vk;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a bench cannot be.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Vulkan(#[from] VulkanError),
    #[error(transparent)]
    Step(#[from] StepError),
    #[error("{node} runs on the CPU ({why}), where these weights do not exist")]
    OnCpu { node: String, why: String },
    #[error("{weight}: {why}")]
    Weight { weight: String, why: String },
}

impl From<vk::Error> for BenchError {
    fn from(e: vk::Error) -> Self {
        BenchError::Vulkan(e.into())
    }
}

/// Rows that are made; matrices repeat them. Few enough for the slow encoder of E8.
const MADE: usize = 16;

/// Random weights of a graph.
pub struct Random<'a> {
    graph: &'a Graph,
    formats: HashMap<u32, (Format, usize)>,
    /// In the engine layout, by format, rows and columns.
    matrices: HashMap<(Format, usize, usize), Vec<u8>>,
}

/// How long steps run before the first that counts.
pub const WARM_UP: Duration = Duration::from_millis(1500);

/// Values in -1..1, the same every time.
fn noise(n: usize) -> Vec<f32> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

impl<'a> Random<'a> {
    /// Makes a matrix for each format and size that a weight has.
    pub fn new(graph: &'a Graph, format: &dyn Fn(WeightId) -> Format) -> Result<Self, BenchError> {
        let (mut formats, mut matrices) = (HashMap::new(), HashMap::new());
        for (i, w) in graph.weights.iter().enumerate() {
            let (format, shape) = (format(WeightId(i as u32)), &w.need.shape);
            let cols = shape.last().copied().unwrap_or(1) as usize;
            let rows = shape.iter().product::<u64>() as usize / cols.max(1);
            formats.insert(i as u32, (format, w.need.experts.map_or(1, |e| e as usize)));
            if let std::collections::hash_map::Entry::Vacant(slot) = matrices.entry((format, rows, cols)) {
                let why = |why: String| BenchError::Weight { weight: w.need.names.join(" or "), why };
                slot.insert(random(format, rows, cols).map_err(why)?);
            }
        }
        Ok(Self { graph, formats, matrices })
    }
}

/// A random matrix in the engine layout.
fn random(format: Format, rows: usize, cols: usize) -> Result<Vec<u8>, String> {
    // About what a trained matrix has: products keep the size of their input.
    let few = MADE.min(rows);
    let values: Vec<f32> = noise(few * cols).iter().map(|x| x * (3.0 / cols as f32).sqrt()).collect();
    let made = encode(format, cols, &values).map_err(|e| e.to_string())?;
    let whole = |part: &[u8], bytes: u64| -> Vec<u8> { part.iter().copied().cycle().take(bytes as usize).collect() };
    let (r, c) = (rows as u64, cols as u64);
    let (data, scales) = (whole(&made.data, format.data_bytes(r, c)), whole(&made.scales, format.scale_bytes(r, c)));
    let view = View::new(format, rows, cols, &data, &scales).map_err(|e| e.to_string())?;
    layout::tile(&view).ok_or_else(|| format!("{format} has no engine layout"))
}

impl Source for Random<'_> {
    fn matrices(&self, w: WeightId) -> Vec<(String, Matrix<'_>)> {
        let (format, count) = self.formats[&w.0];
        let shape = &self.graph.weight(w).need.shape;
        let cols = shape.last().copied().unwrap_or(1) as usize;
        let rows = shape.iter().product::<u64>() as usize / cols.max(1);
        let made = Tiled::new(format, rows, cols, &self.matrices[&(format, rows, cols)]);
        // `random` made as many bytes as the shape needs.
        made.into_iter()
            .cycle()
            .take(count)
            .enumerate()
            .map(|(e, m)| (format!("weight {}.{e}", w.0), m.into()))
            .collect()
    }

    fn vector(&self, w: WeightId, len: usize) -> (String, Vec<f32>) {
        (format!("weight {}", w.0), vec![1.0; len])
    }
}

/// A pass and the time it took.
#[derive(Debug, Clone)]
pub struct PassTime {
    pub name: String,
    pub layer: Option<u32>,
    /// Its shader, or `copy`.
    pub kind: String,
    /// Microseconds from the first pass of the step to its start, and its length.
    pub start: f64,
    pub us: f64,
    /// Bytes of weights and caches that it reads.
    pub bytes: u64,
}

/// A step.
#[derive(Debug, Clone)]
pub struct StepTime {
    pub passes: Vec<PassTime>,
    /// Microseconds on the host from the first submit to the end of the wait.
    pub wall: f64,
}

/// A plan with made-up weights, ready to run.
pub struct Bench {
    device: vk::Device,
    bound: BoundPlan,
    limits: Limits,
    submitted: u64,
    _weights: DeviceWeights,
}

impl Bench {
    /// Compiles a plan of one role and uploads random weights for it. With `timed` each pass is timed, which costs a little.
    pub fn new(
        device: vk::Device,
        graph: &Arc<Graph>,
        random: &Random,
        rules: &[Rule],
        (role, shape): (Role, Shape),
        timed: bool,
    ) -> Result<Self, BenchError> {
        let formats = |w: WeightId| random.formats.get(&w.0).map(|(f, _)| *f);
        let plan = compile(graph, &formats, rules, role, shape).map_err(VulkanError::from)?;
        on_device_only(graph, &plan)?;
        let limits = Limits { vocab: graph.vocab as u32, ctx: shape.ctx, slots: 1, chunk: shape.chunk, kv: shape.kv };
        let states = States::new(graph, limits);
        let bytes = weights::bytes(graph, random, &[&plan]);
        device.check_budget(&needs(bytes, &states, &[&plan]), super::RESERVE)?;
        let uploaded = DeviceWeights::upload(&device, graph, random, &[&plan])?;
        let buffers = state_buffers(&device, graph, &states, &[&plan])?;
        let pipelines = bind::pipelines(&device, &[&plan], false)?;
        let on = On { device: &device, pipelines: &pipelines, weights: &uploaded, states: &buffers };
        let options = Options { timed, ..Options::default() };
        let bound = BoundPlan::new(on, plan, &options)?;
        let submitted = device.compute().map_err(vk::Error::from)?.submitted();
        Ok(Self { device, bound, limits, submitted, _weights: uploaded })
    }

    pub fn plan(&self) -> &Plan {
        &self.bound.plan
    }

    /// Runs `rows` rows that follow `position` positions, all of which want logits.
    pub fn step(&mut self, rows: u32, position: u32) -> Result<StepTime, BenchError> {
        let row = |i: u32| Row { token: i % self.limits.vocab, position: position + i, slot: 0, logits: true };
        let plan = &self.bound.plan;
        let step = Step::new(plan.role, (0..rows).map(row).collect(), self.limits, &[position])?;
        let queue = self.device.compute().map_err(vk::Error::from)?;
        let params = self.bound.record_params(queue, &step, 0, self.limits.vocab)?;
        let start = Instant::now();
        let mut first = Some(params);
        for instr in &plan.instrs {
            let Instr::Submit(b) = *instr else { continue };
            let params = first.take();
            let commands: Vec<_> = params.iter().chain(self.bound.commands(b, Ending::Logits)).collect();
            self.submitted += 1;
            queue.submit(&commands, &[], self.submitted)?;
        }
        queue.wait(self.submitted, self.device.deadline())?;
        let wall = start.elapsed().as_secs_f64() * 1e6;
        Ok(StepTime { passes: self.passes(rows, position)?, wall })
    }

    /// Runs steps that do not count, at least one: a device that has been idle takes a while to raise its clocks.
    pub fn warm_up(&mut self, rows: u32, position: u32, time: Duration) -> Result<(), BenchError> {
        let start = Instant::now();
        self.step(rows, position)?;
        while start.elapsed() < time {
            self.step(rows, position)?;
        }
        Ok(())
    }

    fn passes(&self, rows: u32, position: u32) -> Result<Vec<PassTime>, BenchError> {
        let Some(times) = &self.bound.times else { return Ok(vec![]) };
        let times = times.read()?;
        let first = times.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let passes = self.bound.plan.lowered.passes.iter().enumerate();
        let timed = passes.filter_map(|(i, p)| {
            let (from, to) = (times[2 * i]?, times[2 * i + 1]?);
            let bytes = match &p.work {
                crate::plan::pass::Work::Dispatch(d) => d.traffic(rows, position + rows),
                _ => 0,
            };
            let (start, us) = ((from - first) / 1e3, (to - from) / 1e3);
            Some(PassTime { name: p.name.clone(), layer: p.layer, kind: p.kind(), start, us, bytes })
        });
        let mut timed: Vec<PassTime> = timed.collect();
        timed.sort_by(|a, b| a.start.total_cmp(&b.start));
        Ok(timed)
    }
}

fn on_device_only(graph: &Graph, plan: &Plan) -> Result<(), BenchError> {
    let why = |(placed, (_, node)): (&crate::plan::place::Placed, (_, &crate::graph::Node))| {
        let why = placed.why.clone()?;
        Some(BenchError::OnCpu { node: node.path(), why })
    };
    plan.placed.iter().zip(graph.nodes()).find_map(why).map_or(Ok(()), Err)
}
