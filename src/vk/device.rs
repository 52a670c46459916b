//! An open device with its queues.

use super::capabilities::{Capabilities, DeviceKind};
use super::core::{Core, Parts, Sync2Functions};
use super::enable::{create, families};
use super::error::{Error, Missing, Result, Support};
use super::instance::Instance;
use super::queue::Queue;
use super::timeline::Deadline;
use ash::khr;
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use gpu_allocator::{AllocationSizes, AllocatorDebugSettings};
use std::sync::Arc;
use std::time::Duration;

/// How to open a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Have pipelines keep what [`Pipeline::statistics`](super::Pipeline::statistics) reports.
    pub statistics: bool,
    /// Size of the memory blocks that buffers lie in, in MiB (4 to 256); larger buffers get their own.
    pub block_mib: u64,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        // Drivers spend time on every block of a submit, so few large ones.
        Self { statistics: false, block_mib: 256 }
    }
}

/// An open device; clones share it. It ends with the last object made from it.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    compute: Support<Queue>,
    transfer: Support<Queue>,
    core: Arc<Core>,
}

/// An error that [`Device::inject`] gives in the driver's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Lost,
    OutOfMemory,
}

impl Device {
    /// Opens a device that [`pick`](super::pick) chose.
    pub fn open(instance: &Instance, capabilities: &Capabilities, options: DeviceOptions) -> Result<Self> {
        let refuse = |reason| Error::invalid("opening", &capabilities.name, reason);
        capabilities.usable.as_ref().map_err(|against| refuse(against.join(", ")))?;
        let families = families(&capabilities.queues).ok_or_else(|| refuse("no queue computes".into()))?;
        let sync2 = capabilities.features.sync2.clone()?;
        if options.statistics {
            capabilities.features.executable_properties.clone()?;
        }
        let raw = create(instance, capabilities, families, options.statistics)?;
        let allocator = match allocator(instance, capabilities, &raw, options) {
            Ok(allocator) => allocator,
            Err(error) => {
                // SAFETY: nothing was made from the device yet.
                unsafe { raw.destroy_device(None) };
                return Err(error);
            }
        };
        let executables =
            options.statistics.then(|| khr::pipeline_executable_properties::Device::new(instance.raw(), &raw));
        let core = Arc::new(Core::new(Parts {
            sync2: Sync2Functions::new(instance.raw(), &raw, sync2),
            raw,
            capabilities: capabilities.clone(),
            families,
            executables,
            instance: instance.clone(),
            allocator,
        }));
        core.name(core.raw.handle(), &capabilities.name);
        let (compute, transfer) = queues(&core)?;
        Ok(Self(Arc::new(Inner { compute, transfer, core })))
    }

    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.core.capabilities
    }

    /// The queue that computes; only a device without hardware has none.
    pub fn compute(&self) -> Support<&Queue> {
        self.0.compute.as_ref().map_err(Clone::clone)
    }

    /// A queue that copies beside the other's work.
    pub fn transfer(&self) -> Support<&Queue> {
        self.0.transfer.as_ref().map_err(Clone::clone)
    }

    /// The deadline for waits on this device: 10 s without progress, 60 s where the processor computes.
    pub fn deadline(&self) -> Deadline {
        let slow = self.capabilities().kind == DeviceKind::Cpu;
        Deadline::still(Duration::from_secs(if slow { 60 } else { 10 }))
    }

    /// Makes the next submit or allocation end with an error that a driver could give, to see what follows from it.
    pub fn inject(&self, answer: Answer) {
        self.0.core.inject(match answer {
            Answer::Lost => ash::vk::Result::ERROR_DEVICE_LOST,
            Answer::OutOfMemory => ash::vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        });
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }
}

/// The compute queue and the transfer queue.
fn queues(core: &Arc<Core>) -> Result<(Support<Queue>, Support<Queue>)> {
    if core.capabilities.is_null_hardware() {
        // It compiles pipelines, and has neither semaphores nor memory.
        let missing = |what| Missing::new(what, "the device has no hardware");
        return Ok((Err(missing("a compute queue")), Err(missing("a transfer queue"))));
    }
    let compute = Queue::new(core, "compute queue", core.families.compute)?;
    let transfer = match core.families.transfer {
        Some(family) => Ok(Queue::new(core, "transfer queue", family)?),
        None => Err(Missing::new("a transfer queue", "no queue family copies without computing")),
    };
    Ok((Ok(compute), transfer))
}

fn allocator(
    instance: &Instance,
    capabilities: &Capabilities,
    device: &ash::Device,
    options: DeviceOptions,
) -> Result<Allocator> {
    let block = options.block_mib << 20;
    // Leaks cannot be: buffers own their memory and the device outlives them.
    let mut debug_settings = AllocatorDebugSettings::default();
    debug_settings.log_leaks_on_shutdown = false;
    let made = Allocator::new(&AllocatorCreateDesc {
        instance: instance.raw().clone(),
        device: device.clone(),
        physical_device: capabilities.physical,
        debug_settings,
        buffer_device_address: true,
        allocation_sizes: AllocationSizes::new(block, block),
    });
    made.map_err(|e| Error::Memory {
        object: format!("`{}`", capabilities.name),
        bytes: 0,
        kind: "allocator",
        reason: e.to_string(),
    })
}
