//! What every object of a device shares: its functions, its allocator, and the deferral of destruction.

use super::breadcrumbs::Breadcrumbs;
use super::capabilities::{Capabilities, Sync2};
use super::enable::Families;
use super::error::{Code, Error, Result};
use super::instance::Instance;
use super::timeline::Clock;
use ash::{ext, khr, vk};
use gpu_allocator::vulkan::{Allocation, Allocator};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

/// How long the end of a device waits for work that is still running.
const FAREWELL: Duration = Duration::from_secs(10);

/// The functions of synchronization2: the same ones, from Vulkan 1.3 or from the extension.
pub(super) struct Sync2Functions {
    pub barrier: vk::PFN_vkCmdPipelineBarrier2,
    pub timestamp: vk::PFN_vkCmdWriteTimestamp2,
    pub submit: vk::PFN_vkQueueSubmit2,
}

impl Sync2Functions {
    pub fn new(instance: &ash::Instance, device: &ash::Device, from: Sync2) -> Self {
        match from {
            Sync2::Core => {
                let f = device.fp_v1_3();
                Self { barrier: f.cmd_pipeline_barrier2, timestamp: f.cmd_write_timestamp2, submit: f.queue_submit2 }
            }
            Sync2::Extension => {
                let device = khr::synchronization2::Device::new(instance, device);
                let f = device.fp();
                Self {
                    barrier: f.cmd_pipeline_barrier2_khr,
                    timestamp: f.cmd_write_timestamp2_khr,
                    submit: f.queue_submit2_khr,
                }
            }
        }
    }
}

/// The shared heart of a device. Whoever holds it keeps the device alive.
pub(super) struct Core {
    pub raw: ash::Device,
    pub capabilities: Capabilities,
    pub families: Families,
    pub sync2: Sync2Functions,
    pub executables: Option<khr::pipeline_executable_properties::Device>,
    pub instance: Instance,
    names: Option<ext::debug_utils::Device>,
    allocator: Mutex<Option<Allocator>>,
    clocks: Mutex<Vec<Arc<Clock>>>,
    /// Weak, because their memory holds the core.
    crumbs: Mutex<Vec<Weak<Breadcrumbs>>>,
    graves: Mutex<Vec<Grave>>,
    pools: Mutex<Vec<Commands>>,
    set_layouts: Mutex<HashMap<Vec<u32>, vk::DescriptorSetLayout>>,
    lost: OnceLock<(&'static str, Option<String>)>,
    /// What the next submit or allocation answers in the driver's place.
    injected: Mutex<Option<vk::Result>>,
}

/// Something to destroy once the device is past it.
pub(super) enum Garbage {
    Buffer(vk::Buffer, Allocation),
    Pipeline(vk::Pipeline, vk::PipelineLayout),
    Sets(vk::DescriptorPool),
    Commands(Commands),
    Queries(vk::QueryPool),
    Semaphore(vk::Semaphore),
}

/// A command buffer with a pool of its own, so that both can be reset and used again.
#[derive(Clone, Copy)]
pub(super) struct Commands {
    pub family: u32,
    pub pool: vk::CommandPool,
    pub buffer: vk::CommandBuffer,
}

struct Grave {
    until: Vec<(Arc<Clock>, u64)>,
    garbage: Garbage,
}

/// The data behind a lock. Nothing here is left half changed by a panic, so poison is ignored.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What [`Core::new`] puts together.
pub(super) struct Parts {
    pub raw: ash::Device,
    pub capabilities: Capabilities,
    pub families: Families,
    pub sync2: Sync2Functions,
    pub executables: Option<khr::pipeline_executable_properties::Device>,
    pub instance: Instance,
    pub allocator: Allocator,
}

impl Core {
    pub fn new(parts: Parts) -> Self {
        let names = parts.instance.debug_names().ok();
        let names = names.map(|()| ext::debug_utils::Device::new(parts.instance.raw(), &parts.raw));
        Self {
            raw: parts.raw,
            capabilities: parts.capabilities,
            families: parts.families,
            sync2: parts.sync2,
            executables: parts.executables,
            instance: parts.instance,
            names,
            allocator: Mutex::new(Some(parts.allocator)),
            clocks: Mutex::default(),
            crumbs: Mutex::default(),
            graves: Mutex::default(),
            pools: Mutex::default(),
            set_layouts: Mutex::default(),
            lost: OnceLock::new(),
            injected: Mutex::default(),
        }
    }

    /// Makes the next submit or allocation fail as if the driver had answered so.
    pub fn inject(&self, answer: vk::Result) {
        *lock(&self.injected) = Some(answer);
    }

    /// The answer that was injected, once.
    pub fn injected(&self) -> Option<vk::Result> {
        lock(&self.injected).take()
    }

    /// Turns a failed call into an error that names it; a lost device is remembered for good.
    pub fn call<T>(&self, call: &'static str, object: &str, result: Result<T, vk::Result>) -> Result<T> {
        result.map_err(|code| match code {
            vk::Result::ERROR_DEVICE_LOST => self.lose(call),
            code => Error::Call { call, object: format!("`{object}`"), code: Code(code) },
        })
    }

    /// Remembers that the device is lost, who found out first, and what its queues got past.
    pub fn lose(&self, call: &'static str) -> Error {
        let passed = || {
            let crumbs: Vec<_> = lock(&self.crumbs).iter().filter_map(Weak::upgrade).collect();
            let last: Vec<_> = crumbs.iter().filter_map(|c| c.last()).collect();
            (!last.is_empty()).then(|| last.join("`, `"))
        };
        let (call, breadcrumb) = self.lost.get_or_init(|| (call, passed()));
        Error::Lost { call, breadcrumb: breadcrumb.clone() }
    }

    /// Fails if the device has been lost.
    pub fn alive(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |(call, crumb)| Err(Error::Lost { call, breadcrumb: crumb.clone() }))
    }

    /// Names an object for tools and messages; a tool that takes no names is no reason to fail.
    pub fn name(&self, handle: impl vk::Handle, label: &str) {
        if let (Some(names), Ok(label)) = (&self.names, std::ffi::CString::new(label)) {
            let info = vk::DebugUtilsObjectNameInfoEXT::default().object_handle(handle).object_name(&label);
            // SAFETY: the handle is alive, the string outlives the call.
            let _ = unsafe { names.set_debug_utils_object_name(&info) };
        }
    }

    /// The functions for labels in command buffers, if the loader has them.
    pub fn labels(&self) -> Option<&ext::debug_utils::Device> {
        self.names.as_ref()
    }

    /// Runs `f` with the allocator, which is there until the device ends.
    pub fn with_allocator<T>(&self, f: impl FnOnce(&mut Allocator) -> T) -> Option<T> {
        lock(&self.allocator).as_mut().map(f)
    }

    /// Takes in the clock of a queue: all destruction waits for these.
    pub fn add_clock(&self, clock: Arc<Clock>) {
        lock(&self.clocks).push(clock);
    }

    /// Takes in the breadcrumbs of a queue, for the report when the device is lost.
    pub fn add_crumbs(&self, crumbs: &Arc<Breadcrumbs>) {
        lock(&self.crumbs).push(Arc::downgrade(crumbs));
    }

    /// How far each queue is: any change is progress.
    pub fn positions(&self) -> Vec<u64> {
        lock(&self.clocks).iter().map(|c| c.reached(self).unwrap_or(0)).collect()
    }

    /// A set layout of storage buffers at these bindings, shared by all pipelines with the same ones.
    pub fn set_layout(&self, bindings: &[u32], object: &str) -> Result<vk::DescriptorSetLayout> {
        let mut layouts = lock(&self.set_layouts);
        if let Some(&layout) = layouts.get(bindings) {
            return Ok(layout);
        }
        let one = |&at: &u32| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(at)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let list: Vec<_> = bindings.iter().map(one).collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&list);
        // SAFETY: `info` outlives the call.
        let made = unsafe { self.raw.create_descriptor_set_layout(&info, None) };
        let layout = self.call("vkCreateDescriptorSetLayout", object, made)?;
        layouts.insert(bindings.to_vec(), layout);
        Ok(layout)
    }

    /// A command buffer in its initial state with a pool of its own: used ones, if there are any.
    pub fn command_buffer(&self, family: u32, object: &str) -> Result<Commands> {
        let used = {
            let mut pools = lock(&self.pools);
            pools.iter().position(|c| c.family == family).map(|i| pools.swap_remove(i))
        };
        if let Some(commands) = used {
            // SAFETY: pools get here only when no queue can use their buffers any more.
            let reset = unsafe { self.raw.reset_command_pool(commands.pool, vk::CommandPoolResetFlags::empty()) };
            return self.call("vkResetCommandPool", object, reset).map(|()| commands);
        }
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: `info` outlives the call.
        let made = unsafe { self.raw.create_command_pool(&info, None) };
        let pool = self.call("vkCreateCommandPool", object, made)?;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: the pool is new.
        let made = unsafe { self.raw.allocate_command_buffers(&info) };
        match self.call("vkAllocateCommandBuffers", object, made) {
            // One was asked for, so one is there.
            Ok(buffers) => Ok(Commands { family, pool, buffer: buffers[0] }),
            Err(error) => {
                // SAFETY: nothing was made from the pool.
                unsafe { self.raw.destroy_command_pool(pool, None) };
                Err(error)
            }
        }
    }

    /// Destroys something as soon as every queue is past all that has been submitted until now.
    pub fn retire(&self, garbage: Garbage) {
        let until = self.pending();
        if until.is_empty() {
            self.destroy(garbage);
        } else {
            lock(&self.graves).push(Grave { until, garbage });
        }
    }

    /// The clocks that are behind what was submitted.
    fn pending(&self) -> Vec<(Arc<Clock>, u64)> {
        let clocks = lock(&self.clocks);
        let behind = |c: &&Arc<Clock>| c.reached(self).is_ok_and(|at| at < c.submitted());
        clocks.iter().filter(behind).map(|c| (c.clone(), c.submitted())).collect()
    }

    /// Destroys what the queues are past by now.
    pub fn collect(&self) {
        let ready = {
            let mut graves = lock(&self.graves);
            let past = |g: &mut Grave| g.until.iter().all(|(c, v)| c.reached(self).is_ok_and(|at| at >= *v));
            graves.extract_if(.., past).collect::<Vec<_>>()
        };
        for grave in ready {
            self.destroy(grave.garbage);
        }
    }

    fn destroy(&self, garbage: Garbage) {
        // SAFETY: each handle is owned by its `Garbage` alone, and no pending work uses it any more.
        unsafe {
            match garbage {
                Garbage::Buffer(buffer, allocation) => {
                    self.raw.destroy_buffer(buffer, None);
                    // Freeing fails only for memory of another allocator, and there is one.
                    let _ = self.with_allocator(|a| a.free(allocation));
                }
                Garbage::Pipeline(pipeline, layout) => {
                    self.raw.destroy_pipeline(pipeline, None);
                    self.raw.destroy_pipeline_layout(layout, None);
                }
                Garbage::Sets(pool) => self.raw.destroy_descriptor_pool(pool, None),
                Garbage::Commands(commands) => lock(&self.pools).push(commands),
                Garbage::Queries(pool) => self.raw.destroy_query_pool(pool, None),
                Garbage::Semaphore(semaphore) => self.raw.destroy_semaphore(semaphore, None),
            }
        }
    }

    /// Whether no queue has work left, after waiting a while. A lost device has none.
    fn settled(&self) -> bool {
        if self.lost.get().is_some() {
            return true;
        }
        let pending = self.pending();
        let (semaphores, values): (Vec<_>, Vec<_>) = pending.iter().map(|(c, v)| (c.semaphore, *v)).unzip();
        if pending.is_empty() {
            return true;
        }
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphores are alive until the end of this device.
        let waited = unsafe { self.raw.wait_semaphores(&info, FAREWELL.as_nanos() as u64) };
        matches!(waited, Ok(()) | Err(vk::Result::ERROR_DEVICE_LOST))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if !self.settled() {
            // Objects in use must not be destroyed, so a device that hangs is left to the end of the process.
            std::mem::forget(lock(&self.allocator).take());
            std::mem::forget(self.instance.clone());
            return;
        }
        for grave in std::mem::take(&mut *lock(&self.graves)) {
            self.destroy(grave.garbage);
        }
        // SAFETY: nothing is pending, and whoever holds another object of this device would hold the core.
        unsafe {
            for commands in lock(&self.pools).drain(..) {
                self.raw.destroy_command_pool(commands.pool, None);
            }
            for (_, layout) in lock(&self.set_layouts).drain() {
                self.raw.destroy_descriptor_set_layout(layout, None);
            }
            for clock in lock(&self.clocks).drain(..) {
                self.raw.destroy_semaphore(clock.semaphore, None);
            }
            drop(lock(&self.allocator).take());
            self.raw.destroy_device(None);
        }
    }
}
