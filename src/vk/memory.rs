//! Buffers, each with a VkBuffer of its own in a few large blocks of memory.
//!
//! (One VkBuffer a tensor, so that GPU-assisted validation sees a read past its end.)

use super::core::{Core, Garbage};
use super::device::Device;
use super::error::{Error, Missing, Result};
use super::memory_types::{Kind, choose};
use ash::vk;
use bitflags::bitflags;
use bytemuck::Pod;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};
use gpu_allocator::{AllocationError, MemoryLocation};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

bitflags! {
    /// What a buffer may be used for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Usage: u32 {
        /// Bound in a descriptor set.
        const STORAGE = 1;
        /// Read by copies.
        const TRANSFER_SRC = 2;
        /// Written by copies, fills and updates.
        const TRANSFER_DST = 4;
        /// Holds arguments of indirect dispatches.
        const INDIRECT = 8;
        /// Read by its device address.
        const ADDRESS = 16;
    }
}

impl Usage {
    fn raw(self) -> vk::BufferUsageFlags {
        let table = [
            (Self::STORAGE, vk::BufferUsageFlags::STORAGE_BUFFER),
            (Self::TRANSFER_SRC, vk::BufferUsageFlags::TRANSFER_SRC),
            (Self::TRANSFER_DST, vk::BufferUsageFlags::TRANSFER_DST),
            (Self::INDIRECT, vk::BufferUsageFlags::INDIRECT_BUFFER),
            // Vulkan wants addressed buffers to be storage buffers too.
            (Self::ADDRESS, vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS | vk::BufferUsageFlags::STORAGE_BUFFER),
        ];
        let flags = table.iter().filter(|(ours, _)| self.contains(*ours)).map(|(_, theirs)| *theirs);
        flags.fold(vk::BufferUsageFlags::empty(), |a, b| a | b)
    }
}

/// A buffer to make.
#[derive(Debug, Clone, Copy)]
pub struct BufferDesc<'a> {
    /// Its name in messages and tools.
    pub label: &'a str,
    /// Bytes.
    pub size: u64,
    /// What it is used for.
    pub usage: Usage,
    /// What its memory is for.
    pub kind: Kind,
}

/// A buffer with its memory; clones share it.
#[derive(Clone)]
pub struct Buffer(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    raw: vk::Buffer,
    label: String,
    size: u64,
    usage: Usage,
    kind: Kind,
    device_local: bool,
    mapped: Option<Mapped>,
    address: Option<u64>,
    allocation: Option<Allocation>,
}

/// Start of the mapping of a buffer.
struct Mapped(NonNull<u8>);

// SAFETY: mapped memory may be used from any thread; `Buffer::mapped` hands on the duty to keep accesses apart.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Buffer {
    /// Makes a buffer. Its content is undefined.
    pub fn new(device: &Device, desc: &BufferDesc<'_>) -> Result<Self> {
        Self::in_core(device.core(), desc)
    }

    pub(super) fn in_core(core: &Arc<Core>, desc: &BufferDesc<'_>) -> Result<Self> {
        core.alive()?;
        let limit = core.capabilities.limits.allocation;
        if desc.size == 0 || desc.size > limit {
            let reason = format!("{} bytes; the device takes 1 to {limit}", desc.size);
            return Err(Error::invalid("making a buffer", desc.label, reason));
        }
        let raw = create(core, desc)?;
        // Owns the handle from here on, so that every way out destroys it.
        let mut inner = Inner {
            core: core.clone(),
            raw,
            label: desc.label.to_owned(),
            size: desc.size,
            usage: desc.usage,
            kind: desc.kind,
            device_local: false,
            mapped: None,
            address: None,
            allocation: None,
        };
        core.name(raw, desc.label);
        inner.allocate()?;
        if desc.usage.contains(Usage::ADDRESS) {
            let info = vk::BufferDeviceAddressInfo::default().buffer(raw);
            // SAFETY: the buffer has memory and the usage for it.
            inner.address = Some(unsafe { core.raw.get_buffer_device_address(&info) });
        }
        Ok(Self(Arc::new(inner)))
    }

    /// Its name.
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// What it may be used for.
    pub fn usage(&self) -> Usage {
        self.0.usage
    }

    /// What its memory is for.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether its memory is the device's own (an upload buffer's need not be).
    pub fn is_device_local(&self) -> bool {
        self.0.device_local
    }

    /// Its device address.
    pub fn address(&self) -> Result<u64> {
        self.0.address.ok_or_else(|| Error::invalid("address", self.label(), "it was made without Usage::ADDRESS"))
    }

    /// Copies values into the buffer from the host.
    ///
    /// No step that is running or submitted may touch these bytes: no layer would see it, and values would be wrong.
    pub fn write<T: Pod>(&self, offset: u64, values: &[T]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let to = self.host(offset, bytes.len() as u64)?;
        // SAFETY: `host` checked that the range lies in the mapping; it does not overlap Rust memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies values from the buffer to the host: what the device wrote before the last wait and a barrier to the host.
    pub fn read<T: Pod>(&self, offset: u64, count: usize) -> Result<Vec<T>> {
        let mut out = vec![T::zeroed(); count];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut out);
        let from = self.host(offset, bytes.len() as u64)?;
        // SAFETY: `host` checked that the range lies in the mapping; it does not overlap Rust memory.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(out)
    }

    /// The mapped bytes, to fill in place (from a file, by several threads, each its part).
    ///
    /// # Safety
    /// While the slice lives, neither the device nor anything else on the host may touch the range.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn mapped(&self, offset: u64, size: u64) -> Result<&mut [u8]> {
        let start = self.host(offset, size)?;
        // SAFETY: `host` checked the range; the caller keeps everybody else away.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), size as usize) })
    }

    /// Where a range of the buffer is mapped.
    fn host(&self, offset: u64, size: u64) -> Result<NonNull<u8>> {
        self.check_range("access by the host", offset, size)?;
        let missing =
            || Missing::new(format!("mapping of `{}`", self.label()), format!("it is in {}", self.kind().name()));
        let start = self.0.mapped.as_ref().ok_or_else(missing)?;
        // SAFETY: the offset was checked to lie in the buffer, whose memory is mapped in one piece.
        Ok(unsafe { start.0.add(offset as usize) })
    }

    /// Fails unless the range lies in the buffer.
    pub(super) fn check_range(&self, what: &'static str, offset: u64, size: u64) -> Result<()> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(Error::invalid(what, self.label(), format!("{offset} + {size} bytes of {}", self.size()))),
        }
    }

    /// Fails unless the buffer was made for a use.
    pub(super) fn check_usage(&self, what: &'static str, usage: Usage) -> Result<()> {
        if self.0.usage.contains(usage) {
            return Ok(());
        }
        Err(Error::invalid(what, self.label(), format!("it was made for {:?}, not for {usage:?}", self.0.usage)))
    }

    pub(super) fn raw(&self) -> vk::Buffer {
        self.0.raw
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    pub(super) fn keep(&self) -> Arc<dyn std::any::Any + Send + Sync> {
        self.0.clone()
    }
}

fn create(core: &Core, desc: &BufferDesc<'_>) -> Result<vk::Buffer> {
    let families: Vec<u32> = [Some(core.families.compute), core.families.transfer].into_iter().flatten().collect();
    let mut info = vk::BufferCreateInfo::default().size(desc.size).usage(desc.usage.raw());
    if families.len() > 1 {
        // Uploads run on another queue; sharing spares the transfers of ownership.
        info = info.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(&families);
    }
    // SAFETY: `info` outlives the call.
    let made = unsafe { core.raw.create_buffer(&info, None) };
    core.call("vkCreateBuffer", desc.label, made)
}

impl Inner {
    /// Chooses the memory type, allocates, checks what came, and binds.
    fn allocate(&mut self) -> Result<()> {
        let core = self.core.clone();
        // SAFETY: the buffer is alive.
        let mut requirements = unsafe { core.raw.get_buffer_memory_requirements(self.raw) };
        let layout = &core.capabilities.memory;
        let refuse = |reason| self.no_memory(reason);
        let index = choose(layout, self.kind, requirements.memory_type_bits);
        let index = index.ok_or_else(|| refuse("the device has no such memory".into()))?;
        let ty = layout.types[index];
        // Left with one type, the allocator cannot fall back to another without a word.
        requirements.memory_type_bits = 1 << index;
        let desc = AllocationCreateDesc {
            name: &self.label,
            requirements,
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let made = match core.injected() {
            Some(_) => Some(Err(AllocationError::OutOfMemory)),
            None => core.with_allocator(|a| a.allocate(&desc)),
        };
        let made = made.ok_or_else(|| refuse("the device has ended".into()))?;
        let allocation =
            made.map_err(|e| refuse(format!("{e} (heap {} of {} bytes)", ty.heap, layout.heaps[ty.heap].size)))?;
        // SAFETY: memory and buffer are of this device; the buffer is bound once.
        let bound = unsafe { core.raw.bind_buffer_memory(self.raw, allocation.memory(), allocation.offset()) };
        let flags = allocation.memory_properties();
        let mapped = allocation.mapped_ptr().map(|p| Mapped(p.cast()));
        self.allocation = Some(allocation);
        core.call("vkBindBufferMemory", &self.label, bound)?;
        self.device_local = flags.contains(vk::MemoryPropertyFlags::DEVICE_LOCAL);
        let cached = flags.contains(vk::MemoryPropertyFlags::HOST_CACHED);
        let wrong = match self.kind {
            Kind::DeviceLocal => !self.device_local,
            Kind::Upload => mapped.is_none(),
            Kind::Readback => mapped.is_none() || !cached,
        };
        if wrong {
            return Err(self.no_memory(format!("the allocator gave {flags:?}")));
        }
        // Memory for the device alone stays that way where the host could map it too.
        self.mapped = mapped.filter(|_| self.kind != Kind::DeviceLocal);
        Ok(())
    }

    fn no_memory(&self, reason: String) -> Error {
        Error::Memory { object: format!("`{}`", self.label), bytes: self.size, kind: self.kind.name(), reason }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.core.retire(Garbage::Buffer(self.raw, self.allocation.take().unwrap_or_default()));
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer(`{}`, {} bytes of {})", self.label(), self.size(), self.kind().name())
    }
}
