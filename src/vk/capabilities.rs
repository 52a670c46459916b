//! What a device is and can do, as plain data.

use super::error::{Missing, Support};
use ash::vk;
use serde::Serialize;
use std::fmt;

/// Everything that was read from one device.
#[derive(Debug, Clone, Serialize)]
pub struct Capabilities {
    /// The number under which the loader lists it.
    pub index: usize,
    /// The device's name.
    pub name: String,
    /// PCI vendor.
    pub vendor_id: u32,
    /// PCI device.
    pub device_id: u32,
    /// The driver's name and its own description of its version.
    pub driver: String,
    /// The driver's version number, in the vendor's encoding.
    pub driver_version: u32,
    /// Which driver it is, by Vulkan's list (`VkDriverId`); 0 if it does not say.
    pub driver_id: i32,
    /// The version of the conformance tests that the driver has passed; zeros if none.
    pub conformance: [u8; 4],
    /// Vulkan version.
    pub api: Version,
    /// What sort of device it is.
    pub kind: DeviceKind,
    /// Changes when compiled pipelines stop being valid.
    pub pipeline_cache_uuid: [u8; 16],
    /// Subgroups.
    pub subgroup: Subgroup,
    /// Optional features.
    pub features: Features,
    /// What becomes of the edges of floating point in shaders.
    pub float_controls: FloatControls,
    /// Limits that matter here.
    pub limits: Limits,
    /// Queue families.
    pub queues: Vec<QueueFamily>,
    /// Memory.
    pub memory: MemoryLayout,
    /// Whether this program can use the device, or everything that stands against it.
    pub usable: Result<(), Vec<String>>,
    #[serde(skip)]
    pub(crate) physical: vk::PhysicalDevice,
}

impl Capabilities {
    /// Mesa's device without hardware: it compiles pipelines, and some queries crash it.
    pub fn is_null_hardware(&self) -> bool {
        self.name.starts_with("Null hardware")
    }

    /// Square matrices of f16 that a subgroup multiplies together, with sums in f32: the subgroup's size and the side of the
    /// largest that kernels use (8 or 16); or what is missing for kernels that do.
    pub fn matrices(&self) -> Support<(u32, u32)> {
        let what = "square matrices of f16";
        let f = &self.features;
        let side = |m: &CooperativeMatrix| {
            let [side, n, k] = m.mnk;
            let fits = side == n && side == k && [8, 16].contains(&side);
            (fits && m.types == ["f16", "f16", "f32", "f32"]).then_some(side)
        };
        let sides = f.cooperative_matrix.clone()?.iter().filter_map(side).max();
        let other = || Missing::new(what, "the device has cooperative matrices of other shapes or types alone");
        let side = sides.ok_or_else(other)?;
        f.float16.clone()?;
        let sizes = f.subgroup_sizes.clone()?;
        if !sizes.full {
            return Err(Missing::new(what, "a pipeline cannot demand full subgroups"));
        }
        Ok((self.subgroup.size.clamp(sizes.min, sizes.max), side))
    }
}

/// A Vulkan version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Version {
    /// Major, minor, patch.
    pub major: u32,
    /// Minor.
    pub minor: u32,
    /// Patch.
    pub patch: u32,
}

impl Version {
    pub(crate) fn from_raw(raw: u32) -> Self {
        Self { major: vk::api_version_major(raw), minor: vk::api_version_minor(raw), patch: vk::api_version_patch(raw) }
    }

    /// Whether it is `major.minor` or later.
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What sort of device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum DeviceKind {
    /// A card with memory of its own.
    Discrete,
    /// Part of a processor, sharing its memory.
    Integrated,
    /// A share of a card in a virtual machine.
    Virtual,
    /// A driver that computes on the processor.
    Cpu,
    /// Anything else.
    Other,
}

/// Subgroups of compute shaders.
#[derive(Debug, Clone, Serialize)]
pub struct Subgroup {
    /// Invocations, unless a pipeline asks for another size.
    pub size: u32,
    /// Whether compute shaders have subgroup operations.
    pub in_compute: bool,
    /// `basic`, `vote`, `arithmetic`, `ballot`, `shuffle`, `shuffle-relative`, `clustered`, `quad`.
    pub ops: Vec<&'static str>,
}

/// Optional features: there, or the reason why not.
#[derive(Debug, Clone, Serialize)]
pub struct Features {
    /// Timeline semaphores.
    pub timeline: Support,
    /// Buffer device addresses.
    pub address: Support,
    /// Synchronization2, and where from.
    pub sync2: Support<Sync2>,
    /// Scalar block layout.
    pub scalar_layout: Support,
    /// 64-bit integers in shaders.
    pub int64: Support,
    /// 16-bit integers in shaders.
    pub int16: Support,
    /// 8-bit integers in shaders.
    pub int8: Support,
    /// 16-bit floats in shaders.
    pub float16: Support,
    /// 8-bit values in storage buffers.
    pub storage8: Support,
    /// 16-bit values in storage buffers.
    pub storage16: Support,
    /// The formal memory model, device scope included: without that it would forbid ordinary atomics.
    pub memory_model: Support,
    /// Dot products of bytes, where they gain something.
    pub dot_product: Support,
    /// Choosing the subgroup size of a pipeline.
    pub subgroup_sizes: Support<SubgroupSizes>,
    /// Cooperative matrices of subgroup scope.
    pub cooperative_matrix: Support<Vec<CooperativeMatrix>>,
    /// How much of each heap is left.
    pub memory_budget: Support,
    /// Registers, spills and instruction counts of pipelines.
    pub executable_properties: Support,
    /// Times on the compute queue.
    pub timestamps: Support<Timestamps>,
}

/// Where synchronization2 comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Sync2 {
    /// Vulkan 1.3.
    Core,
    /// `VK_KHR_synchronization2`.
    Extension,
}

/// The subgroup sizes that a compute pipeline may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SubgroupSizes {
    /// Smallest.
    pub min: u32,
    /// Largest.
    pub max: u32,
    /// Whether a pipeline may demand that all subgroups are full.
    pub full: bool,
    /// Whether it comes from `VK_EXT_subgroup_size_control` and not from Vulkan 1.3.
    pub extension: bool,
}

/// One shape and type of cooperative matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CooperativeMatrix {
    /// Rows, columns, inner dimension.
    pub mnk: [u32; 3],
    /// Component types of A, B, C and the result, such as `f16`.
    pub types: [&'static str; 4],
}

/// What a shader may ask of floating point; a driver without Vulkan 1.2 grants nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FloatControls {
    /// Denormal f32 are kept.
    pub denorm_preserve_f32: bool,
    /// Denormal f32 become zero.
    pub denorm_flush_f32: bool,
    /// Denormal f16 are kept.
    pub denorm_preserve_f16: bool,
    /// Denormal f16 become zero.
    pub denorm_flush_f16: bool,
    /// Signed zeros, infinities and NaN of f32 are kept.
    pub signed_zero_inf_nan_f32: bool,
    /// f32 is rounded to the nearest even.
    pub round_even_f32: bool,
    /// f16 is rounded to the nearest even.
    pub round_even_f16: bool,
}

/// The clock of the compute queue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Timestamps {
    /// How many bits of a time count.
    pub bits: u32,
    /// Nanoseconds a tick.
    pub period: f32,
}

/// Limits that matter here.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Limits {
    /// Largest range of a bound storage buffer.
    pub storage_range: u64,
    /// Alignment of the offset of a bound storage buffer.
    pub storage_alignment: u64,
    /// Storage buffers a stage.
    pub storage_buffers: u32,
    /// Descriptor sets of a pipeline.
    pub sets: u32,
    /// Bytes of push constants.
    pub push_constants: u32,
    /// Bytes of shared memory.
    pub shared_memory: u32,
    /// Workgroups of a dispatch.
    pub group_count: [u32; 3],
    /// Invocations of a workgroup, by dimension.
    pub group_size: [u32; 3],
    /// Invocations of a workgroup, in all.
    pub group_invocations: u32,
    /// Largest single allocation.
    pub allocation: u64,
    /// How many allocations there may be.
    pub allocations: u32,
}

/// A family of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct QueueFamily {
    /// Its number.
    pub index: u32,
    /// How many queues.
    pub count: u32,
    /// Takes graphics work.
    pub graphics: bool,
    /// Takes dispatches.
    pub compute: bool,
    /// Takes copies.
    pub transfer: bool,
    /// Bits of its timestamps, 0 for none.
    pub timestamp_bits: u32,
}

/// Heaps, types and what the host sees of them.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryLayout {
    /// Heaps.
    pub heaps: Vec<Heap>,
    /// Memory types.
    pub types: Vec<MemoryType>,
    /// How much device memory the host can map.
    pub bar: Bar,
}

/// A heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Heap {
    /// Bytes.
    pub size: u64,
    /// Whether it is the device's own memory.
    pub device_local: bool,
}

/// A memory type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryType {
    /// Its heap.
    pub heap: usize,
    /// Fast for the device.
    pub device_local: bool,
    /// Can be mapped.
    pub host_visible: bool,
    /// Needs no flushes.
    pub host_coherent: bool,
    /// Fast for the host to read.
    pub host_cached: bool,
    /// Protected, lazily allocated, or with a vendor's coherence: never used here.
    pub special: bool,
}

/// How much of the device's memory the host can map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Bar {
    /// Host and device share one memory.
    Unified,
    /// All of it (resizable BAR).
    Whole,
    /// A window of so many bytes, to be left to the driver.
    Window(u64),
    /// Nothing.
    None,
}
