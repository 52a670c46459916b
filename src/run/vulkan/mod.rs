//! Plans on a Vulkan device, with CPU nodes between submits.
//!
//! [`weights`] uploads what kernels read by address, [`bind`] turns a plan into recorded command buffers, [`params`] lays out
//! what changes per step, [`values`] converts what crosses to the host. A step is one walk over the plan's instruction list.

pub mod bench;
mod bind;
mod fault;
mod params;
mod trace;
mod values;
mod weights;

use super::choose::highest;
use super::cpu::{CpuError, Tables, Work};
use crate::formats::Format;
use crate::graph::{Graph, Limits, Role, StateError, StateId, States, Step, Value, Watch, WeightId};
use crate::ops::Kv;
use crate::plan::compile::Instr;
use crate::plan::pass::{Bind, Buf, Ending, Work as PassWork};
use crate::plan::place::Rule;
use crate::plan::{Plan, PlanError, Shape, Tuning, compile};
use crate::vk::{self, Buffer, BufferDesc, Deadline, Kind, Need, Usage};
use crate::weights::Bound;
use bind::{BoundPlan, On};
pub use bind::{matrices, tuning};
pub use fault::Fault;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use trace::Trace;
pub use trace::{Lane, Span};
use weights::DeviceWeights;

/// Why a Vulkan session cannot be made, or a step failed.
#[derive(Debug, thiserror::Error)]
pub enum VulkanError {
    #[error(transparent)]
    Vulkan(#[from] vk::Error),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Cpu(#[from] CpuError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("--chunk {0}: a step on the device holds at most {max} rows", max = params::MAX_ROWS)]
    Chunk(u32),
    #[error("the state {name} of {bytes} bytes does not fit in one binding of {limit}; give a smaller --ctx{or}")]
    Binding { name: String, bytes: u64, limit: u64, or: &'static str },
    #[error("{name}: {format} has no engine layout for these sizes")]
    Layout { name: String, format: Format },
    #[error("{node} computed a value that is not finite{weight}")]
    NonFinite { node: String, weight: String },
    #[error("{0}: a value crosses to the host in a form that it has no code for")]
    Crossing(String),
    #[error(
        "{pass}: the plan and the kernel {shader} disagree about set {set}, binding {binding}: a fault of this build"
    )]
    Interface { pass: String, shader: &'static str, set: u32, binding: u32 },
    #[error(
        "{pass}: the plan gives {given} bytes of constants to the kernel {shader}, which takes {taken}: a fault of this build"
    )]
    Constants { pass: String, shader: &'static str, given: usize, taken: usize },
    #[error("a step of {rows} rows over all sequences; this session was made for {max}: append fewer tokens at once")]
    Rows { rows: usize, max: u32 },
    #[error("an earlier step never ended, so its buffers may still be in use: make a new session")]
    Unfinished,
}

impl From<vk::Missing> for VulkanError {
    fn from(missing: vk::Missing) -> Self {
        VulkanError::Vulkan(missing.into())
    }
}

/// How a session on the device is set up.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub rules: Vec<Rule>,
    /// Bring every value that a pass makes to the host: for checks, not for speed.
    pub observe: bool,
    /// Shuffle the passes inside each level: results must not change.
    pub shuffle: u64,
    /// Take the time of every pass and of what the host does.
    pub timed: bool,
    /// Slower, to find faults: a breadcrumb behind every pass, and transients poisoned before each step (debug builds
    /// always poison).
    pub debug: bool,
    /// Take the kernels of devices without cooperative matrices: so that one which has them tests both.
    pub without_matrices: bool,
    /// Take the kernels of devices without dot products of bytes: for the same reason.
    pub without_dot_products: bool,
    /// Share products out as this kind of device likes it, not as the device does: tests on llvmpipe are for those of others.
    pub tuning: Option<Tuning>,
    /// Fail in some step, to see what happens.
    pub fault: Option<Fault>,
}

/// A model on a device.
pub struct Vulkan {
    device: vk::Device,
    graph: Arc<Graph>,
    weights: Arc<Bound>,
    tables: Tables,
    /// Lengths of all slots, and the states of CPU nodes. States on the device have a mirror here that is used only
    /// to save and restore them.
    states: States,
    device_states: Vec<Option<Buffer>>,
    plans: Plans<BoundPlan>,
    /// Timeline value of the last submit.
    submitted: u64,
    steps: u32,
    fault: Option<Fault>,
    trace: Option<Trace>,
    /// Set while a step runs; stays set when one ends without the queue's word that it is done.
    open: bool,
    /// Keeps alive what kernels reach by address.
    _weights: DeviceWeights,
}

/// One for prompts, one for decoding, and one for decoding a single row: its kernels have no part for several rows,
/// which leaves registers for more of their work at once. A row has the same bits in either of the last two.
struct Plans<T> {
    prompt: T,
    decode: T,
    single: T,
}

impl<T> Plans<T> {
    fn of(&self, role: Role, rows: usize) -> &T {
        match (role, rows) {
            (Role::Prompt, _) => &self.prompt,
            (Role::Decode, 1) => &self.single,
            (Role::Decode, _) => &self.decode,
        }
    }
}

/// Rows of a decode step at most.
pub const DECODE_ROWS: u32 = 8;
/// Bytes of a device's own heap left to others: the desktop, the driver, rounding of allocations.
const RESERVE: u64 = 256 << 20;

/// Memory of a session, known before anything is allocated.
fn needs(weights: u64, states: &States, plans: &[&Plan]) -> [Need; 3] {
    let own: u64 = plans.iter().map(|p| p.arena).sum();
    let kept: u64 = used_states(plans).iter().map(|s| states.bytes(s.0 as usize)).sum();
    let sum = |sizes: fn(&Plan) -> &[u64]| plans.iter().flat_map(|p| sizes(p)).sum::<u64>();
    let device = own + kept + weights;
    [
        Need { kind: Kind::DeviceLocal, bytes: device },
        Need { kind: Kind::Upload, bytes: sum(|p| &p.lowered.uploads) + weights::STAGING },
        Need { kind: Kind::Readback, bytes: sum(|p| &p.lowered.readbacks) },
    ]
}

impl Vulkan {
    /// Compiles the plans, uploads the weights they read and records their commands.
    pub fn new(
        device: vk::Device,
        graph: Arc<Graph>,
        weights: Arc<Bound>,
        limits: Limits,
        options: &Options,
    ) -> Result<Self, VulkanError> {
        if limits.chunk > params::MAX_ROWS {
            return Err(VulkanError::Chunk(limits.chunk));
        }
        let formats = |w: WeightId| weights.format(w.0 as usize);
        let plan = |role, rows| {
            let shape = Shape {
                rows,
                ctx: limits.ctx,
                kv: limits.kv,
                chunk: limits.chunk,
                observe: options.observe,
                shuffle: options.shuffle,
                matrices: matrices(&device).filter(|_| !options.without_matrices),
                tuning: options.tuning.unwrap_or_else(|| tuning(&device)),
            };
            compile(&graph, &formats, &options.rules, role, shape)
        };
        let prompt = plan(Role::Prompt, limits.chunk)?;
        let decode = plan(Role::Decode, DECODE_ROWS)?;
        let states = States::new(&graph, limits);
        let single = plan(Role::Decode, 1)?;
        let plans = [&prompt, &decode, &single];
        device.check_budget(&needs(weights::bytes(&graph, &*weights, &plans), &states, &plans), RESERVE)?;
        let uploaded = DeviceWeights::upload(&device, &graph, &*weights, &plans)?;
        let device_states = state_buffers(&device, &graph, &states, &plans)?;
        let pipelines = bind::pipelines(&device, &plans, options.without_dot_products)?;
        let bind = |plan| {
            let on = On { device: &device, pipelines: &pipelines, weights: &uploaded, states: &device_states };
            BoundPlan::new(on, plan, options)
        };
        let plans = Plans { prompt: bind(prompt)?, decode: bind(decode)?, single: bind(single)? };
        let tables = Tables::new(&graph);
        let submitted = device.compute()?.submitted();
        Ok(Self {
            device,
            graph,
            weights,
            tables,
            states,
            device_states,
            plans,
            submitted,
            steps: 0,
            fault: options.fault,
            trace: options.timed.then(Trace::new),
            open: false,
            _weights: uploaded,
        })
    }

    pub fn states(&self) -> &States {
        &self.states
    }

    pub fn states_mut(&mut self) -> &mut States {
        &mut self.states
    }

    /// Runs one step; logits `[outputs, vocab]`, in row order. `watch` sees CPU nodes, and with `observe` also what passes made.
    pub fn step(&mut self, step: &Step, watch: &mut Watch) -> Result<Vec<f32>, VulkanError> {
        self.guarded(|s| s.logits(step, watch))
    }

    /// Runs one step; the id of the highest logit of each output, in row order, among the ids below `among`. The logits
    /// stay on the device, if it makes them.
    pub fn greedy(&mut self, step: &Step, among: u32) -> Result<Vec<u32>, VulkanError> {
        self.guarded(|s| s.tokens(step, among))
    }

    fn guarded<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, VulkanError>) -> Result<T, VulkanError> {
        if self.open {
            self.ended(Deadline::still(Duration::ZERO))?;
        }
        self.open = true;
        let done = run(self);
        // A step that failed between submits has ended if the queue says so.
        self.open = done.is_err() && self.ended(self.device.deadline()).is_err();
        done
    }

    /// Whether the queue is through with everything it was given.
    fn ended(&self, deadline: Deadline) -> Result<(), VulkanError> {
        match self.device.compute()?.wait(self.submitted, deadline) {
            Err(vk::Error::Stuck { .. }) => Err(VulkanError::Unfinished),
            other => Ok(other?),
        }
    }

    /// What has been timed since the last call.
    pub fn spans(&mut self) -> Vec<Span> {
        self.trace.as_mut().map_or_else(Vec::new, Trace::take)
    }

    fn logits(&mut self, step: &Step, watch: &mut Watch) -> Result<Vec<f32>, VulkanError> {
        let graph = self.graph.clone();
        let on_host = self.play(&graph, step, (Ending::Logits, graph.vocab as u32), watch)?;
        let bound = self.plans.of(step.role(), step.rows().len());
        let logits = match bound.plan.lowered.results {
            Some(results) => Some(bound.read(&graph, results.logits, step)?),
            None => on_host,
        };
        bound.observed(&graph, step, watch)?;
        self.steps = self.steps.wrapping_add(1);
        let Some(Value::Tensor(logits)) = logits else { return Err(VulkanError::Crossing("logits".into())) };
        if logits.iter().any(|x| !x.is_finite()) {
            return Err(self.blame());
        }
        self.states.advance(step.rows());
        Ok(Arc::unwrap_or_clone(logits))
    }

    fn tokens(&mut self, step: &Step, among: u32) -> Result<Vec<u32>, VulkanError> {
        let graph = self.graph.clone();
        let on_host = self.play(&graph, step, (Ending::Tokens, among), &mut |_, _| {})?;
        let bound = self.plans.of(step.role(), step.rows().len());
        let tokens = match (bound.plan.lowered.results, on_host) {
            (Some(results), _) => bound.chosen(results.tokens, step)?,
            // CPU nodes refuse what is not finite.
            (None, Some(Value::Tensor(logits))) => Some(highest(&logits, graph.vocab as usize, among)),
            (None, _) => return Err(VulkanError::Crossing("logits".into())),
        };
        self.steps = self.steps.wrapping_add(1);
        let Some(tokens) = tokens else { return Err(self.blame()) };
        self.states.advance(step.rows());
        Ok(tokens)
    }

    /// Walks the plan's instruction list, up to the wait for the queue; the logits, if a CPU node made them. A step that ends
    /// with tokens chooses among the ids below a number.
    fn play(
        &mut self,
        graph: &Graph,
        step: &Step,
        (ending, among): (Ending, u32),
        watch: &mut Watch,
    ) -> Result<Option<Value>, VulkanError> {
        let bound = self.plans.of(step.role(), step.rows().len());
        let max = bound.plan.shape.rows;
        if step.rows().len() > max as usize {
            return Err(VulkanError::Rows { rows: step.rows().len(), max });
        }
        if let Some(fault) = self.fault.take_if(|f| f.step == self.steps) {
            fault.strike(&self.device, &mut self.submitted)?;
        }
        let queue = self.device.compute()?;
        let base = self.submitted;
        let params = bound.record_params(queue, step, self.steps, among)?;
        let mut waiting = Some(params);
        let mut first = None;
        let mut work = Work::new(graph, &self.weights, step, &mut self.states, self.tables.numbers());
        for instr in &bound.plan.instrs {
            let start = self.trace.as_ref().map_or(0.0, Trace::now);
            match *instr {
                Instr::Submit(b) => {
                    first.get_or_insert(start);
                    let params = waiting.take();
                    let commands: Vec<_> = params.iter().chain(bound.commands(b, ending)).collect();
                    let signal = base + bound.plan.batches[b].signal;
                    queue.submit(&commands, &[], signal)?;
                    self.submitted = signal;
                }
                Instr::Cpu { pass, wait } => {
                    if wait > 0 {
                        queue.wait(base + wait, self.device.deadline())?;
                    }
                    cpu_node(bound, graph, pass, step, &mut work, watch)?;
                }
                Instr::Wait(value) => queue.wait(base + value, self.device.deadline())?,
                Instr::Params | Instr::Begin(_) | Instr::For(_) | Instr::Barrier(_) | Instr::Pass(_) => continue,
            }
            if let Some(trace) = &mut self.trace {
                let (name, kind) = bound.named(*instr);
                trace.host(name, kind, self.steps, start);
            }
        }
        // Where CPU nodes do everything, nothing was submitted.
        if let (Some(trace), Some(first)) = (&mut self.trace, first) {
            trace.device(bound, self.steps, first)?;
        }
        Ok(work.take(graph.logits))
    }

    /// A value that is not finite came out of the device: the weights say whose fault it is.
    fn blame(&self) -> VulkanError {
        for (i, _) in self.graph.weights.iter().enumerate() {
            for e in 0..self.weights.count(i) {
                let w = self.weights.expert(i, e);
                if let Some((row, column)) = w.find_nan() {
                    let weight = format!(": the weight `{}` is damaged at row {row}, column {column}", w.name());
                    return VulkanError::NonFinite { node: "the device".into(), weight };
                }
            }
        }
        let weight = format!(", from weights that are all finite{}", too_large(self.states.limits().kv));
        VulkanError::NonFinite { node: "the device".into(), weight }
    }

    /// Copies a slot's device states to their mirror on the host, so that a snapshot holds them.
    pub fn fetch(&mut self, slot: u32) -> Result<(), VulkanError> {
        self.transfer(slot, true)
    }

    /// Copies the mirror of a slot's states to the device.
    pub fn store(&mut self, slot: u32) -> Result<(), VulkanError> {
        self.transfer(slot, false)
    }

    fn transfer(&mut self, slot: u32, to_host: bool) -> Result<(), VulkanError> {
        for s in 0..self.device_states.len() {
            let Some(buffer) = self.device_states[s].clone() else { continue };
            let values = self.states.slot_mut(s, slot);
            let (bytes, at) = (values.len() as u64, values.len() as u64 * u64::from(slot));
            let (kind, usage) = match to_host {
                true => (Kind::Readback, Usage::TRANSFER_DST),
                false => (Kind::Upload, Usage::TRANSFER_SRC),
            };
            let staging = Buffer::new(&self.device, &BufferDesc { label: "state staging", size: bytes, usage, kind })?;
            let queue = self.device.compute()?;
            let mut r = queue.recorder("state copy", vk::Replay::Once)?;
            r.barrier(bind::everything(), bind::everything());
            if to_host {
                r.copy(&buffer, at, &staging, 0, bytes);
                r.barrier(vk::Scope::TRANSFER_WRITE, vk::Scope::HOST_READ);
            } else {
                staging.write(0, values)?;
                r.copy(&staging, 0, &buffer, at, bytes);
                r.barrier(vk::Scope::TRANSFER_WRITE, bind::everything());
            }
            self.submitted += 1;
            queue.submit(&[&r.finish()?], &[], self.submitted)?;
            queue.wait(self.submitted, self.device.deadline())?;
            if to_host {
                values.copy_from_slice(&staging.read::<u8>(0, values.len())?);
            }
        }
        Ok(())
    }
}

/// What may be behind a value that is not finite, if no weight is: a cache of f16 makes NaN of what it cannot hold.
fn too_large(kv: Kv) -> &'static str {
    match kv {
        Kv::F32 => "",
        Kv::F16 => ": it may come of one above 65504 for a cache of f16, so run it with --kv f32",
    }
}

/// Runs one CPU node between submits: operands from the device, its value, what goes up again.
fn cpu_node(
    bound: &BoundPlan,
    graph: &Graph,
    pass: usize,
    step: &Step,
    work: &mut Work,
    watch: &mut Watch,
) -> Result<(), VulkanError> {
    let PassWork::Cpu { node: index, reads, writes } = &bound.plan.lowered.passes[pass].work else {
        return Ok(());
    };
    for read in reads {
        if let Buf::Readback(n) = read {
            let id = bound.plan.lowered.readback_of[*n as usize];
            work.keep(id, bound.read(graph, *n, step)?);
        }
    }
    let node = &graph.dag[*index];
    // On one of the pool's threads, as `Cpu::step`.
    let value = rayon::scope(|_| work.run(index.index(), node))?;
    if let Some(row) = work.bad_row(node, &value) {
        return Err(match work.blame(node, row) {
            // A cache on the device may have made NaN of what it cannot hold.
            CpuError::NonFinite { node, weight: None, .. } if bound.plan.shape.kv == Kv::F16 => {
                VulkanError::NonFinite { node, weight: too_large(Kv::F16).into() }
            }
            other => other.into(),
        });
    }
    watch(node, &value);
    for write in writes {
        if let Buf::Upload(n) = write {
            bound.write(graph, *n, &value)?;
        }
    }
    work.keep(node.output, value);
    Ok(())
}

fn used_states(plans: &[&Plan]) -> BTreeSet<StateId> {
    let accesses = plans.iter().flat_map(|p| &p.lowered.passes).flat_map(|p| p.accesses());
    let state = |b: Bind| match b.buf {
        Buf::State(s) => Some(s),
        _ => None,
    };
    accesses.filter_map(state).collect()
}

/// A buffer per state that a kernel touches, `[slot][capacity][width]` as on the host, zeroed.
fn state_buffers(
    device: &vk::Device,
    graph: &Graph,
    states: &States,
    plans: &[&crate::plan::Plan],
) -> Result<Vec<Option<Buffer>>, VulkanError> {
    let limit = device.capabilities().limits.storage_range;
    let mut out = vec![None; graph.states.len()];
    for s in used_states(plans) {
        let state = graph.state(s);
        let name = state.layer.map_or(state.name.clone(), |l| format!("l{l}.{}", state.name));
        let bytes = states.bytes(s.0 as usize);
        if bytes > limit {
            let halves = state.kind.is_cache() && states.limits().kv == Kv::F32;
            return Err(VulkanError::Binding { name, bytes, limit, or: if halves { " or --kv f16" } else { "" } });
        }
        let usage = Usage::STORAGE | Usage::TRANSFER_SRC | Usage::TRANSFER_DST;
        out[s.0 as usize] =
            Some(Buffer::new(device, &BufferDesc { label: &name, size: bytes, usage, kind: Kind::DeviceLocal })?);
    }
    bind::zero(device, out.iter().flatten())?;
    Ok(out)
}
