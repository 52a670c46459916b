//! The compile function: a graph, placed, to a finished plan.

use super::barrier;
use super::lower::{Lowered, Shape, lower};
use super::memory::{Life, place as place_lives};
use super::pass::{Buf, Count, Ending, Pass, Stages, Work};
use super::place::{Formats, PlaceError, Placed, Rule, place};
use super::prove::{self, Refusal};
use super::schedule::{Schedule, Time, schedule};
use crate::graph::{Graph, Role};
use serde::Serialize;
use std::ops::Range;

/// Device memory that passes may share bytes of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// Transients, placed by lifetime.
    Arena,
    State(u32),
    Params,
    Rope(u32),
    Upload(u32),
    Readback(u32),
    Dummy,
}

/// Memory writes of `src` are made visible to reads and writes of `dst`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    pub src: Stages,
    pub dst: Stages,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hazard {
    ReadAfterWrite,
    WriteAfterRead,
    WriteAfterWrite,
    HostRead,
}

/// Why a barrier stands: two passes that touch the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    pub hazard: Hazard,
    pub buf: Buf,
    pub earlier: usize,
    pub later: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Barrier {
    pub scope: Scope,
    pub causes: Vec<Cause>,
}

/// What a step does, in order. The host walks this list; between `Begin` and `Submit` it only records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instr {
    /// Rewrites the step's parameters, in a command buffer of its own ahead of the replayed ones.
    Params,
    Begin(usize),
    /// What follows, up to the next of these or the end of the batch, is only in steps that end like this.
    For(Ending),
    Barrier(usize),
    Pass(usize),
    /// Hands a batch to the queue; its timeline value becomes `Batch::signal`.
    Submit(usize),
    /// Runs a CPU node, after the queue's timeline has reached `wait`.
    Cpu {
        pass: usize,
        wait: u64,
    },
    /// The end of a step: the host waits for the queue.
    Wait(u64),
}

/// Commands that are submitted together. Timeline values count from the start of the step.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    pub segment: u32,
    /// CPU nodes that must have run before: the executor discharges this wait on the host.
    pub after_cpu: Option<usize>,
    pub signal: u64,
    /// Predicted seconds, at the assumed bandwidth.
    pub predicted: f64,
}

/// A transient's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    pub offset: u64,
    pub bytes: u64,
    /// First and last time rank in use.
    pub first: u32,
    pub last: u32,
}

/// A finished, proven plan: plain data.
#[derive(Debug, Clone)]
pub struct Plan {
    pub role: Role,
    pub shape: Shape,
    pub lowered: Lowered,
    pub placed: Vec<Placed>,
    pub schedule: Schedule,
    pub slots: Vec<Slot>,
    pub arena: u64,
    pub barriers: Vec<Barrier>,
    pub batches: Vec<Batch>,
    pub instrs: Vec<Instr>,
    /// Distinct workgroup counts; their sizes of a step lie in the parameter buffer.
    pub counts: Vec<(Count, Count)>,
}

/// Counts of a plan, for people and machines. What both endings of a step have is counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub passes: usize,
    pub dispatches: usize,
    pub barriers: usize,
    pub submits: usize,
    /// CPU nodes between submits.
    pub joins: usize,
    pub cpu_nodes: usize,
    /// Levels of GPU passes: each depends on the one before.
    pub stages: usize,
    pub arena_bytes: u64,
    pub transient_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("the plan is not safe, which is a fault of the compiler: {0}")]
    Refused(#[from] Refusal),
    #[error(
        "{pass} takes {groups} workgroups in one direction, and devices take {MAX_GROUPS}: give a smaller --ctx or --chunk"
    )]
    Groups { pass: String, groups: u32 },
    #[error("the plan needs {0} different workgroup counts, the parameter buffer has room for 192")]
    Counts(usize),
}

/// Bytes per second that predictions assume where nothing was measured: a small discrete card's.
const ASSUMED_BANDWIDTH: f64 = 200e9;
/// Drivers kill work that runs for seconds; a submit is predicted to stay far below.
const LONGEST_SUBMIT: f64 = 0.05;
/// Workgroups in one direction that every Vulkan device takes (maxComputeWorkGroupCount).
const MAX_GROUPS: u32 = 65_535;
/// Room for workgroup counts in the parameter buffer.
pub const MAX_COUNTS: usize = 192;

/// place -> lower and fuse -> order -> memory -> barriers -> submit batches -> proof.
pub fn compile(graph: &Graph, formats: Formats, rules: &[Rule], role: Role, shape: Shape) -> Result<Plan, PlanError> {
    let placed = place(graph, formats, rules)?;
    let lowered = lower(graph, &placed, formats, role, shape);
    groups_fit(&lowered.passes, shape)?;
    let schedule = schedule(graph, &lowered.passes, shape.shuffle);
    let (slots, arena) = slots(&lowered, &schedule);
    let resolve = |buf| resolve(&slots, buf);
    let (barriers, batches, instrs) = assemble(&lowered.passes, &schedule, &resolve, shape);
    let counts = counts(&lowered.passes);
    if counts.len() > MAX_COUNTS {
        return Err(PlanError::Counts(counts.len()));
    }
    let plan = Plan { role, shape, lowered, placed, schedule, slots, arena, barriers, batches, instrs, counts };
    prove::prove(&plan)?;
    Ok(plan)
}

/// The largest dispatch that a step of this shape can ask for is one that every device takes.
fn groups_fit(passes: &[Pass], shape: Shape) -> Result<(), PlanError> {
    for pass in passes {
        let Work::Dispatch(d) = &pass.work else { continue };
        let groups = [d.groups.0, d.groups.1].map(|c| c.most(shape.rows, shape.ctx));
        if let Some(groups) = groups.into_iter().find(|n| *n > MAX_GROUPS) {
            return Err(PlanError::Groups { pass: pass.name.clone(), groups });
        }
    }
    Ok(())
}

/// Offsets of the transients in the arena, by lifetime.
fn slots(lowered: &Lowered, schedule: &Schedule) -> (Vec<Slot>, u64) {
    let mut lives: Vec<Life> =
        lowered.transients.iter().map(|t| Life { first: u32::MAX, last: 0, bytes: t.bytes.max(4) }).collect();
    for (i, pass) in lowered.passes.iter().enumerate() {
        for bind in pass.accesses() {
            if let Buf::Transient(t) = bind.buf {
                let life = &mut lives[t as usize];
                life.first = life.first.min(schedule.rank[i]);
                life.last = life.last.max(schedule.rank[i]);
            }
        }
    }
    let arena = place_lives(&lives);
    let slot = |(l, offset): (&Life, &u64)| Slot { offset: *offset, bytes: l.bytes, first: l.first, last: l.last };
    (lives.iter().zip(&arena.offsets).map(slot).collect(), arena.bytes)
}

/// The bytes behind a buffer.
pub fn resolve(slots: &[Slot], buf: Buf) -> (Memory, Range<u64>) {
    let whole = 0..u64::MAX;
    match buf {
        Buf::Transient(t) => {
            let s = slots[t as usize];
            (Memory::Arena, s.offset..s.offset + s.bytes)
        }
        Buf::State(s) => (Memory::State(s.0), whole),
        Buf::Params => (Memory::Params, whole),
        Buf::Rope(n) => (Memory::Rope(n), whole),
        Buf::Upload(n) => (Memory::Upload(n), whole),
        Buf::Readback(n) => (Memory::Readback(n), whole),
        Buf::Dummy => (Memory::Dummy, whole),
    }
}

fn counts(passes: &[Pass]) -> Vec<(Count, Count)> {
    let mut counts: Vec<(Count, Count)> = passes
        .iter()
        .filter_map(|p| match &p.work {
            Work::Dispatch(d) => Some(d.groups),
            _ => None,
        })
        .collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The instruction list: segments to batches, barriers in place, CPU nodes between. What all steps do comes first; both
/// endings stand in the last batch, each with the barriers that it needs behind the rest.
fn assemble(
    passes: &[Pass],
    schedule: &Schedule,
    resolve: &dyn Fn(Buf) -> (Memory, Range<u64>),
    shape: Shape,
) -> (Vec<Barrier>, Vec<Batch>, Vec<Instr>) {
    let of = |ending| schedule.order.iter().copied().filter(move |i| passes[*i].ending == ending);
    let common = of(None).count();
    let mut a = Assembly {
        passes,
        times: &schedule.times,
        shape,
        barriers: vec![],
        batches: vec![],
        instrs: vec![Instr::Params],
        open: false,
        last_cpu: None,
    };
    for ending in Ending::ALL {
        let order: Vec<usize> = of(None).chain(of(Some(ending))).collect();
        let placed = barrier::derive(passes, &order, &schedule.times, resolve);
        let (before, behind): (Vec<_>, Vec<_>) = placed.into_iter().partition(|p| p.stands_before(common));
        // The first `common` passes have the same barriers in either order.
        if ending == Ending::ALL[0] {
            a.list(&order, 0..common, before);
        }
        if let Some(pass) = passes.iter().position(|p| p.ending.is_some()) {
            if ending == Ending::ALL[0] {
                a.turn(schedule.times[pass].segment, true);
            }
            a.instrs.push(Instr::For(ending));
            a.list(&order, common..order.len(), behind);
        }
    }
    a.close();
    a.instrs.push(Instr::Wait(a.batches.len() as u64));
    (a.barriers, a.batches, a.instrs)
}

struct Assembly<'a> {
    passes: &'a [Pass],
    times: &'a [Time],
    shape: Shape,
    barriers: Vec<Barrier>,
    batches: Vec<Batch>,
    instrs: Vec<Instr>,
    open: bool,
    last_cpu: Option<usize>,
}

impl Assembly<'_> {
    /// Instructions of a stretch of an order of passes, with its barriers.
    fn list(&mut self, order: &[usize], stretch: Range<usize>, placed: Vec<barrier::Placed>) {
        let mut placed = placed.into_iter().peekable();
        for at in stretch {
            let pass = order[at];
            if !self.passes[pass].on_gpu() {
                self.close();
                self.instrs.push(Instr::Cpu { pass, wait: self.batches.len() as u64 });
                self.last_cpu = Some(pass);
                continue;
            }
            if self.passes[pass].ending.is_none() {
                let time = self.times[pass];
                self.turn(time.segment, at == 0 || self.times[order[at - 1]] != time);
            }
            while let Some(p) = placed.next_if(|p| p.before <= at) {
                self.barrier(p.barrier);
            }
            self.instrs.push(Instr::Pass(pass));
            if let (Work::Dispatch(d), Some(b)) = (&self.passes[pass].work, self.batches.last_mut()) {
                b.predicted += d.traffic(self.shape.rows, self.shape.ctx) as f64 / ASSUMED_BANDWIDTH;
            }
            // A barrier to the host stands behind the last pass of a segment.
            while let Some(p) = placed.next_if(|p| p.stands_before(at + 1)) {
                self.barrier(p.barrier);
            }
        }
    }

    /// Begins a batch, unless one is open that still has room.
    fn turn(&mut self, segment: u32, new_level: bool) {
        let last = self.batches.last();
        let full = new_level && last.is_some_and(|b| b.predicted > LONGEST_SUBMIT);
        if self.open && (full || last.is_some_and(|b| b.segment != segment)) {
            self.close();
        }
        if !self.open {
            self.open = true;
            let signal = self.batches.len() as u64 + 1;
            self.instrs.push(Instr::Begin(self.batches.len()));
            self.batches.push(Batch { segment, after_cpu: self.last_cpu, signal, predicted: 0.0 });
        }
    }

    fn close(&mut self) {
        if self.open {
            self.open = false;
            self.instrs.push(Instr::Submit(self.batches.len() - 1));
        }
    }

    fn barrier(&mut self, barrier: Barrier) {
        self.instrs.push(Instr::Barrier(self.barriers.len()));
        self.barriers.push(barrier);
    }
}

impl Plan {
    pub fn figures(&self) -> Figures {
        let passes = &self.lowered.passes;
        let gpu = || (0..passes.len()).filter(|i| passes[*i].on_gpu());
        let mut stages: Vec<u32> = gpu().map(|i| self.schedule.rank[i]).collect();
        stages.sort_unstable();
        stages.dedup();
        Figures {
            passes: passes.len(),
            dispatches: passes.iter().filter(|p| matches!(p.work, Work::Dispatch(_))).count(),
            barriers: self.barriers.len(),
            submits: self.batches.len(),
            joins: self.batches.iter().filter(|b| b.after_cpu.is_some()).count(),
            cpu_nodes: passes.len() - gpu().count(),
            stages: stages.len(),
            arena_bytes: self.arena,
            transient_bytes: self.lowered.transients.iter().map(|t| t.bytes).sum(),
        }
    }
}
