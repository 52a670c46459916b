//! The prover: replays a finished instruction list and refuses any plan with an unordered conflict.
//!
//! It shares no code with what placed the barriers: it reads instructions, barriers, batches and slots, and follows
//! **successive steps**, since what ends one step and begins the next share every buffer: so many that each way to end a
//! step follows each. For each run of bytes it keeps the last write and the reads since, and to which stages each is
//! visible or ordered by now. A barrier extends that; an access that meets a conflict which is not extended to its stage is
//! refused, with both passes named. Host accesses are ordered by the timeline: a CPU node may touch what a batch touched
//! only if it waited for the batch's value, and a batch may follow a CPU node only if it is submitted behind it.

use super::compile::{Instr, Memory, Plan};
use super::pass::{Buf, Ending, Pass, Stages};
use std::collections::BTreeMap;
use std::ops::Range;

/// Why a plan is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{later} {what} what {earlier} {before} ({memory:?}, bytes {bytes:?}), and no barrier orders them")]
    Unordered {
        earlier: String,
        later: String,
        what: &'static str,
        before: &'static str,
        memory: Memory,
        bytes: Range<u64>,
    },
    #[error("{pass} reads {memory:?}, bytes {bytes:?}, which nothing has written")]
    Unwritten { pass: String, memory: Memory, bytes: Range<u64> },
    #[error("{pass} reads {wanted:?} ({memory:?}, bytes {bytes:?}), but {overwritten_by} has put {found:?} there")]
    Clobbered { pass: String, wanted: Buf, found: Buf, overwritten_by: String, memory: Memory, bytes: Range<u64> },
    #[error("{pass} runs on the host while {batch} may still run on the device: its wait is for {wait}, not {need}")]
    NotWaited { pass: String, batch: String, wait: u64, need: u64 },
    #[error("the wait for {wait} would never end: only {submitted} batches were submitted")]
    NeverSignalled { wait: u64, submitted: u64 },
    #[error("{pass} runs before {needs}, whose result it takes")]
    Early { pass: String, needs: String },
    #[error("the instruction list is malformed: {0}")]
    Malformed(&'static str),
}

/// The last write of a run of bytes, or a read since.
#[derive(Debug, Clone, PartialEq)]
struct Touch {
    pass: usize,
    stage: Stages,
    /// Stages that are ordered behind it (and see it, if it is a write).
    reaches: Stages,
    /// Timeline value of the batch; 0 for the host.
    batch: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Bytes {
    write: Option<Touch>,
    /// What was written: bytes that are shared by lifetime must still hold what their reader wants.
    content: Option<Buf>,
    reads: Vec<Touch>,
}

/// One access that is being checked.
struct Access {
    pass: usize,
    buf: Buf,
    write: bool,
    stage: Stages,
    batch: u64,
}

/// Runs of bytes of one memory, by start; each run ends where the next begins or at its own end.
type Runs = BTreeMap<u64, (u64, Bytes)>;

struct Replay<'a> {
    plan: &'a Plan,
    memories: BTreeMap<Memory, Runs>,
    /// Batches submitted and waited for, counted over all steps.
    submitted: u64,
    waited: u64,
    recording: Option<usize>,
    /// CPU nodes of this step in the order they ran.
    on_host: Vec<usize>,
    /// Passes of this step that have run.
    done: Vec<bool>,
    step: u64,
    /// How this step ends.
    ending: Ending,
    /// Inside what only steps with another ending do.
    skips: bool,
}

/// Each ending behind each.
const STEPS: [Ending; 5] = [Ending::Logits, Ending::Logits, Ending::Tokens, Ending::Tokens, Ending::Logits];

/// Refuses a plan that is not safe when steps follow each other.
pub fn prove(plan: &Plan) -> Result<(), Refusal> {
    let mut r = Replay {
        plan,
        memories: BTreeMap::new(),
        submitted: 0,
        waited: 0,
        recording: None,
        on_host: vec![],
        done: vec![],
        step: 0,
        ending: STEPS[0],
        skips: false,
    };
    // Without endings all steps are the same.
    let steps = if plan.lowered.results.is_some() { STEPS.len() } else { 2 };
    for (step, ending) in STEPS.into_iter().take(steps).enumerate() {
        (r.step, r.ending) = (step as u64, ending);
        r.done = vec![false; plan.lowered.passes.len()];
        r.on_host.clear();
        for instr in &plan.instrs {
            r.instr(*instr)?;
        }
        if r.recording.is_some() {
            return Err(Refusal::Malformed("a batch is never submitted"));
        }
        let wanted = |pass: &Pass| pass.ending.is_none_or(|e| e == ending);
        let mut passes = plan.lowered.passes.iter().zip(&r.done);
        if let Some(missing) = passes.position(|(pass, done)| wanted(pass) && !done) {
            return Err(Refusal::Early { pass: "the end of the step".into(), needs: r.name(missing) });
        }
    }
    Ok(())
}

impl Replay<'_> {
    fn name(&self, pass: usize) -> String {
        match self.plan.lowered.passes.get(pass) {
            Some(p) => p.name.clone(),
            None => "the host, at the step's border,".into(),
        }
    }

    /// Timeline values of a step count on from those of the steps before.
    fn value(&self, in_step: u64) -> u64 {
        self.step * self.plan.batches.len() as u64 + in_step
    }

    fn instr(&mut self, instr: Instr) -> Result<(), Refusal> {
        match instr {
            Instr::For(ending) => {
                self.skips = ending != self.ending;
                match self.recording {
                    Some(_) => Ok(()),
                    None => Err(Refusal::Malformed("an ending outside a batch")),
                }
            }
            Instr::Submit(b) if self.recording == Some(b) => {
                (self.recording, self.skips) = (None, false);
                self.submitted += 1;
                Ok(())
            }
            _ if self.skips => Ok(()),
            Instr::Params => self.params(),
            Instr::Begin(b) => match (self.recording, self.plan.batches.get(b)) {
                (None, Some(batch)) if self.value(batch.signal) == self.submitted + 1 => {
                    self.recording = Some(b);
                    match batch.after_cpu {
                        Some(cpu) if !self.done[cpu] => {
                            Err(Refusal::Early { pass: format!("batch {b}"), needs: self.name(cpu) })
                        }
                        _ => Ok(()),
                    }
                }
                _ => Err(Refusal::Malformed("a batch begins inside another, or out of turn")),
            },
            Instr::Barrier(n) => {
                let scope = self.plan.barriers[n].scope;
                self.barrier(scope.src, scope.dst);
                Ok(())
            }
            Instr::Pass(p) if self.recording.is_some() => self.gpu(p),
            Instr::Pass(_) => Err(Refusal::Malformed("a device pass outside a batch")),
            Instr::Submit(_) => Err(Refusal::Malformed("a batch is submitted that was not recorded")),
            Instr::Cpu { pass, wait } => self.cpu(pass, wait),
            Instr::Wait(wait) => self.end(self.value(wait)),
        }
    }

    /// The host waits for the queue and reads what the step ends with.
    fn end(&mut self, value: u64) -> Result<(), Refusal> {
        self.wait(value)?;
        let Some(results) = self.plan.lowered.results else { return Ok(()) };
        let buf = results.readback(self.ending);
        let (memory, range) = self.bytes(buf)?;
        let host = usize::MAX;
        self.host_order(host, memory, &range, value)?;
        self.access(Access { pass: host, buf, write: false, stage: Stages::HOST, batch: 0 }, memory, range)
    }

    fn wait(&mut self, value: u64) -> Result<(), Refusal> {
        if value > self.submitted {
            return Err(Refusal::NeverSignalled { wait: value, submitted: self.submitted });
        }
        self.waited = self.waited.max(value);
        Ok(())
    }

    /// The commands that rewrite parameters stand between two barriers of their own: everything before them, over
    /// all stages, is ordered before the rewrite, and the rewrite before everything behind.
    fn params(&mut self) -> Result<(), Refusal> {
        let all = Stages::COMPUTE | Stages::TRANSFER | Stages::INDIRECT;
        self.barrier(all, all);
        let ropes = (0..self.plan.lowered.ropes.len()).map(|n| Buf::Rope(n as u32));
        for buf in std::iter::once(Buf::Params).chain(ropes) {
            let (memory, range) = self.bytes(buf)?;
            let batch = self.submitted + 1;
            self.access(Access { pass: usize::MAX, buf, write: true, stage: Stages::TRANSFER, batch }, memory, range)?;
        }
        self.barrier(Stages::TRANSFER, all);
        Ok(())
    }

    fn barrier(&mut self, src: Stages, dst: Stages) {
        for runs in self.memories.values_mut() {
            for (_, bytes) in runs.values_mut() {
                for touch in bytes.write.iter_mut().chain(&mut bytes.reads) {
                    if src.meets(touch.stage | touch.reaches) {
                        touch.reaches = touch.reaches | dst;
                    }
                }
            }
        }
    }

    /// Notes that a pass runs in this step.
    fn once(&mut self, pass: usize) -> Result<(), Refusal> {
        match std::mem::replace(&mut self.done[pass], true) {
            true => Err(Refusal::Malformed("a pass runs twice in a step")),
            false => Ok(()),
        }
    }

    fn gpu(&mut self, pass: usize) -> Result<(), Refusal> {
        self.once(pass)?;
        let p = &self.plan.lowered.passes[pass];
        if !p.on_gpu() {
            return Err(Refusal::Malformed("a host pass inside a batch"));
        }
        if p.ending.is_some_and(|e| e != self.ending) {
            return Err(Refusal::Malformed("a pass of another ending"));
        }
        let batch = self.submitted + 1;
        let binds = p.accesses();
        for bind in binds.iter().filter(|b| !b.write).chain(binds.iter().filter(|b| b.write)) {
            if bind.buf == Buf::Dummy {
                continue;
            }
            let (memory, range) = self.bytes(bind.buf)?;
            let access = |stage| Access { pass, buf: bind.buf, write: bind.write, stage, batch };
            self.access(access(p.stage()), memory, range.clone())?;
            if bind.buf == Buf::Params {
                self.access(access(Stages::INDIRECT), memory, range)?;
            }
        }
        Ok(())
    }

    /// The prover's own reading of where a buffer lies.
    fn bytes(&self, buf: Buf) -> Result<(Memory, Range<u64>), Refusal> {
        let all = 0..u64::MAX;
        Ok(match buf {
            Buf::Transient(t) => match self.plan.slots.get(t as usize) {
                Some(s) if s.offset + s.bytes <= self.plan.arena => (Memory::Arena, s.offset..s.offset + s.bytes),
                _ => return Err(Refusal::Malformed("a transient lies outside the arena")),
            },
            Buf::State(s) => (Memory::State(s.0), all),
            Buf::Params => (Memory::Params, all),
            Buf::Rope(n) => (Memory::Rope(n), all),
            Buf::Upload(n) => (Memory::Upload(n), all),
            Buf::Readback(n) => (Memory::Readback(n), all),
            Buf::Dummy => (Memory::Dummy, all),
        })
    }

    fn cpu(&mut self, pass: usize, wait: u64) -> Result<(), Refusal> {
        self.once(pass)?;
        if self.plan.lowered.passes[pass].on_gpu() {
            return Err(Refusal::Malformed("a device pass on the host"));
        }
        let wait = self.value(wait);
        self.wait(wait)?;
        for bind in self.plan.lowered.passes[pass].accesses() {
            let (memory, range) = self.bytes(bind.buf)?;
            self.host_order(pass, memory, &range, wait)?;
            let access = Access { pass, buf: bind.buf, write: bind.write, stage: Stages::HOST, batch: 0 };
            self.access(access, memory, range)?;
        }
        self.on_host.push(pass);
        Ok(())
    }

    /// Batches that touch what a CPU node touches must have been waited for.
    fn host_order(&self, pass: usize, memory: Memory, range: &Range<u64>, wait: u64) -> Result<(), Refusal> {
        let Some(runs) = self.memories.get(&memory) else { return Ok(()) };
        for (start, (end, bytes)) in runs {
            if *start >= range.end || range.start >= *end {
                continue;
            }
            for touch in bytes.write.iter().chain(&bytes.reads) {
                if touch.batch > self.waited {
                    let (pass, batch) = (self.name(pass), self.name(touch.pass));
                    return Err(Refusal::NotWaited { pass, batch, wait, need: touch.batch });
                }
            }
        }
        Ok(())
    }

    fn access(&mut self, a: Access, memory: Memory, range: Range<u64>) -> Result<(), Refusal> {
        self.split(memory, &range);
        let mut runs = self.memories.remove(&memory).unwrap_or_default();
        let mut checked = Ok(());
        for (start, (end, bytes)) in runs.range_mut(range.start..range.end) {
            checked = self.check(&a, memory, *start..*end, bytes);
            if checked.is_err() {
                break;
            }
            let touch = Touch { pass: a.pass, stage: a.stage, reaches: Stages::empty(), batch: a.batch };
            if a.write {
                *bytes = Bytes { write: Some(touch), content: Some(a.buf), reads: vec![] };
            } else {
                bytes.reads.push(touch);
            }
        }
        self.memories.insert(memory, runs);
        checked
    }

    /// Whether an access may come now.
    fn check(&self, a: &Access, memory: Memory, run: Range<u64>, bytes: &Bytes) -> Result<(), Refusal> {
        if !a.write && !matches!(memory, Memory::State(_)) {
            let pass = self.name(a.pass);
            match (&bytes.write, bytes.content) {
                (None, _) => return Err(Refusal::Unwritten { pass, memory, bytes: run }),
                (Some(w), Some(found)) if found != a.buf => {
                    let overwritten_by = self.name(w.pass);
                    return Err(Refusal::Clobbered { pass, wanted: a.buf, found, overwritten_by, memory, bytes: run });
                }
                _ => {}
            }
        }
        let unordered = |t: &Touch, what, before| {
            let (earlier, later) = (self.name(t.pass), self.name(a.pass));
            Err(Refusal::Unordered { earlier, later, what, before, memory, bytes: run.clone() })
        };
        if let Some(w) = bytes.write.as_ref().filter(|w| !self.behind(a, w)) {
            return unordered(w, if a.write { "writes" } else { "reads" }, "wrote");
        }
        match bytes.reads.iter().find(|r| a.write && !self.behind(a, r)) {
            Some(r) => unordered(r, "writes", "read"),
            None => Ok(()),
        }
    }

    /// Whether an access is ordered behind an earlier touch, and sees it.
    fn behind(&self, a: &Access, t: &Touch) -> bool {
        if t.pass == a.pass || t.reaches.has(a.stage) {
            return true;
        }
        match (t.stage == Stages::HOST, a.stage == Stages::HOST) {
            // The host runs its nodes one after another.
            (true, true) => true,
            // What the host did before a submit is visible to it, if the batch was submitted behind the node.
            (true, false) => self.submitted_behind(t.pass),
            // A wait orders the host's write behind the device's reads; to read, it needs a barrier to the host.
            (false, true) => a.write && t.batch <= self.waited,
            (false, false) => false,
        }
    }

    fn submitted_behind(&self, pass: usize) -> bool {
        let Some(batch) = self.recording.and_then(|b| self.plan.batches.get(b)) else { return false };
        let position = |p: usize| self.on_host.iter().position(|done| *done == p);
        match (position(pass), batch.after_cpu.and_then(position)) {
            (Some(node), Some(last)) => node <= last,
            // A node of the step before: the step has ended with a wait since.
            (None, _) => true,
            (Some(_), None) => false,
        }
    }

    /// Cuts the runs of a memory so that a range consists of whole runs.
    fn split(&mut self, memory: Memory, range: &Range<u64>) {
        let runs = self.memories.entry(memory).or_default();
        for at in [range.start, range.end] {
            let inside = runs.range(..at).next_back().map(|(s, (e, b))| (*s, *e, b.clone()));
            if let Some((start, end, bytes)) = inside.filter(|(_, end, _)| *end > at) {
                runs.insert(start, (at, bytes.clone()));
                runs.insert(at, (end, bytes));
            }
        }
        // Bytes that nobody has touched yet become runs of their own.
        let mut gaps = vec![];
        let mut at = range.start;
        for (start, (end, _)) in runs.range(range.start..range.end) {
            if *start > at {
                gaps.push(at..*start);
            }
            at = *end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        for gap in gaps {
            runs.insert(gap.start, (gap.end, Bytes::default()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Format;
    use crate::graph::{Role, expand};
    use crate::plan::{Shape, compile};
    use crate::spec::{Arch, Config, Source};

    fn plan() -> Plan {
        let text = std::fs::read_to_string("graphs/qwen3.ron").unwrap();
        let arch = Arch::parse(Source::new("qwen3.ron", text)).unwrap_or_else(|e| panic!("{e}"));
        let config = std::fs::read("tests/fixtures/qwen3/config.json").unwrap();
        let graph = expand(&arch, &Config::parse("config.json", &config).unwrap(), "main").unwrap();
        let shape = Shape::new(8, 64);
        compile(&graph, &|_| Some(Format::Bf16), &[], Role::Decode, shape).unwrap()
    }

    #[test]
    fn endings_are_kept_apart() {
        let plan = plan();
        let refused = |change: &dyn Fn(&mut Vec<Instr>)| {
            let mut changed = plan.clone();
            change(&mut changed.instrs);
            prove(&changed).unwrap_err()
        };
        let places: Vec<usize> = (0..plan.instrs.len()).filter(|i| matches!(plan.instrs[*i], Instr::For(_))).collect();
        let [logits, tokens] = places[..] else { panic!("{places:?}") };
        let other = Refusal::Malformed("a pass of another ending");
        assert_eq!(refused(&|i| i.swap(logits, tokens)), other);
        // Commands of one ending in all steps.
        assert_eq!(refused(&|i| _ = i.remove(logits)), other);
        assert_eq!(refused(&|i| _ = i.remove(tokens)), other);
        assert_eq!(refused(&|i| i.push(Instr::For(Ending::Logits))), Refusal::Malformed("an ending outside a batch"));
        // Each pass and barrier of either ending is needed.
        let end = plan.instrs.iter().rposition(|i| matches!(i, Instr::Submit(_))).unwrap();
        for at in (logits..end).filter(|at| *at != logits && *at != tokens) {
            refused(&|i| _ = i.remove(at));
        }
    }
}
