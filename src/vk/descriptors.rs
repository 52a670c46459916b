//! Descriptor sets: allocated together from a pool of exactly that size, written once, never changed.

use super::core::{Core, Garbage};
use super::device::Device;
use super::error::{Error, Result};
use super::memory::{Buffer, Usage};
use ash::vk;
use std::any::Any;
use std::sync::Arc;

/// The storage buffers that a set has.
#[derive(Clone)]
pub struct SetLayout {
    pub(super) raw: vk::DescriptorSetLayout,
    /// Binding numbers, ascending.
    pub(super) bindings: Arc<[u32]>,
}

impl SetLayout {
    /// Binding numbers, ascending: the order of the ranges in [`SetDesc`].
    pub fn bindings(&self) -> &[u32] {
        &self.bindings
    }
}

/// A range of a buffer.
#[derive(Debug, Clone)]
pub struct BufferRange {
    /// The buffer.
    pub buffer: Buffer,
    /// First byte; a multiple of the device's `storage_alignment`.
    pub offset: u64,
    /// Bytes: exactly those that the kernel may touch.
    pub size: u64,
}

impl BufferRange {
    /// All of a buffer.
    pub fn whole(buffer: &Buffer) -> Self {
        Self { buffer: buffer.clone(), offset: 0, size: buffer.size() }
    }
}

/// A set to make.
pub struct SetDesc<'a> {
    /// Its name in messages and tools.
    pub label: &'a str,
    /// Taken from a pipeline; sets of pipelines with equal bindings are interchangeable.
    pub layout: &'a SetLayout,
    /// A range for each binding, ascending.
    pub ranges: &'a [BufferRange],
}

/// A descriptor set; it keeps its buffers alive.
#[derive(Clone)]
pub struct Set(Arc<Inner>);

struct Inner {
    raw: vk::DescriptorSet,
    layout: vk::DescriptorSetLayout,
    label: String,
    pool: Arc<SetPool>,
    _buffers: Vec<Buffer>,
}

/// The pool behind sets that were made together.
pub struct SetPool {
    core: Arc<Core>,
    raw: vk::DescriptorPool,
}

impl SetPool {
    /// Makes all sets of a plan at once. There is no way to change one afterwards.
    pub fn exact(device: &Device, label: &str, sets: &[SetDesc<'_>]) -> Result<Vec<Set>> {
        let core = device.core();
        core.alive()?;
        if sets.is_empty() {
            return Ok(Vec::new());
        }
        sets.iter().try_for_each(|set| check(core, set))?;
        let pool = Arc::new(Self { core: core.clone(), raw: create(core, label, sets)? });
        core.name(pool.raw, label);
        let layouts: Vec<_> = sets.iter().map(|set| set.layout.raw).collect();
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool.raw).set_layouts(&layouts);
        // SAFETY: `info` outlives the call; the pool is new.
        let raws = core.call("vkAllocateDescriptorSets", label, unsafe { core.raw.allocate_descriptor_sets(&info) })?;
        write(core, sets, &raws);
        let set = |(desc, raw): (&SetDesc<'_>, vk::DescriptorSet)| {
            core.name(raw, desc.label);
            Set(Arc::new(Inner {
                raw,
                layout: desc.layout.raw,
                label: desc.label.to_owned(),
                pool: pool.clone(),
                _buffers: desc.ranges.iter().map(|r| r.buffer.clone()).collect(),
            }))
        };
        Ok(sets.iter().zip(raws).map(set).collect())
    }
}

impl Drop for SetPool {
    fn drop(&mut self) {
        self.core.retire(Garbage::Sets(self.raw));
    }
}

impl Set {
    /// Its name.
    pub fn label(&self) -> &str {
        &self.0.label
    }

    pub(super) fn raw(&self) -> vk::DescriptorSet {
        self.0.raw
    }

    pub(super) fn layout(&self) -> vk::DescriptorSetLayout {
        self.0.layout
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.0.pool.core
    }

    pub(super) fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }
}

fn check(core: &Arc<Core>, set: &SetDesc<'_>) -> Result<()> {
    let invalid = |reason: String| Err(Error::invalid("making a set", set.label, reason));
    let limits = &core.capabilities.limits;
    if set.ranges.len() != set.layout.bindings.len() {
        return invalid(format!("{} ranges for {} bindings", set.ranges.len(), set.layout.bindings.len()));
    }
    for (range, binding) in set.ranges.iter().zip(set.layout.bindings.iter()) {
        let label = range.buffer.label();
        if !Arc::ptr_eq(range.buffer.core(), core) {
            return invalid(format!("binding {binding}: `{label}` is of another device"));
        }
        range.buffer.check_usage("making a set", Usage::STORAGE)?;
        range.buffer.check_range("making a set", range.offset, range.size)?;
        if range.size == 0 || range.size > limits.storage_range {
            return invalid(format!("binding {binding}: {} bytes, the limit is {}", range.size, limits.storage_range));
        }
        if !range.offset.is_multiple_of(limits.storage_alignment) {
            return invalid(format!(
                "binding {binding}: offset {} is not aligned to {}",
                range.offset, limits.storage_alignment
            ));
        }
    }
    Ok(())
}

fn create(core: &Core, label: &str, sets: &[SetDesc<'_>]) -> Result<vk::DescriptorPool> {
    let buffers: usize = sets.iter().map(|set| set.ranges.len()).sum();
    let size =
        vk::DescriptorPoolSize::default().ty(vk::DescriptorType::STORAGE_BUFFER).descriptor_count(buffers as u32);
    let sizes = [size];
    let mut info = vk::DescriptorPoolCreateInfo::default().max_sets(sets.len() as u32);
    if buffers > 0 {
        info = info.pool_sizes(&sizes);
    }
    // SAFETY: `info` outlives the call.
    core.call("vkCreateDescriptorPool", label, unsafe { core.raw.create_descriptor_pool(&info, None) })
}

fn write(core: &Core, sets: &[SetDesc<'_>], raws: &[vk::DescriptorSet]) {
    let mut targets = Vec::new();
    let mut infos = Vec::new();
    for (set, &raw) in sets.iter().zip(raws) {
        for (range, &binding) in set.ranges.iter().zip(set.layout.bindings.iter()) {
            targets.push((raw, binding));
            let info = vk::DescriptorBufferInfo::default().buffer(range.buffer.raw());
            infos.push([info.offset(range.offset).range(range.size)]);
        }
    }
    let mut writes = Vec::with_capacity(infos.len());
    for (&(raw, binding), info) in targets.iter().zip(&infos) {
        let write = vk::WriteDescriptorSet::default().dst_set(raw).dst_binding(binding);
        writes.push(write.descriptor_type(vk::DescriptorType::STORAGE_BUFFER).buffer_info(info));
    }
    // SAFETY: the sets are new, so nothing uses them yet.
    unsafe { core.raw.update_descriptor_sets(&writes, &[]) };
}
