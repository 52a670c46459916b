//! Sequences that grow: prompts in chunks, one token after another, saved and restored.

use super::choose::highest;
use super::cpu::{Cpu, CpuError};
use super::load::Model;
use super::vulkan::{Options, Span, Vulkan, VulkanError};
use crate::formats::activation::Activations;
use crate::graph::{Limits, Role, Row, Snapshot, StateError, States, Step, StepError, Watch};
use crate::ops::Kv;
use crate::oracle::{Oracle, OracleError};
use crate::vk;

/// What computes the graph on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Cpu,
    /// The reference: one thread, f64 sums, slow.
    Oracle,
}

impl Device {
    pub fn name(self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Oracle => "oracle",
        }
    }
}

/// Why a step failed. Lengths stay as they were; a sequence with recurrent state must then be restored or reset.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Oracle(#[from] OracleError),
    #[error(transparent)]
    Cpu(#[from] CpuError),
    #[error(transparent)]
    Vulkan(#[from] VulkanError),
}

impl RunError {
    /// Whether a cache cannot hold a value that it could in f32.
    pub fn is_too_large(&self) -> bool {
        matches!(
            self,
            RunError::Cpu(CpuError::TooLarge(_))
                | RunError::Oracle(OracleError::TooLarge(_))
                | RunError::Vulkan(VulkanError::Cpu(CpuError::TooLarge(_)))
        )
    }
}

enum Backend {
    Cpu(Cpu),
    Oracle(Oracle),
    Vulkan(Box<Vulkan>),
}

impl Backend {
    fn step(&mut self, step: &Step, watch: &mut Watch) -> Result<Vec<f32>, RunError> {
        Ok(match self {
            Backend::Cpu(b) => b.step(step, watch)?,
            Backend::Vulkan(b) => b.step(step, watch)?,
            Backend::Oracle(b) => b.step(step, watch)?,
        })
    }
}

/// How large a session may grow, and what a cached value takes.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Positions per sequence.
    pub ctx: u32,
    /// Sequences.
    pub slots: u32,
    /// Prompt rows per step.
    pub chunk: u32,
    /// What caches hold.
    pub kv: Kv,
}

impl Sizes {
    pub(super) fn limits(self, model: &Model) -> Limits {
        let Sizes { ctx, slots, chunk, kv } = self;
        Limits { vocab: model.graph.vocab as u32, ctx, slots, chunk, kv }
    }
}

/// Which rows of a prompt want logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    Last,
    All,
}

/// A model that runs, with the state of its sequences.
pub struct Session {
    backend: Backend,
    limits: Limits,
}

impl Session {
    /// A session on the host, with f32 activations. On the processor, the first one of a model rewrites resident matrices
    /// that are stored in file order ([`Model::tiled`]).
    pub fn new(model: &Model, device: Device, sizes: Sizes) -> Self {
        Self::with_activations(model, device, sizes, Activations::F32)
    }

    /// As [`Session::new`], with the inputs of products with integer-coded weights taken as asked for.
    pub fn with_activations(model: &Model, device: Device, sizes: Sizes, activations: Activations) -> Self {
        let limits = sizes.limits(model);
        let graph = model.graph.clone();
        let backend = match device {
            Device::Oracle => {
                Backend::Oracle(Oracle::new(graph, model.weights.clone(), limits).with_activations(activations))
            }
            Device::Cpu => Backend::Cpu(Cpu::new(graph, model.tiled(), limits).with_activations(activations)),
        };
        Self { backend, limits }
    }

    /// A session on a Vulkan device: compiles the plans and uploads the weights.
    pub fn on_vulkan(model: &Model, device: vk::Device, sizes: Sizes, options: &Options) -> Result<Self, RunError> {
        let limits = sizes.limits(model);
        let vulkan = Vulkan::new(device, model.graph.clone(), model.weights.clone(), limits, options)?;
        Ok(Self { backend: Backend::Vulkan(Box::new(vulkan)), limits })
    }

    /// What a session with `Options::timed` has timed since the last call.
    pub fn spans(&mut self) -> Vec<Span> {
        match &mut self.backend {
            Backend::Vulkan(b) => b.spans(),
            _ => vec![],
        }
    }

    /// Whether passes run on a device that can be lost.
    pub fn is_on_vulkan(&self) -> bool {
        matches!(self.backend, Backend::Vulkan(_))
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn states(&self) -> &States {
        match &self.backend {
            Backend::Cpu(b) => b.states(),
            Backend::Vulkan(b) => b.states(),
            Backend::Oracle(b) => b.states(),
        }
    }

    fn states_mut(&mut self) -> &mut States {
        match &mut self.backend {
            Backend::Cpu(b) => b.states_mut(),
            Backend::Vulkan(b) => b.states_mut(),
            Backend::Oracle(b) => b.states_mut(),
        }
    }

    /// Positions that a sequence holds.
    pub fn len(&self, slot: u32) -> u32 {
        self.states().lengths().get(slot as usize).copied().unwrap_or(0)
    }

    pub fn is_empty(&self, slot: u32) -> bool {
        self.len(slot) == 0
    }

    /// Runs rows of any slots as one step; logits `[rows that want them][vocab]`, in row order.
    pub fn step(&mut self, role: Role, rows: Vec<Row>, watch: &mut Watch) -> Result<Vec<f32>, RunError> {
        self.checked(role, rows, |backend, step| backend.step(step, watch))
    }

    /// As [`Session::step`], but returns the id of the highest logit of each row that wants logits: among the ids below
    /// `among` (1 to the vocabulary), the lowest id of equal ones. A device that makes the logits also looks through them, and
    /// hands back nothing else.
    ///
    /// # Errors
    /// As [`Session::step`]: a logit that is not finite, of any id, is an error.
    pub fn greedy(&mut self, role: Role, rows: Vec<Row>, among: u32) -> Result<Vec<u32>, RunError> {
        let vocab = self.limits.vocab;
        let among = among.clamp(1, vocab);
        self.checked(role, rows, |backend, step| match backend {
            Backend::Vulkan(b) => Ok(b.greedy(step, among)?),
            host => Ok(highest(&host.step(step, &mut |_, _| {})?, vocab as usize, among)),
        })
    }

    /// Runs a step that the states allow, and marks them if it fails.
    fn checked<T>(
        &mut self,
        role: Role,
        rows: Vec<Row>,
        run: impl FnOnce(&mut Backend, &Step) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        self.states().usable(&rows)?;
        let step = Step::new(role, rows, self.limits, self.states().lengths())?;
        let done = run(&mut self.backend, &step);
        if done.is_err() {
            self.states_mut().failed(step.rows());
        }
        done
    }

    /// Appends tokens to a sequence, `chunk` rows a step. `done` is called after each step with the tokens
    /// appended so far. Returns logits of the last row, or of all.
    pub fn append(
        &mut self,
        slot: u32,
        tokens: &[u32],
        want: Want,
        done: &mut dyn FnMut(usize),
    ) -> Result<Vec<f32>, RunError> {
        let step = |s: &mut Self, rows| s.step(Role::Prompt, rows, &mut |_, _| {});
        self.chunks(slot, tokens, want, done, step)
    }

    /// As [`Session::append`], but returns the token that is most likely to follow, as [`Session::greedy`] chooses it; None
    /// for no tokens.
    pub fn append_greedy(
        &mut self,
        slot: u32,
        tokens: &[u32],
        among: u32,
        done: &mut dyn FnMut(usize),
    ) -> Result<Option<u32>, RunError> {
        let step = |s: &mut Self, rows| s.greedy(Role::Prompt, rows, among);
        Ok(self.chunks(slot, tokens, Want::Last, done, step)?.pop())
    }

    /// Feeds tokens in chunks, and collects what their steps return.
    fn chunks<T>(
        &mut self,
        slot: u32,
        tokens: &[u32],
        want: Want,
        done: &mut dyn FnMut(usize),
        mut step: impl FnMut(&mut Self, Vec<Row>) -> Result<Vec<T>, RunError>,
    ) -> Result<Vec<T>, RunError> {
        let start = self.len(slot);
        let last = tokens.len().saturating_sub(1);
        let row = |(i, token): (usize, &u32)| Row {
            token: *token,
            position: start + i as u32,
            slot,
            logits: want == Want::All || i == last,
        };
        let rows: Vec<Row> = tokens.iter().enumerate().map(row).collect();
        // A prompt that cannot fit is refused before the first chunk changes the state.
        if let Some(r) = rows.iter().find(|r| r.position >= self.limits.ctx) {
            return Err(StepError::Context { position: r.position, ctx: self.limits.ctx }.into());
        }
        let mut out = vec![];
        let mut count = 0;
        for chunk in rows.chunks(self.limits.chunk as usize) {
            out.extend(step(self, chunk.to_vec())?);
            count += chunk.len();
            done(count);
        }
        Ok(out)
    }

    pub fn snapshot(&mut self, slot: u32) -> Result<Snapshot, RunError> {
        self.states().check(slot)?;
        if let Backend::Vulkan(b) = &mut self.backend {
            b.fetch(slot)?;
        }
        Ok(self.states().snapshot(slot)?)
    }

    pub fn restore(&mut self, slot: u32, snapshot: &Snapshot) -> Result<(), RunError> {
        self.states_mut().restore(slot, snapshot)?;
        self.store(slot)
    }

    /// Forgets the positions from `len` on, if the model's states allow it.
    pub fn truncate(&mut self, slot: u32, len: u32) -> Result<(), RunError> {
        Ok(self.states_mut().truncate(slot, len)?)
    }

    /// Empties a sequence. Rows of caches need no clearing: nothing looks beyond a sequence's length.
    pub fn reset(&mut self, slot: u32) -> Result<(), RunError> {
        Ok(self.states_mut().reset(slot)?)
    }

    fn store(&mut self, slot: u32) -> Result<(), RunError> {
        match &mut self.backend {
            Backend::Vulkan(b) => Ok(b.store(slot)?),
            _ => Ok(()),
        }
    }
}
