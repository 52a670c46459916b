//! Command buffers: a [`Recorder`] becomes an [`Executable`], and never the other way.

use super::access::{Access, Scope, Stages};
use super::core::{Commands, Core, Garbage};
use super::descriptors::Set;
use super::error::{Error, Result};
use super::memory::{Buffer, Usage};
use super::pipeline::Pipeline;
use super::queue::Queue;
use super::timestamps::Timestamps;
use ash::vk;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a command buffer will be submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Once.
    Once,
    /// Again and again, also while it is still running.
    Many,
}

/// What `vkCmdUpdateBuffer` takes at most.
const UPDATE: usize = 65536;

/// What a command buffer uses, by address, so that each thing is kept once.
type Kept = HashMap<usize, Arc<dyn Any + Send + Sync>>;

/// A command buffer that is being recorded.
///
/// The first mistake is kept and nothing is recorded after it; [`finish`](Self::finish) reports it.
pub struct Recorder<'q> {
    queue: &'q Queue,
    frame: Frame,
    replay: Replay,
    error: Option<Error>,
    pipeline: Option<Pipeline>,
    /// Which sets have been bound since the pipeline, by number.
    bound: Vec<bool>,
    pushed: bool,
    labels: u32,
}

/// A recorded command buffer. It keeps alive what it uses, except what it reaches by device address.
pub struct Executable {
    frame: Frame,
    /// For a buffer that may run once: whether it has.
    spent: Option<AtomicBool>,
}

/// A command buffer and what it uses.
struct Frame {
    core: Arc<Core>,
    commands: Commands,
    label: String,
    kept: Kept,
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.core.retire(Garbage::Commands(self.commands));
    }
}

impl Executable {
    /// Its name.
    pub fn label(&self) -> &str {
        &self.frame.label
    }

    pub(super) fn raw(&self) -> vk::CommandBuffer {
        self.frame.commands.buffer
    }

    /// Fails if a queue must not take this.
    pub(super) fn admit(&self, core: &Arc<Core>, family: u32) -> Result<()> {
        let invalid = |reason: &str| Err(Error::invalid("submit", self.label(), reason));
        if !Arc::ptr_eq(core, &self.frame.core) || family != self.frame.commands.family {
            return invalid("it was recorded for another queue");
        }
        match &self.spent {
            Some(spent) if spent.load(Ordering::Acquire) => invalid("it was recorded to run once, and has"),
            _ => Ok(()),
        }
    }

    /// Notes that it runs; false if it may run once and has (or stands twice in one submit).
    pub(super) fn spend(&self) -> bool {
        !self.spent.as_ref().is_some_and(|spent| spent.swap(true, Ordering::AcqRel))
    }
}

impl<'q> Recorder<'q> {
    pub(super) fn new(queue: &'q Queue, label: &str, replay: Replay) -> Result<Self> {
        let core = queue.core();
        core.alive()?;
        let commands = core.command_buffer(queue.family(), label)?;
        let frame = Frame { core: core.clone(), commands, label: label.to_owned(), kept: Kept::new() };
        core.name(commands.buffer, label);
        let info = vk::CommandBufferBeginInfo::default().flags(match replay {
            Replay::Once => vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT,
            Replay::Many => vk::CommandBufferUsageFlags::SIMULTANEOUS_USE,
        });
        // SAFETY: the buffer is in its initial state.
        let begun = unsafe { core.raw.begin_command_buffer(commands.buffer, &info) };
        core.call("vkBeginCommandBuffer", label, begun)?;
        let bound = Vec::new();
        Ok(Self { queue, frame, replay, error: None, pipeline: None, bound, pushed: false, labels: 0 })
    }

    /// Ends the recording, or reports the first mistake in it.
    pub fn finish(mut self) -> Result<Executable> {
        while self.labels > 0 {
            self.end_label();
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let Frame { core, commands, label, .. } = &self.frame;
        // SAFETY: the buffer is being recorded.
        core.call("vkEndCommandBuffer", label, unsafe { core.raw.end_command_buffer(commands.buffer) })?;
        let spent = (self.replay == Replay::Once).then(|| AtomicBool::new(false));
        Ok(Executable { frame: self.frame, spent })
    }

    /// Records, unless an earlier command failed; a failure is kept for the end.
    fn record(&mut self, command: impl FnOnce(&mut Self) -> Result<()>) -> &mut Self {
        if self.error.is_none()
            && let Err(error) = command(self)
        {
            self.error = Some(error);
        }
        self
    }

    fn invalid(&self, what: &'static str, reason: impl Into<String>) -> Error {
        Error::invalid(what, &self.frame.label, reason)
    }

    fn raw(&self) -> (&ash::Device, vk::CommandBuffer) {
        (&self.frame.core.raw, self.frame.commands.buffer)
    }

    fn hold(&mut self, what: &'static str, core: &Arc<Core>, thing: Arc<dyn Any + Send + Sync>) -> Result<()> {
        if !Arc::ptr_eq(core, &self.frame.core) {
            return Err(self.invalid(what, "it was given something of another device"));
        }
        self.frame.kept.insert(Arc::as_ptr(&thing).addr(), thing);
        Ok(())
    }

    fn use_buffer(&mut self, what: &'static str, buffer: &Buffer, usage: Usage, at: u64, size: u64) -> Result<()> {
        buffer.check_usage(what, usage)?;
        buffer.check_range(what, at, size)?;
        self.hold(what, buffer.core(), buffer.keep())
    }

    /// Keeps a buffer alive that kernels reach by its device address.
    pub fn keep(&mut self, buffer: &Buffer) -> &mut Self {
        self.record(|r| r.hold("keep", buffer.core(), buffer.keep()))
    }

    /// Fails on a queue that only copies.
    fn computes(&self, what: &'static str) -> Result<()> {
        if self.queue.computes() { Ok(()) } else { Err(self.invalid(what, "its queue only copies")) }
    }

    /// Chooses the pipeline of the next dispatches. Sets and push constants must follow.
    pub fn bind(&mut self, pipeline: &Pipeline) -> &mut Self {
        self.record(|r| {
            r.computes("bind")?;
            r.hold("bind", pipeline.core(), pipeline.keep())?;
            let (device, raw) = r.raw();
            // SAFETY: the buffer is being recorded; the pipeline is kept.
            unsafe { device.cmd_bind_pipeline(raw, vk::PipelineBindPoint::COMPUTE, pipeline.raw()) };
            r.bound = pipeline.sets().iter().map(|s| s.bindings().is_empty()).collect();
            r.pushed = pipeline.shader().push_size == 0;
            r.pipeline = Some(pipeline.clone());
            Ok(())
        })
    }

    /// Binds a set to the pipeline.
    pub fn set(&mut self, number: u32, set: &Set) -> &mut Self {
        self.record(|r| {
            let pipeline = r.pipeline.clone().ok_or_else(|| r.invalid("set", "no pipeline is bound"))?;
            if pipeline.set_layout(number)?.raw != set.layout() {
                let reason = format!("`{}` does not fit set {number} of `{}`", set.label(), pipeline.label());
                return Err(r.invalid("set", reason));
            }
            r.hold("set", set.core(), set.keep())?;
            let (device, raw) = r.raw();
            let (point, layout) = (vk::PipelineBindPoint::COMPUTE, pipeline.layout());
            // SAFETY: the buffer is being recorded; the set is kept and was made for this layout.
            unsafe { device.cmd_bind_descriptor_sets(raw, point, layout, number, &[set.raw()], &[]) };
            r.bound[number as usize] = true;
            Ok(())
        })
    }

    /// Sets all push constants of the pipeline.
    pub fn push(&mut self, bytes: &[u8]) -> &mut Self {
        self.record(|r| {
            let pipeline = r.pipeline.clone().ok_or_else(|| r.invalid("push", "no pipeline is bound"))?;
            let size = pipeline.shader().push_size as usize;
            if bytes.len() != size || size == 0 {
                let reason = format!("{} bytes, `{}` takes {size}", bytes.len(), pipeline.label());
                return Err(r.invalid("push", reason));
            }
            let (device, raw) = r.raw();
            let stage = vk::ShaderStageFlags::COMPUTE;
            // SAFETY: the buffer is being recorded; the range is the layout's own.
            unsafe { device.cmd_push_constants(raw, pipeline.layout(), stage, 0, bytes) };
            r.pushed = true;
            Ok(())
        })
    }

    /// Fails unless the pipeline has all that it needs.
    fn ready(&self, what: &'static str) -> Result<()> {
        let pipeline = self.pipeline.as_ref().ok_or_else(|| self.invalid(what, "no pipeline is bound"))?;
        if let Some(set) = self.bound.iter().position(|bound| !bound) {
            return Err(self.invalid(what, format!("set {set} of `{}` is not bound", pipeline.label())));
        }
        if !self.pushed {
            return Err(self.invalid(what, format!("`{}` lacks its push constants", pipeline.label())));
        }
        Ok(())
    }

    /// Runs the pipeline on so many workgroups.
    pub fn dispatch(&mut self, groups: [u32; 3]) -> &mut Self {
        self.record(|r| {
            r.ready("dispatch")?;
            let limits = r.frame.core.capabilities.limits.group_count;
            if groups.iter().zip(limits).any(|(&n, limit)| n > limit) {
                return Err(r.invalid("dispatch", format!("{groups:?} workgroups, the limits are {limits:?}")));
            }
            let (device, raw) = r.raw();
            // SAFETY: the buffer is being recorded, and the pipeline has all that it needs.
            unsafe { device.cmd_dispatch(raw, groups[0], groups[1], groups[2]) };
            Ok(())
        })
    }

    /// Runs the pipeline on as many workgroups as three words of a buffer say when it gets there.
    pub fn dispatch_indirect(&mut self, buffer: &Buffer, offset: u64) -> &mut Self {
        self.record(|r| {
            r.ready("dispatch_indirect")?;
            r.use_buffer("dispatch_indirect", buffer, Usage::INDIRECT, offset, 12)?;
            r.aligned("dispatch_indirect", offset, 12)?;
            let (device, raw) = r.raw();
            // SAFETY: the buffer is being recorded, the pipeline has all that it needs, the arguments are kept.
            unsafe { device.cmd_dispatch_indirect(raw, buffer.raw(), offset) };
            Ok(())
        })
    }

    fn aligned(&self, what: &'static str, offset: u64, size: u64) -> Result<()> {
        if offset.is_multiple_of(4) && size.is_multiple_of(4) && size > 0 {
            return Ok(());
        }
        Err(self.invalid(what, format!("{size} bytes at {offset}: both must be multiples of 4, and not nothing")))
    }

    /// Copies bytes from one buffer to another.
    pub fn copy(&mut self, from: &Buffer, from_at: u64, to: &Buffer, to_at: u64, size: u64) -> &mut Self {
        self.record(|r| {
            if size == 0 {
                return Err(r.invalid("copy", "no bytes to copy"));
            }
            r.use_buffer("copy", from, Usage::TRANSFER_SRC, from_at, size)?;
            r.use_buffer("copy", to, Usage::TRANSFER_DST, to_at, size)?;
            let region = vk::BufferCopy::default().src_offset(from_at).dst_offset(to_at).size(size);
            let (device, raw) = r.raw();
            // SAFETY: the buffer is being recorded; both ends are kept and the ranges lie in them.
            unsafe { device.cmd_copy_buffer(raw, from.raw(), to.raw(), &[region]) };
            Ok(())
        })
    }

    /// Writes bytes that are part of the command buffer: small parameters.
    pub fn update(&mut self, to: &Buffer, offset: u64, bytes: &[u8]) -> &mut Self {
        self.record(|r| {
            r.use_buffer("update", to, Usage::TRANSFER_DST, offset, bytes.len() as u64)?;
            r.aligned("update", offset, bytes.len() as u64)?;
            let (device, raw) = r.raw();
            for (part, at) in bytes.chunks(UPDATE).zip((offset..).step_by(UPDATE)) {
                // SAFETY: the buffer is being recorded; the target is kept and the range lies in it.
                unsafe { device.cmd_update_buffer(raw, to.raw(), at, part) };
            }
            Ok(())
        })
    }

    /// Fills a range with a word.
    pub fn fill(&mut self, to: &Buffer, offset: u64, size: u64, word: u32) -> &mut Self {
        self.record(|r| {
            r.use_buffer("fill", to, Usage::TRANSFER_DST, offset, size)?;
            r.aligned("fill", offset, size)?;
            let (device, raw) = r.raw();
            // SAFETY: the buffer is being recorded; the target is kept and the range lies in it.
            unsafe { device.cmd_fill_buffer(raw, to.raw(), offset, size, word) };
            Ok(())
        })
    }

    /// Orders everything of `from` before everything of `to`, for all memory.
    pub fn barrier(&mut self, from: Scope, to: Scope) -> &mut Self {
        self.record(|r| {
            r.has_stages("barrier", from.stages | to.stages)?;
            let one = [vk::MemoryBarrier2::default()
                .src_stage_mask(from.stages.raw())
                .src_access_mask(from.access.raw())
                .dst_stage_mask(to.stages.raw())
                .dst_access_mask(to.access.raw())];
            r.dependency(&vk::DependencyInfo::default().memory_barriers(&one));
            Ok(())
        })
    }

    /// The same for one range of one buffer.
    pub fn buffer_barrier(&mut self, buffer: &Buffer, offset: u64, size: u64, from: Scope, to: Scope) -> &mut Self {
        self.record(|r| {
            r.has_stages("buffer_barrier", from.stages | to.stages)?;
            r.use_buffer("buffer_barrier", buffer, Usage::empty(), offset, size)?;
            let one = [vk::BufferMemoryBarrier2::default()
                .src_stage_mask(from.stages.raw())
                .src_access_mask(from.access.raw())
                .dst_stage_mask(to.stages.raw())
                .dst_access_mask(to.access.raw())
                .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .buffer(buffer.raw())
                .offset(offset)
                .size(size)];
            r.dependency(&vk::DependencyInfo::default().buffer_memory_barriers(&one));
            Ok(())
        })
    }

    fn has_stages(&self, what: &'static str, stages: Stages) -> Result<()> {
        if stages.intersects(Stages::COMPUTE | Stages::INDIRECT) { self.computes(what) } else { Ok(()) }
    }

    fn dependency(&self, info: &vk::DependencyInfo<'_>) {
        // SAFETY: the buffer is being recorded; `info` outlives the call.
        unsafe { (self.frame.core.sync2.barrier)(self.frame.commands.buffer, info) };
    }

    /// Says that everything so far has been passed, once it has: [`Error::Stuck`] and [`Error::Lost`] tell the last.
    ///
    /// Work that follows need not wait for it.
    pub fn breadcrumb(&mut self, name: &str) -> &mut Self {
        let work = if self.queue.computes() { Stages::COMPUTE | Stages::TRANSFER } else { Stages::TRANSFER };
        let passed = Scope { stages: work, access: Access::TRANSFER_WRITE };
        let crumbs = self.queue.crumbs();
        let code = crumbs.code(name);
        self.barrier(passed, Scope::TRANSFER_WRITE).fill(&crumbs.buffer, 0, 4, code)
    }

    /// Forgets the times in all places; they can be written again after this.
    pub fn reset_timestamps(&mut self, timestamps: &Timestamps) -> &mut Self {
        self.record(|r| {
            r.computes("reset_timestamps")?;
            r.hold("reset_timestamps", timestamps.core(), timestamps.keep())?;
            let (device, raw) = r.raw();
            // SAFETY: the buffer is being recorded; the pool is kept.
            unsafe { device.cmd_reset_query_pool(raw, timestamps.raw(), 0, timestamps.count()) };
            Ok(())
        })
    }

    /// Writes the time at which a stage of everything before is done.
    pub fn timestamp(&mut self, timestamps: &Timestamps, place: u32, stage: Stages) -> &mut Self {
        self.record(|r| {
            r.computes("timestamp")?;
            if stage.bits().count_ones() != 1 {
                return Err(r.invalid("timestamp", format!("{stage:?}: a time is of one stage")));
            }
            r.hold("timestamp", timestamps.core(), timestamps.keep())?;
            if place >= timestamps.count() {
                let reason = format!("`{}` has {} places, not number {place}", timestamps.label(), timestamps.count());
                return Err(r.invalid("timestamp", reason));
            }
            let Frame { core, commands, .. } = &r.frame;
            // SAFETY: the buffer is being recorded; the pool is kept and has this place.
            unsafe { (core.sync2.timestamp)(commands.buffer, stage.raw(), timestamps.raw(), place) };
            Ok(())
        })
    }

    /// Begins a region that tools show by name.
    pub fn begin_label(&mut self, name: &str) -> &mut Self {
        self.record(|r| {
            let text = std::ffi::CString::new(name).map_err(|_| r.invalid("begin_label", "a zero byte in a name"))?;
            if let Some(labels) = r.frame.core.labels() {
                let info = vk::DebugUtilsLabelEXT::default().label_name(&text);
                // SAFETY: the buffer is being recorded; the name outlives the call.
                unsafe { labels.cmd_begin_debug_utils_label(r.frame.commands.buffer, &info) };
            }
            r.labels += 1;
            Ok(())
        })
    }

    /// Ends the innermost region; those left open end with the recording.
    pub fn end_label(&mut self) -> &mut Self {
        if self.labels == 0 {
            return self.record(|r| Err(r.invalid("end_label", "no label is open")));
        }
        self.labels -= 1;
        self.record(|r| {
            if let Some(labels) = r.frame.core.labels() {
                // SAFETY: the buffer is being recorded, and a label is open.
                unsafe { labels.cmd_end_debug_utils_label(r.frame.commands.buffer) };
            }
            Ok(())
        })
    }
}
