//! A queue with its timeline: submits and waits.

use super::breadcrumbs::Breadcrumbs;
use super::commands::{Executable, Recorder, Replay};
use super::core::{Core, lock};
use super::error::{Code, Error, Result};
use super::instance::Validation;
use super::timeline::{Clock, Deadline, Wait};
use ash::vk;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long a wait spins before it blocks: longer would starve a driver that computes on the processor.
const SPIN: Duration = Duration::from_micros(40);

/// How long a wait blocks before it looks for progress.
const SLICE: Duration = Duration::from_millis(100);

/// A queue of a device.
pub struct Queue {
    core: Arc<Core>,
    label: String,
    family: u32,
    raw: Mutex<vk::Queue>,
    clock: Arc<Clock>,
    crumbs: Arc<Breadcrumbs>,
    poisoned: OnceLock<String>,
}

impl Queue {
    pub(super) fn new(core: &Arc<Core>, label: &str, family: u32) -> Result<Self> {
        // SAFETY: the device was made with one queue of this family.
        let raw = unsafe { core.raw.get_device_queue(family, 0) };
        core.name(raw, label);
        let clock = Arc::new(Clock::new(core, label)?);
        core.add_clock(clock.clone());
        let crumbs = Arc::new(Breadcrumbs::new(core, label)?);
        core.add_crumbs(&crumbs);
        Ok(Self {
            core: core.clone(),
            label: label.to_owned(),
            family,
            raw: Mutex::new(raw),
            clock,
            crumbs,
            poisoned: OnceLock::new(),
        })
    }

    /// Starts a command buffer for this queue.
    pub fn recorder(&self, label: &str, replay: Replay) -> Result<Recorder<'_>> {
        Recorder::new(self, label, replay)
    }

    /// The largest value submitted; the next submit signals a larger one.
    pub fn submitted(&self) -> u64 {
        self.clock.submitted()
    }

    /// How far the queue is.
    pub fn reached(&self) -> Result<u64> {
        self.clock.reached(&self.core)
    }

    /// For a submit to another queue that needs what this one does up to `value`.
    pub fn at(&self, value: u64) -> Wait {
        Wait::new(&self.core, &self.clock, value)
    }

    /// Submits command buffers that run in order, after `waits`; the timeline is at `signal` when they are done.
    ///
    /// Every wait must be for something already submitted (or promised by the host), so a cycle cannot be.
    pub fn submit(&self, work: &[&Executable], waits: &[Wait], signal: u64) -> Result<()> {
        self.core.alive()?;
        if let Some(first) = self.poisoned.get() {
            return Err(Error::Poisoned { queue: self.label.clone(), first: first.clone() });
        }
        let queue = lock(&self.raw);
        self.check(work, waits, signal)?;
        let buffers: Vec<_> =
            work.iter().map(|e| vk::CommandBufferSubmitInfo::default().command_buffer(e.raw())).collect();
        let semaphore = |clock: &Clock, value| {
            vk::SemaphoreSubmitInfo::default()
                .semaphore(clock.semaphore)
                .value(value)
                .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
        };
        let waits: Vec<_> = waits.iter().map(|w| semaphore(&w.clock, w.value)).collect();
        let signals = [semaphore(&self.clock, signal)];
        let info = vk::SubmitInfo2::default()
            .command_buffer_infos(&buffers)
            .wait_semaphore_infos(&waits)
            .signal_semaphore_infos(&signals);
        self.clock.intend(signal);
        // SAFETY: the lock makes this thread the queue's only user; what is submitted is kept until it is done.
        let asked = || unsafe { (self.core.sync2.submit)(*queue, 1, &info, vk::Fence::null()) };
        let code = self.core.injected().unwrap_or_else(asked);
        if code != vk::Result::SUCCESS {
            return Err(self.refused(code));
        }
        self.clock.promise(signal);
        drop(queue);
        self.core.collect();
        Ok(())
    }

    fn check(&self, work: &[&Executable], waits: &[Wait], signal: u64) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid("submit", &self.label, reason));
        if work.is_empty() {
            return invalid("nothing to run".into());
        }
        let submitted = self.clock.submitted();
        if signal <= submitted {
            return invalid(format!("value {signal} after {submitted}"));
        }
        for wait in waits {
            if !Arc::ptr_eq(&wait.core, &self.core) {
                return invalid(format!("it waits for {}, which is of another device", wait.clock.label));
            }
            wait.clock.expect(wait.value)?;
        }
        work.iter().try_for_each(|e| e.admit(&self.core, self.family))?;
        match work.iter().find(|e| !e.spend()) {
            Some(twice) => invalid(format!("`{}` was recorded to run once, and stands twice", twice.label())),
            None => Ok(()),
        }
    }

    fn refused(&self, code: vk::Result) -> Error {
        let error = match code {
            vk::Result::ERROR_DEVICE_LOST => self.core.lose("vkQueueSubmit2"),
            code => Error::Call { call: "vkQueueSubmit2", object: format!("`{}`", self.label), code: Code(code) },
        };
        self.poisoned.get_or_init(|| error.to_string());
        error
    }

    /// The name of the last breadcrumb that the queue passed.
    pub fn breadcrumb(&self) -> Option<String> {
        self.crumbs.last()
    }

    /// Waits until the queue has reached `value`, which must have been submitted.
    pub fn wait(&self, value: u64, deadline: Deadline) -> Result<()> {
        self.core.alive()?;
        self.clock.expect(value)?;
        let started = Instant::now();
        // GPU-assisted validation looks for what shaders did only in a real wait.
        let validation = self.core.instance.validation();
        let validated = validation != Validation::Off;
        while !validated && self.reached()? < value && started.elapsed() < SPIN {
            std::hint::spin_loop();
        }
        if validated || self.reached()? < value {
            self.block(value, deadline, started)?;
        }
        if validation == Validation::GpuAssisted {
            self.drain()?;
        }
        self.core.collect();
        Ok(())
    }

    /// Waits for the layer's own thread too: it reads what shaders reported after the semaphore has been signalled, and
    /// crashes if what it looks at is destroyed meanwhile (seen with 1.4.309).
    fn drain(&self) -> Result<()> {
        let queue = lock(&self.raw);
        // SAFETY: the lock makes this thread the queue's only user.
        let idle = unsafe { self.core.raw.queue_wait_idle(*queue) };
        self.core.call("vkQueueWaitIdle", &self.label, idle)
    }

    fn block(&self, value: u64, deadline: Deadline, started: Instant) -> Result<()> {
        let (semaphores, values) = ([self.clock.semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let (mut seen, mut moved) = (self.progress(), Instant::now());
        loop {
            let left = deadline.still.saturating_sub(moved.elapsed());
            let left = deadline.total.map_or(left, |t| left.min(t.saturating_sub(started.elapsed())));
            let slice = SLICE.min(left).as_nanos() as u64;
            // SAFETY: the semaphore lives as long as the core.
            match unsafe { self.core.raw.wait_semaphores(&info, slice) } {
                // The counter decides: a lost device may report success.
                Ok(()) if self.reached()? >= value => return Ok(()),
                Ok(()) => return Err(self.core.lose("vkWaitSemaphores")),
                Err(vk::Result::TIMEOUT) => {}
                Err(code) => return self.core.call("vkWaitSemaphores", &self.label, Err(code)),
            }
            let now = self.progress();
            if now != seen {
                (seen, moved) = (now, Instant::now());
            }
            let late = deadline.total.is_some_and(|t| started.elapsed() >= t);
            if late || moved.elapsed() >= deadline.still {
                return Err(self.stuck(value, started.elapsed()));
            }
        }
    }

    /// Anything that changes while the device works.
    fn progress(&self) -> (Vec<u64>, u32) {
        (self.core.positions(), self.crumbs.word())
    }

    fn stuck(&self, value: u64, waited: Duration) -> Error {
        let reached = self.reached().unwrap_or(0);
        Error::Stuck { queue: self.label.clone(), value, reached, waited, breadcrumb: self.breadcrumb() }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn family(&self) -> u32 {
        self.family
    }

    /// Whether it takes more than copies.
    pub fn computes(&self) -> bool {
        self.family == self.core.families.compute
    }

    pub(super) fn crumbs(&self) -> &Breadcrumbs {
        &self.crumbs
    }
}
