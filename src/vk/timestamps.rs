//! Times on the device.

use super::capabilities::Timestamps as Clock;
use super::core::{Core, Garbage};
use super::device::Device;
use super::error::Result;
use ash::vk;
use std::any::Any;
use std::sync::Arc;

/// Places for times that command buffers of the compute queue write; clones share them.
#[derive(Clone)]
pub struct Timestamps(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    raw: vk::QueryPool,
    label: String,
    count: u32,
    clock: Clock,
}

impl Timestamps {
    /// Makes `count` places, or says why the device has no times.
    pub fn new(device: &Device, label: &str, count: u32) -> Result<Self> {
        let core = device.core().clone();
        core.alive()?;
        let clock = core.capabilities.features.timestamps.clone()?;
        let info = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(count);
        // SAFETY: `info` outlives the call.
        let raw = core.call("vkCreateQueryPool", label, unsafe { core.raw.create_query_pool(&info, None) })?;
        core.name(raw, label);
        Ok(Self(Arc::new(Inner { core, raw, label: label.to_owned(), count, clock })))
    }

    /// How many places there are.
    pub fn count(&self) -> u32 {
        self.0.count
    }

    /// The times in nanoseconds since some moment; `None` where none has been written since the reset.
    ///
    /// A clock of few bits wraps; differences are right if taken by [`elapsed`](Self::elapsed).
    pub fn read(&self) -> Result<Vec<Option<f64>>> {
        let ticks = self.ticks()?;
        Ok(ticks.into_iter().map(|t| t.map(|t| t as f64 * f64::from(self.0.clock.period))).collect())
    }

    /// Nanoseconds from one place to another, if both have been written.
    pub fn elapsed(&self, from: u32, to: u32) -> Result<Option<f64>> {
        let ticks = self.ticks()?;
        let at = |i: u32| ticks.get(i as usize).copied().flatten();
        let (Some(from), Some(to)) = (at(from), at(to)) else { return Ok(None) };
        Ok(Some((to.wrapping_sub(from) & self.mask()) as f64 * f64::from(self.0.clock.period)))
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.0.clock.bits.clamp(1, 64))
    }

    fn ticks(&self) -> Result<Vec<Option<u64>>> {
        let mut data = vec![[0u64; 2]; self.0.count as usize];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WITH_AVAILABILITY;
        // SAFETY: the pool has as many queries as `data` has pairs of value and availability.
        let got = unsafe { self.0.core.raw.get_query_pool_results(self.0.raw, 0, &mut data, flags) };
        match got {
            Ok(()) | Err(vk::Result::NOT_READY) => {}
            Err(code) => return self.0.core.call("vkGetQueryPoolResults", &self.0.label, Err(code)),
        }
        Ok(data.into_iter().map(|[ticks, there]| (there != 0).then_some(ticks & self.mask())).collect())
    }

    pub(super) fn raw(&self) -> vk::QueryPool {
        self.0.raw
    }

    pub(super) fn label(&self) -> &str {
        &self.0.label
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    pub(super) fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.core.retire(Garbage::Queries(self.raw));
    }
}
