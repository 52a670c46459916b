//! Reads from a device what [`Capabilities`] holds.

use super::capabilities::*;
use super::error::{Code, Error, Missing, Result, Support};
use super::instance::Instance;
use super::memory_types::bar;
use super::needs;
use ash::{ext, khr, vk};
use std::collections::HashSet;
use std::ffi::CString;

/// Every device that the drivers offer, usable or not.
pub fn list(instance: &Instance) -> Result<Vec<Capabilities>> {
    let call = |call, code| Error::Call { call, object: "the instance".into(), code: Code(code) };
    // SAFETY: a plain query.
    let found = unsafe { instance.raw().enumerate_physical_devices() };
    let found = found.map_err(|e| call("vkEnumeratePhysicalDevices", e))?;
    let read = |(index, &physical)| {
        // SAFETY: a plain query.
        let offered = unsafe { instance.raw().enumerate_device_extension_properties(physical) };
        let offered = offered.map_err(|e| call("vkEnumerateDeviceExtensionProperties", e))?;
        let names = offered.iter().filter_map(|p| p.extension_name_as_c_str().ok()).map(CString::from).collect();
        Ok(Probe { instance, physical, extensions: names, api: 0 }.read(index))
    };
    found.iter().enumerate().map(read).collect()
}

struct Probe<'a> {
    instance: &'a Instance,
    physical: vk::PhysicalDevice,
    extensions: HashSet<CString>,
    api: u32,
}

/// Feature structures of the device's version and extensions; those it lacks stay all off.
#[derive(Default)]
struct Found {
    base: vk::PhysicalDeviceFeatures,
    v11: vk::PhysicalDeviceVulkan11Features<'static>,
    v12: vk::PhysicalDeviceVulkan12Features<'static>,
    v13: vk::PhysicalDeviceVulkan13Features<'static>,
    sync2: vk::PhysicalDeviceSynchronization2Features<'static>,
    sizes: vk::PhysicalDeviceSubgroupSizeControlFeatures<'static>,
    matrix: vk::PhysicalDeviceCooperativeMatrixFeaturesKHR<'static>,
    executables: vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR<'static>,
}

/// The same for properties.
#[derive(Default)]
struct Properties {
    base: vk::PhysicalDeviceProperties,
    v11: vk::PhysicalDeviceVulkan11Properties<'static>,
    v12: vk::PhysicalDeviceVulkan12Properties<'static>,
    sizes: vk::PhysicalDeviceSubgroupSizeControlProperties<'static>,
    dots: vk::PhysicalDeviceShaderIntegerDotProductProperties<'static>,
}

impl Probe<'_> {
    fn read(mut self, index: usize) -> Capabilities {
        // SAFETY: a plain query.
        let base = unsafe { self.instance.raw().get_physical_device_properties(self.physical) };
        self.api = base.api_version;
        let (features, properties) = (self.features(), self.properties(base));
        let kind = device_kind(base.device_type);
        let queues = self.queues();
        let mut out = Capabilities {
            index,
            name: text(&base.device_name),
            vendor_id: base.vendor_id,
            device_id: base.device_id,
            driver: format!("{} {}", text(&properties.v12.driver_name), text(&properties.v12.driver_info)),
            driver_version: base.driver_version,
            driver_id: properties.v12.driver_id.as_raw(),
            conformance: conformance(properties.v12.conformance_version),
            api: Version::from_raw(base.api_version),
            kind,
            pipeline_cache_uuid: base.pipeline_cache_uuid,
            subgroup: subgroup(&properties.v11),
            features: self.judge(&features, &properties, &queues),
            float_controls: float_controls(&properties.v12),
            limits: limits(&base.limits, &properties.v11),
            queues,
            memory: self.memory(kind),
            usable: Ok(()),
            physical: self.physical,
        };
        let against = needs::against(&out);
        out.usable = if against.is_empty() { Ok(()) } else { Err(against) };
        out
    }

    fn has(&self, extension: &std::ffi::CStr) -> bool {
        self.extensions.contains(extension)
    }

    fn features(&self) -> Found {
        let mut f = Found::default();
        if self.api < vk::API_VERSION_1_2 {
            return f;
        }
        let mut all = vk::PhysicalDeviceFeatures2::default().push_next(&mut f.v11).push_next(&mut f.v12);
        if self.api >= vk::API_VERSION_1_3 {
            all = all.push_next(&mut f.v13);
        } else {
            if self.has(khr::synchronization2::NAME) {
                all = all.push_next(&mut f.sync2);
            }
            if self.has(ext::subgroup_size_control::NAME) {
                all = all.push_next(&mut f.sizes);
            }
        }
        if self.has(khr::cooperative_matrix::NAME) {
            all = all.push_next(&mut f.matrix);
        }
        if self.has(khr::pipeline_executable_properties::NAME) {
            all = all.push_next(&mut f.executables);
        }
        // SAFETY: the chain holds only structures of this device's version and extensions.
        unsafe { self.instance.raw().get_physical_device_features2(self.physical, &mut all) };
        f.base = all.features;
        f
    }

    fn properties(&self, base: vk::PhysicalDeviceProperties) -> Properties {
        let mut p = Properties { base, ..Properties::default() };
        if self.api < vk::API_VERSION_1_2 {
            return p;
        }
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut p.v11).push_next(&mut p.v12);
        if self.api >= vk::API_VERSION_1_3 || self.has(ext::subgroup_size_control::NAME) {
            all = all.push_next(&mut p.sizes);
        }
        if self.api >= vk::API_VERSION_1_3 {
            all = all.push_next(&mut p.dots);
        }
        // SAFETY: the chain holds only structures of this device's version and extensions.
        unsafe { self.instance.raw().get_physical_device_properties2(self.physical, &mut all) };
        p
    }

    fn judge(&self, f: &Found, p: &Properties, queues: &[QueueFamily]) -> Features {
        let feature = |what: &str, on: vk::Bool32| self.feature(what, on);
        Features {
            timeline: feature("timelineSemaphore", f.v12.timeline_semaphore),
            address: feature("bufferDeviceAddress", f.v12.buffer_device_address),
            sync2: self.sync2(f),
            scalar_layout: feature("scalarBlockLayout", f.v12.scalar_block_layout),
            int64: feature("shaderInt64", f.base.shader_int64),
            int16: feature("shaderInt16", f.base.shader_int16),
            int8: feature("shaderInt8", f.v12.shader_int8),
            float16: feature("shaderFloat16", f.v12.shader_float16),
            storage8: feature("storageBuffer8BitAccess", f.v12.storage_buffer8_bit_access),
            storage16: feature("storageBuffer16BitAccess", f.v11.storage_buffer16_bit_access),
            memory_model: self.memory_model(f),
            dot_product: self.dot_product(f, p),
            subgroup_sizes: self.subgroup_sizes(f, p),
            cooperative_matrix: self.cooperative_matrix(f),
            memory_budget: self.memory_budget(&p.base),
            executable_properties: self.of_extension(
                "pipelineExecutableInfo",
                khr::pipeline_executable_properties::NAME,
                f.executables.pipeline_executable_info,
            ),
            timestamps: timestamps(&p.base.limits, queues),
        }
    }

    fn feature(&self, what: &str, on: vk::Bool32) -> Support {
        if on == vk::TRUE {
            return Ok(());
        }
        let api = Version::from_raw(self.api);
        let reason = if api.at_least(1, 2) { "the device does not offer it".into() } else { old(api, "1.2") };
        Err(Missing::new(what, reason))
    }

    fn of_1_3(&self, what: &str, on: vk::Bool32) -> Support {
        let api = Version::from_raw(self.api);
        if api.at_least(1, 3) { self.feature(what, on) } else { Err(Missing::new(what, old(api, "1.3"))) }
    }

    /// Without an instruction of its own, a dot product costs more than the floats that it is to replace; not so on a processor, whose
    /// vectors multiply small integers anyway.
    fn dot_product(&self, f: &Found, p: &Properties) -> Support {
        self.of_1_3("shaderIntegerDotProduct", f.v13.shader_integer_dot_product)?;
        let instruction = p.dots.integer_dot_product4x8_bit_packed_signed_accelerated == vk::TRUE;
        if instruction || p.base.device_type == vk::PhysicalDeviceType::CPU {
            return Ok(());
        }
        Err(Missing::new("dot products of bytes", "the device has no instruction for them"))
    }

    fn of_extension(&self, what: &str, extension: &std::ffi::CStr, on: vk::Bool32) -> Support {
        if self.has(extension) {
            return self.feature(what, on);
        }
        Err(Missing::new(what, format!("the driver has no {}", extension.to_string_lossy())))
    }

    fn sync2(&self, f: &Found) -> Support<Sync2> {
        if self.api >= vk::API_VERSION_1_3 {
            return self.feature("synchronization2", f.v13.synchronization2).map(|()| Sync2::Core);
        }
        self.of_extension("synchronization2", khr::synchronization2::NAME, f.sync2.synchronization2)
            .map(|()| Sync2::Extension)
    }

    fn subgroup_sizes(&self, f: &Found, p: &Properties) -> Support<SubgroupSizes> {
        let what = "choosing the subgroup size";
        let extension = self.api < vk::API_VERSION_1_3;
        let (on, full) = if extension {
            self.of_extension(what, ext::subgroup_size_control::NAME, f.sizes.subgroup_size_control)?;
            (f.sizes.subgroup_size_control, f.sizes.compute_full_subgroups)
        } else {
            (f.v13.subgroup_size_control, f.v13.compute_full_subgroups)
        };
        self.feature(what, on)?;
        if !p.sizes.required_subgroup_size_stages.contains(vk::ShaderStageFlags::COMPUTE) {
            return Err(Missing::new(what, "not for compute shaders"));
        }
        let (min, max) = (p.sizes.min_subgroup_size, p.sizes.max_subgroup_size);
        Ok(SubgroupSizes { min, max, full: full == vk::TRUE, extension })
    }

    fn cooperative_matrix(&self, f: &Found) -> Support<Vec<CooperativeMatrix>> {
        let what = "cooperativeMatrix";
        self.of_extension(what, khr::cooperative_matrix::NAME, f.matrix.cooperative_matrix)?;
        // The SPIR-V of such kernels uses the formal memory model.
        self.memory_model(f)?;
        let functions = khr::cooperative_matrix::Instance::new(self.instance.entry(), self.instance.raw());
        // SAFETY: the device has the extension.
        let found = unsafe { functions.get_physical_device_cooperative_matrix_properties(self.physical) };
        let found = found.map_err(|e| Missing::new(what, format!("its shapes cannot be read: {e:?}")))?;
        Ok(found.iter().filter(|m| m.scope == vk::ScopeKHR::SUBGROUP).map(matrix).collect())
    }

    fn memory_model(&self, f: &Found) -> Support {
        self.feature("vulkanMemoryModel", f.v12.vulkan_memory_model)?;
        self.feature("vulkanMemoryModelDeviceScope", f.v12.vulkan_memory_model_device_scope)
    }

    fn memory_budget(&self, base: &vk::PhysicalDeviceProperties) -> Support {
        if text(&base.device_name).starts_with("Null hardware") {
            return Err(Missing::new("VK_EXT_memory_budget", "the query crashes this device without hardware"));
        }
        self.of_extension("VK_EXT_memory_budget", ext::memory_budget::NAME, vk::TRUE)
    }

    fn queues(&self) -> Vec<QueueFamily> {
        // SAFETY: a plain query.
        let found = unsafe { self.instance.raw().get_physical_device_queue_family_properties(self.physical) };
        let family = |(index, p): (u32, &vk::QueueFamilyProperties)| QueueFamily {
            index,
            count: p.queue_count,
            graphics: p.queue_flags.contains(vk::QueueFlags::GRAPHICS),
            compute: p.queue_flags.contains(vk::QueueFlags::COMPUTE),
            // Compute implies transfer, whether or not the driver says so.
            transfer: p.queue_flags.intersects(vk::QueueFlags::TRANSFER | vk::QueueFlags::COMPUTE),
            timestamp_bits: p.timestamp_valid_bits,
        };
        (0..).zip(&found).map(family).collect()
    }

    fn memory(&self, kind: DeviceKind) -> MemoryLayout {
        // SAFETY: a plain query.
        let found = unsafe { self.instance.raw().get_physical_device_memory_properties(self.physical) };
        let heap = |h: &vk::MemoryHeap| Heap {
            size: h.size,
            device_local: h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL),
        };
        let heaps: Vec<_> = found.memory_heaps_as_slice().iter().map(heap).collect();
        let types: Vec<_> = found.memory_types_as_slice().iter().map(memory_type).collect();
        let bar = bar(&heaps, &types, kind);
        MemoryLayout { heaps, types, bar }
    }
}

fn old(api: Version, needed: &str) -> String {
    format!("it is part of Vulkan {needed} and this driver has {api}")
}

/// A name out of a fixed array of characters.
fn text(chars: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().flat_map(|c| c.to_ne_bytes()).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn device_kind(ty: vk::PhysicalDeviceType) -> DeviceKind {
    match ty {
        vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
        vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
        vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
        vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
        _ => DeviceKind::Other,
    }
}

fn memory_type(ty: &vk::MemoryType) -> MemoryType {
    use vk::MemoryPropertyFlags as F;
    let has = |flag| ty.property_flags.intersects(flag);
    MemoryType {
        heap: ty.heap_index as usize,
        device_local: has(F::DEVICE_LOCAL),
        host_visible: has(F::HOST_VISIBLE),
        host_coherent: has(F::HOST_COHERENT),
        host_cached: has(F::HOST_CACHED),
        special: has(F::PROTECTED
            | F::LAZILY_ALLOCATED
            | F::DEVICE_COHERENT_AMD
            | F::DEVICE_UNCACHED_AMD
            | F::RDMA_CAPABLE_NV),
    }
}

fn subgroup(p: &vk::PhysicalDeviceVulkan11Properties<'_>) -> Subgroup {
    use vk::SubgroupFeatureFlags as F;
    let table = [
        (F::BASIC, "basic"),
        (F::VOTE, "vote"),
        (F::ARITHMETIC, "arithmetic"),
        (F::BALLOT, "ballot"),
        (F::SHUFFLE, "shuffle"),
        (F::SHUFFLE_RELATIVE, "shuffle-relative"),
        (F::CLUSTERED, "clustered"),
        (F::QUAD, "quad"),
    ];
    let has = |flag| p.subgroup_supported_operations.contains(flag);
    Subgroup {
        size: p.subgroup_size,
        in_compute: p.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE),
        ops: table.iter().filter(|(flag, _)| has(*flag)).map(|(_, name)| *name).collect(),
    }
}

fn conformance(v: vk::ConformanceVersion) -> [u8; 4] {
    [v.major, v.minor, v.subminor, v.patch]
}

fn float_controls(p: &vk::PhysicalDeviceVulkan12Properties<'_>) -> FloatControls {
    let is = |on| on == vk::TRUE;
    FloatControls {
        denorm_preserve_f32: is(p.shader_denorm_preserve_float32),
        denorm_flush_f32: is(p.shader_denorm_flush_to_zero_float32),
        denorm_preserve_f16: is(p.shader_denorm_preserve_float16),
        denorm_flush_f16: is(p.shader_denorm_flush_to_zero_float16),
        signed_zero_inf_nan_f32: is(p.shader_signed_zero_inf_nan_preserve_float32),
        round_even_f32: is(p.shader_rounding_mode_rte_float32),
        round_even_f16: is(p.shader_rounding_mode_rte_float16),
    }
}

fn limits(l: &vk::PhysicalDeviceLimits, p: &vk::PhysicalDeviceVulkan11Properties<'_>) -> Limits {
    Limits {
        storage_range: l.max_storage_buffer_range.into(),
        storage_alignment: l.min_storage_buffer_offset_alignment,
        storage_buffers: l.max_per_stage_descriptor_storage_buffers,
        sets: l.max_bound_descriptor_sets,
        push_constants: l.max_push_constants_size,
        shared_memory: l.max_compute_shared_memory_size,
        group_count: l.max_compute_work_group_count,
        group_size: l.max_compute_work_group_size,
        group_invocations: l.max_compute_work_group_invocations,
        allocation: p.max_memory_allocation_size,
        allocations: l.max_memory_allocation_count,
    }
}

/// The clock of the first family that computes: that is the one that [`Device`](super::Device) uses.
fn timestamps(limits: &vk::PhysicalDeviceLimits, queues: &[QueueFamily]) -> Support<Timestamps> {
    let bits = queues.iter().find(|q| q.compute).map_or(0, |q| q.timestamp_bits);
    let missing = || Missing::new("timestamps", "the compute queue has no clock");
    (bits > 0).then_some(Timestamps { bits, period: limits.timestamp_period }).ok_or_else(missing)
}

fn matrix(m: &vk::CooperativeMatrixPropertiesKHR<'_>) -> CooperativeMatrix {
    let name = |ty: vk::ComponentTypeKHR| match ty {
        vk::ComponentTypeKHR::FLOAT16 => "f16",
        vk::ComponentTypeKHR::FLOAT32 => "f32",
        vk::ComponentTypeKHR::FLOAT64 => "f64",
        vk::ComponentTypeKHR::SINT8 => "i8",
        vk::ComponentTypeKHR::SINT16 => "i16",
        vk::ComponentTypeKHR::SINT32 => "i32",
        vk::ComponentTypeKHR::SINT64 => "i64",
        vk::ComponentTypeKHR::UINT8 => "u8",
        vk::ComponentTypeKHR::UINT16 => "u16",
        vk::ComponentTypeKHR::UINT32 => "u32",
        vk::ComponentTypeKHR::UINT64 => "u64",
        // Types of later extensions, such as bf16.
        _ => "other",
    };
    CooperativeMatrix {
        mnk: [m.m_size, m.n_size, m.k_size],
        types: [m.a_type, m.b_type, m.c_type, m.result_type].map(name),
    }
}
