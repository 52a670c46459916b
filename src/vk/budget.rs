//! How much memory is left, asked before anything is allocated.

use super::device::Device;
use super::error::{Error, Missing, Result, Support};
use super::memory_types::{Kind, choose};
use ash::vk;
use serde::Serialize;

/// A heap at this moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeapState {
    /// Bytes in all.
    pub size: u64,
    /// Whether it is the device's own memory.
    pub device_local: bool,
    /// What this process may use, and what it uses, by the driver's account.
    pub budget: Support<(u64, u64)>,
}

impl HeapState {
    /// Bytes that can still be allocated. Without the driver's account nine tenths of the heap are taken to be ours.
    pub fn available(&self, allocated: u64) -> u64 {
        match self.budget {
            Ok((budget, used)) => budget.saturating_sub(used),
            Err(_) => (self.size / 10 * 9).saturating_sub(allocated),
        }
    }
}

/// Memory that a plan needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Of which kind.
    pub kind: Kind,
    /// Bytes.
    pub bytes: u64,
}

impl Device {
    /// The heaps at this moment.
    pub fn heaps(&self) -> Vec<HeapState> {
        let core = self.core();
        let layout = &core.capabilities.memory;
        let budgets = core.capabilities.features.memory_budget.clone().map(|()| self.budgets());
        let of = |i: usize| match &budgets {
            // A driver that answers 0 does not know.
            Ok((budget, _)) if budget[i] == 0 => Err(Missing::new("the memory budget", "the driver does not tell it")),
            Ok((budget, used)) => Ok((budget[i], used[i])),
            Err(missing) => Err(missing.clone()),
        };
        let heaps = layout.heaps.iter().enumerate();
        heaps.map(|(i, h)| HeapState { size: h.size, device_local: h.device_local, budget: of(i) }).collect()
    }

    /// Budget and use of each heap. Only called where the device has the extension and survives the question.
    fn budgets(&self) -> ([u64; vk::MAX_MEMORY_HEAPS], [u64; vk::MAX_MEMORY_HEAPS]) {
        let core = self.core();
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut all = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        let physical = core.capabilities.physical;
        // SAFETY: the device has VK_EXT_memory_budget.
        unsafe { core.instance.raw().get_physical_device_memory_properties2(physical, &mut all) };
        (budget.heap_budget, budget.heap_usage)
    }

    /// Fails if `needs` and a `reserve` for each heap of the device's own do not fit into what is available.
    pub fn check_budget(&self, needs: &[Need], reserve: u64) -> Result<()> {
        let layout = &self.core().capabilities.memory;
        let heaps = self.heaps();
        let mut needed = vec![0u64; heaps.len()];
        for need in needs {
            let missing = || Missing::new(need.kind.name(), "the device has no such memory");
            let ty = choose(layout, need.kind, !0).ok_or_else(missing)?;
            let heap = layout.types[ty].heap;
            needed[heap] = needed[heap].saturating_add(need.bytes);
        }
        let allocated = self.core().with_allocator(|a| a.capacity()).unwrap_or(0);
        for (heap, (state, &needed)) in heaps.iter().zip(&needed).enumerate() {
            let reserve = if state.device_local { reserve } else { 0 };
            let available = state.available(allocated);
            if needed > 0 && needed.saturating_add(reserve) > available {
                return Err(Error::OverBudget { heap, size: state.size, available, needed, reserve });
            }
        }
        Ok(())
    }
}
