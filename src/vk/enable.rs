//! Makes the Vulkan device, with every feature on that its capabilities say it has.

use super::capabilities::{Capabilities, Features, QueueFamily, Sync2};
use super::error::{Code, Error, Result};
use super::instance::Instance;
use ash::{ext, khr, vk};
use std::ffi::c_char;

/// The queue families to take a queue of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Families {
    pub compute: u32,
    /// A family that copies and does not compute, so that uploads run beside the work.
    pub transfer: Option<u32>,
}

/// The first that computes, and the first that only copies.
pub(super) fn families(queues: &[QueueFamily]) -> Option<Families> {
    let compute = queues.iter().find(|q| q.compute)?.index;
    let transfer = queues.iter().find(|q| q.transfer && !q.compute && !q.graphics).map(|q| q.index);
    Some(Families { compute, transfer })
}

fn on<T, E>(support: &Result<T, E>) -> bool {
    support.is_ok()
}

fn extensions(f: &Features, executables: bool) -> Vec<*const c_char> {
    let table = [
        (f.sync2 == Ok(Sync2::Extension), khr::synchronization2::NAME),
        (f.subgroup_sizes.as_ref().is_ok_and(|s| s.extension), ext::subgroup_size_control::NAME),
        (on(&f.cooperative_matrix), khr::cooperative_matrix::NAME),
        (on(&f.memory_budget), ext::memory_budget::NAME),
        (executables, khr::pipeline_executable_properties::NAME),
    ];
    table.iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name.as_ptr()).collect()
}

fn v11(f: &Features) -> vk::PhysicalDeviceVulkan11Features<'static> {
    vk::PhysicalDeviceVulkan11Features::default().storage_buffer16_bit_access(on(&f.storage16))
}

fn v12(f: &Features) -> vk::PhysicalDeviceVulkan12Features<'static> {
    vk::PhysicalDeviceVulkan12Features::default()
        .timeline_semaphore(true)
        .buffer_device_address(true)
        .scalar_block_layout(on(&f.scalar_layout))
        .shader_int8(on(&f.int8))
        .shader_float16(on(&f.float16))
        .storage_buffer8_bit_access(on(&f.storage8))
        .vulkan_memory_model(on(&f.memory_model))
        .vulkan_memory_model_device_scope(on(&f.memory_model))
}

/// Creates the device; `capabilities` must be usable.
pub(super) fn create(
    instance: &Instance,
    capabilities: &Capabilities,
    families: Families,
    executables: bool,
) -> Result<ash::Device> {
    let f = &capabilities.features;
    let base = vk::PhysicalDeviceFeatures::default().shader_int64(on(&f.int64)).shader_int16(on(&f.int16));
    let (mut v11, mut v12) = (v11(f), v12(f));
    let sizes = f.subgroup_sizes.as_ref().ok().copied();
    let full = sizes.is_some_and(|s| s.full);
    let mut v13 = vk::PhysicalDeviceVulkan13Features::default()
        .synchronization2(true)
        .subgroup_size_control(sizes.is_some())
        .compute_full_subgroups(full)
        .shader_integer_dot_product(on(&f.dot_product));
    let mut sync2 = vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
    let mut size_control = vk::PhysicalDeviceSubgroupSizeControlFeatures::default()
        .subgroup_size_control(true)
        .compute_full_subgroups(full);
    let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
    let mut executable_info =
        vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default().pipeline_executable_info(true);
    let extensions = extensions(f, executables);
    let queues: Vec<_> = [Some(families.compute), families.transfer]
        .into_iter()
        .flatten()
        .map(|family| vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0]))
        .collect();
    let mut info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&extensions)
        .enabled_features(&base)
        .push_next(&mut v11)
        .push_next(&mut v12);
    if capabilities.api.at_least(1, 3) {
        info = info.push_next(&mut v13);
    } else {
        info = info.push_next(&mut sync2);
        if sizes.is_some() {
            info = info.push_next(&mut size_control);
        }
    }
    if on(&f.cooperative_matrix) {
        info = info.push_next(&mut matrix);
    }
    if executables {
        info = info.push_next(&mut executable_info);
    }
    // SAFETY: all that `info` points to outlives the call, and only what the device offers is asked for.
    let made = unsafe { instance.raw().create_device(capabilities.physical, &info, None) };
    let object = || format!("`{}`", capabilities.name);
    made.map_err(|e| Error::Call { call: "vkCreateDevice", object: object(), code: Code(e) })
}
