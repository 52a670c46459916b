//! Timeline semaphores: how far a queue or the host is.

use super::core::{Core, Garbage};
use super::device::Device;
use super::error::{Error, Result};
use ash::vk;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When a wait gives up. There is no wait without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// The longest time without progress: no queue's timeline and no breadcrumb moves.
    pub still: Duration,
    /// The longest time in all, if there is one.
    pub total: Option<Duration>,
}

impl Deadline {
    /// Gives up after so long without progress.
    pub const fn still(still: Duration) -> Self {
        Self { still, total: None }
    }

    /// Gives up after so long, whatever happens.
    pub const fn within(total: Duration) -> Self {
        Self { still: total, total: Some(total) }
    }
}

/// A timeline semaphore and the largest value that something was submitted for.
pub(super) struct Clock {
    pub semaphore: vk::Semaphore,
    pub label: String,
    submitted: AtomicU64,
    /// The same, and what is being submitted at this moment.
    intended: AtomicU64,
    /// The last value seen, so that old questions need no call.
    seen: AtomicU64,
}

impl Clock {
    pub fn new(core: &Core, label: &str) -> Result<Self> {
        let mut timeline = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut timeline);
        // SAFETY: `info` outlives the call.
        let made = unsafe { core.raw.create_semaphore(&info, None) };
        let semaphore = core.call("vkCreateSemaphore", label, made)?;
        core.name(semaphore, label);
        let zero = || AtomicU64::new(0);
        Ok(Self { semaphore, label: label.to_owned(), submitted: zero(), intended: zero(), seen: zero() })
    }

    pub fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// From now on `value` may come.
    pub fn intend(&self, value: u64) {
        self.intended.fetch_max(value, Ordering::AcqRel);
    }

    /// From now on `value` will come.
    pub fn promise(&self, value: u64) {
        self.intend(value);
        self.submitted.fetch_max(value, Ordering::AcqRel);
    }

    /// Fails unless `value` will come.
    pub fn expect(&self, value: u64) -> Result<()> {
        let submitted = self.submitted();
        if value <= submitted {
            return Ok(());
        }
        Err(Error::Unsubmitted { timeline: self.label.clone(), value, submitted })
    }

    /// The value now.
    pub fn reached(&self, core: &Core) -> Result<u64> {
        let (seen, submitted) = (self.seen.load(Ordering::Acquire), self.submitted());
        if seen >= submitted {
            return Ok(seen);
        }
        // SAFETY: the semaphore lives as long as the core.
        let value = unsafe { core.raw.get_semaphore_counter_value(self.semaphore) };
        let value = core.call("vkGetSemaphoreCounterValue", &self.label, value)?;
        // A lost device may show any value, all ones by preference.
        if value > self.intended.load(Ordering::Acquire) {
            return Err(core.lose("vkGetSemaphoreCounterValue"));
        }
        self.seen.fetch_max(value, Ordering::AcqRel);
        Ok(value)
    }
}

/// A timeline that the host signals, for work that waits for the host.
///
/// A device that waits for a host runs slower than a host that submits when it is ready: use it where that cannot be.
#[derive(Clone)]
pub struct HostTimeline(Arc<Host>);

struct Host {
    core: Arc<Core>,
    clock: Arc<Clock>,
}

/// A value of a timeline that a submit waits for.
#[derive(Clone)]
pub struct Wait {
    pub(super) core: Arc<Core>,
    pub(super) clock: Arc<Clock>,
    pub(super) value: u64,
    /// Keeps the semaphore; those of queues live as long as the core.
    _host: Option<HostTimeline>,
}

impl Wait {
    pub(super) fn new(core: &Arc<Core>, clock: &Arc<Clock>, value: u64) -> Self {
        Self { core: core.clone(), clock: clock.clone(), value, _host: None }
    }
}

impl HostTimeline {
    /// A timeline at 0.
    pub fn new(device: &Device, label: &str) -> Result<Self> {
        let core = device.core().clone();
        let clock = Arc::new(Clock::new(&core, label)?);
        Ok(Self(Arc::new(Host { core, clock })))
    }

    /// A submit that waits for this waits for the host to [`signal`](Self::signal) it.
    pub fn at(&self, value: u64) -> Wait {
        Wait { _host: Some(self.clone()), ..Wait::new(&self.0.core, &self.0.clock, value) }
    }

    /// Announces that `value` will be signalled, so that a submit may wait for it.
    pub fn promise(&self, value: u64) {
        self.0.clock.promise(value);
    }

    /// Signals a value larger than all before.
    pub fn signal(&self, value: u64) -> Result<()> {
        let reached = self.0.clock.reached(&self.0.core)?;
        if value <= reached {
            return Err(Error::invalid("signal", &self.0.clock.label, format!("{value} after {reached}")));
        }
        self.0.clock.promise(value);
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.0.clock.semaphore).value(value);
        // SAFETY: the semaphore is alive and the value larger than its own.
        let signalled = unsafe { self.0.core.raw.signal_semaphore(&info) };
        self.0.core.call("vkSignalSemaphore", &self.0.clock.label, signalled)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.core.retire(Garbage::Semaphore(self.clock.semaphore));
    }
}
