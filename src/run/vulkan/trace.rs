//! What a step spent its time on: passes by the device's clock, submits, waits and CPU nodes by the host's.

use super::bind::BoundPlan;
use crate::vk;
use std::time::Instant;

/// Who was busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Host,
    Device,
}

/// A stretch of time, in microseconds since the session's trace began.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub lane: Lane,
    pub name: String,
    /// The shader of a pass; what the host did.
    pub kind: String,
    pub step: u32,
    pub start: f64,
    pub end: f64,
}

/// Collects spans. The two clocks are laid against each other at the first submit of each step: the device cannot have
/// begun before, and begins at once unless it is shared.
pub struct Trace {
    began: Instant,
    spans: Vec<Span>,
}

impl Trace {
    pub fn new() -> Self {
        Self { began: Instant::now(), spans: vec![] }
    }

    pub fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e6
    }

    /// Something that the host did from `start` until now.
    pub fn host(&mut self, name: String, kind: &str, step: u32, start: f64) {
        let end = self.now();
        self.spans.push(Span { lane: Lane::Host, name, kind: kind.into(), step, start, end });
    }

    /// The passes of a step that began with a submit at `start`.
    pub fn device(&mut self, bound: &BoundPlan, step: u32, start: f64) -> Result<(), vk::Error> {
        let Some(times) = &bound.times else { return Ok(()) };
        let times = times.read()?;
        let Some(first) = times.iter().flatten().copied().reduce(f64::min) else { return Ok(()) };
        for (i, pass) in bound.plan.lowered.passes.iter().enumerate() {
            if let (Some(Some(from)), Some(Some(to))) = (times.get(2 * i), times.get(2 * i + 1)) {
                let at = |t: f64| start + (t - first) / 1e3;
                let (name, kind) = (pass.name.clone(), pass.kind());
                self.spans.push(Span { lane: Lane::Device, name, kind, step, start: at(*from), end: at(*to) });
            }
        }
        Ok(())
    }

    pub fn take(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.spans)
    }
}
