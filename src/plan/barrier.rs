//! Barriers, derived from what passes declare.
//!
//! The device's passes form one sequence, level after level, over all submits of a step (a queue starts its
//! commands in order). What has been accessed since the last barrier is *open*. Before a level, each of its accesses is
//! held against the open ones: bytes that overlap, one of the two a write, need a barrier between them. All that a
//! level needs is one memory barrier, which closes everything open: with many buffers in flight a driver flushes once
//! for one barrier, and once each for many. Why it stands there is kept for people and for snapshots.
//!
//! Where the host reads what a segment has copied back, the segment ends with a barrier to the host. What the host
//! writes before a submit is visible to it without one. The first commands of a step, which rewrite the parameters,
//! wait for all of the step before.

use super::compile::{Barrier, Cause, Hazard, Memory, Scope};
use super::pass::{Buf, Pass, Stages};
use super::schedule::Time;
use std::ops::Range;

/// An access to bytes that no barrier has closed yet.
struct Open {
    memory: Memory,
    range: Range<u64>,
    write: bool,
    stage: Stages,
    pass: usize,
    buf: Buf,
}

impl Open {
    /// Why a barrier to the host stands behind this copy.
    fn for_host(&self) -> Cause {
        Cause { hazard: Hazard::HostRead, buf: self.buf, earlier: self.pass, later: self.pass }
    }
}

/// Where in the order a barrier stands: before the pass with this position, or at the end of its segment.
pub struct Placed {
    pub before: usize,
    pub barrier: Barrier,
}

impl Placed {
    /// Whether it stands before this position: at it, a barrier to the host ends what lies before.
    pub fn stands_before(&self, at: usize) -> bool {
        self.before < at || self.before == at && self.barrier.scope.dst == Stages::HOST
    }
}

/// All barriers of a step that runs passes in this order, by position in it.
pub fn derive(
    passes: &[Pass],
    order: &[usize],
    times: &[Time],
    resolve: &dyn Fn(Buf) -> (Memory, Range<u64>),
) -> Vec<Placed> {
    let gpu: Vec<usize> = (0..order.len()).filter(|at| passes[order[*at]].on_gpu()).collect();
    let mut out = vec![];
    let mut open: Vec<Open> = vec![];
    // Copies for the host in this segment: barriers inside it close them for the device only.
    let mut copied: Vec<Cause> = vec![];
    let mut at = 0;
    while at < gpu.len() {
        let time = times[order[gpu[at]]];
        let level: Vec<usize> = gpu[at..].iter().copied().take_while(|g| times[order[*g]] == time).collect();
        let new: Vec<Open> = level.iter().flat_map(|g| accesses(passes, order[*g], resolve)).collect();
        let causes = conflicts(&open, &new);
        if !causes.is_empty() {
            let src = open.iter().fold(Stages::empty(), |s, o| s | o.stage);
            let dst = Stages::COMPUTE | Stages::TRANSFER;
            out.push(Placed { before: level[0], barrier: Barrier { scope: Scope { src, dst }, causes } });
            open.clear();
        }
        copied.extend(new.iter().filter(|o| o.write && matches!(o.memory, Memory::Readback(_))).map(Open::for_host));
        open.extend(new);
        at += level.len();
        let ends = gpu.get(at).is_none_or(|g| times[order[*g]].segment != time.segment);
        if ends && !copied.is_empty() {
            let scope = Scope { src: Stages::TRANSFER, dst: Stages::HOST };
            let causes = std::mem::take(&mut copied);
            out.push(Placed { before: level[level.len() - 1] + 1, barrier: Barrier { scope, causes } });
        }
    }
    out
}

fn accesses(passes: &[Pass], pass: usize, resolve: &dyn Fn(Buf) -> (Memory, Range<u64>)) -> Vec<Open> {
    let stage = passes[pass].stage();
    let mut out = vec![];
    for bind in passes[pass].accesses() {
        // Parameters and rotations change only between steps; unused bindings never.
        if matches!(bind.buf, Buf::Params | Buf::Rope(_) | Buf::Dummy) {
            continue;
        }
        let (memory, range) = resolve(bind.buf);
        out.push(Open { memory, range, write: bind.write, stage, pass, buf: bind.buf });
    }
    out
}

fn conflicts(open: &[Open], new: &[Open]) -> Vec<Cause> {
    let mut causes: Vec<Cause> = vec![];
    for n in new {
        for o in open {
            let overlap = o.memory == n.memory && o.range.start < n.range.end && n.range.start < o.range.end;
            if !overlap || !(o.write || n.write) {
                continue;
            }
            let hazard = match (o.write, n.write) {
                (true, false) => Hazard::ReadAfterWrite,
                (false, true) => Hazard::WriteAfterRead,
                _ => Hazard::WriteAfterWrite,
            };
            let cause = Cause { hazard, buf: n.buf, earlier: o.pass, later: n.pass };
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
    }
    causes
}
