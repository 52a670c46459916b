//! Compute pipelines: an embedded kernel, its constants, and a layout made from what the build reflected.

use super::core::{Core, Garbage};
use super::descriptors::SetLayout;
use super::device::Device;
use super::error::{Error, Result};
use super::needs::spirv_capability;
use super::pipeline_cache::PipelineCache;
use super::shader::Shader;
use ash::vk;
use std::any::Any;
use std::sync::Arc;

/// A pipeline to make.
#[derive(Debug, Clone, Copy)]
pub struct PipelineDesc<'a> {
    /// Its name in messages and tools.
    pub label: &'a str,
    /// The kernel.
    pub shader: &'static Shader,
    /// Values of specialisation constants by id; those that set the workgroup size must be among them.
    pub constants: &'a [(u32, u32)],
    /// A subgroup size, where the device lets a pipeline choose; all subgroups are full then, where it can promise that.
    pub subgroup_size: Option<u32>,
    /// What the driver keeps for [`Pipeline::statistics`].
    pub capture: Capture,
}

/// What the driver keeps of its compilation. Anything but nothing needs [`DeviceOptions::statistics`].
///
/// [`DeviceOptions::statistics`]: super::DeviceOptions::statistics
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Capture {
    /// Nothing.
    #[default]
    Nothing,
    /// Registers, spills, instruction counts.
    Statistics,
    /// These and the text of the machine code.
    Text,
}

/// A compute pipeline; clones share it.
#[derive(Clone)]
pub struct Pipeline(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    raw: vk::Pipeline,
    layout: vk::PipelineLayout,
    sets: Vec<SetLayout>,
    label: String,
    shader: &'static Shader,
    capture: Capture,
}

impl Pipeline {
    /// Compiles a pipeline, with the help of what the cache has.
    pub fn new(device: &Device, cache: &PipelineCache, desc: &PipelineDesc<'_>) -> Result<Self> {
        let core = device.core();
        core.alive()?;
        check(core, desc)?;
        let sets = set_layouts(core, desc)?;
        let layout = pipeline_layout(core, desc, &sets)?;
        let raw = match create(core, cache, desc, layout) {
            Ok(raw) => raw,
            Err(error) => {
                // SAFETY: nothing uses the layout.
                unsafe { core.raw.destroy_pipeline_layout(layout, None) };
                return Err(error);
            }
        };
        core.name(raw, desc.label);
        let (label, shader, capture) = (desc.label.to_owned(), desc.shader, desc.capture);
        Ok(Self(Arc::new(Inner { core: core.clone(), raw, layout, sets, label, shader, capture })))
    }

    /// Its name.
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// The kernel, with what it declares to read and write.
    pub fn shader(&self) -> &'static Shader {
        self.0.shader
    }

    /// The layout of a set, to make sets from.
    pub fn set_layout(&self, set: u32) -> Result<&SetLayout> {
        let none =
            || Error::invalid("set layout", self.label(), format!("it has {} sets, not set {set}", self.0.sets.len()));
        self.0.sets.get(set as usize).ok_or_else(none)
    }

    pub(super) fn sets(&self) -> &[SetLayout] {
        &self.0.sets
    }

    pub(super) fn raw(&self) -> vk::Pipeline {
        self.0.raw
    }

    pub(super) fn layout(&self) -> vk::PipelineLayout {
        self.0.layout
    }

    pub(super) fn capture(&self) -> Capture {
        self.0.capture
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
        self.core.retire(Garbage::Pipeline(self.raw, self.layout));
    }
}

/// Everything that drivers need not check: unknown constants, workgroups too large, features that are not there.
fn check(core: &Core, desc: &PipelineDesc<'_>) -> Result<()> {
    let invalid = |reason: String| Err(Error::invalid("making a pipeline", desc.label, reason));
    let (shader, device) = (desc.shader, &core.capabilities);
    for &number in shader.capabilities {
        spirv_capability(device, number)?;
    }
    if let Some((id, _)) = desc.constants.iter().find(|(id, _)| !shader.spec_ids.contains(id)) {
        return invalid(format!("{} has no constant {id}, it has {:?}", shader.name, shader.spec_ids));
    }
    let mut size = shader.local_size;
    for (dimension, id) in shader.local_size_ids.iter().enumerate() {
        let Some(id) = id else { continue };
        let value = desc.constants.iter().find(|(i, _)| i == id);
        let Some(&(_, value)) = value else {
            return invalid(format!("constant {id} sets the workgroup size of {} and has no value", shader.name));
        };
        size[dimension] = value;
    }
    let limits = &device.limits;
    let fits = size.iter().zip(limits.group_size).all(|(&n, limit)| n > 0 && n <= limit);
    if !fits || size.iter().map(|&n| u64::from(n)).product::<u64>() > limits.group_invocations.into() {
        return invalid(format!(
            "a workgroup of {size:?}, the limits are {:?} and {} in all",
            limits.group_size, limits.group_invocations
        ));
    }
    if let Some(wanted) = desc.subgroup_size {
        let sizes = device.features.subgroup_sizes.clone()?;
        if !wanted.is_power_of_two() || !(sizes.min..=sizes.max).contains(&wanted) {
            return invalid(format!("subgroups of {wanted}, the device has {} to {}", sizes.min, sizes.max));
        }
    }
    if desc.capture != Capture::Nothing && core.executables.is_none() {
        return invalid("statistics of a device that was opened without".into());
    }
    Ok(())
}

fn set_layouts(core: &Core, desc: &PipelineDesc<'_>) -> Result<Vec<SetLayout>> {
    let bindings = desc.shader.bindings;
    let count = bindings.iter().map(|b| b.set + 1).max().unwrap_or(0);
    let limits = &core.capabilities.limits;
    if count > limits.sets || bindings.len() as u32 > limits.storage_buffers {
        let reason = format!(
            "{count} sets and {} buffers, the limits are {} and {}",
            bindings.len(),
            limits.sets,
            limits.storage_buffers
        );
        return Err(Error::invalid("making a pipeline", desc.label, reason));
    }
    let layout = |set| {
        let list: Arc<[u32]> = bindings.iter().filter(|b| b.set == set).map(|b| b.binding).collect();
        Ok(SetLayout { raw: core.set_layout(&list, desc.label)?, bindings: list })
    };
    (0..count).map(layout).collect()
}

fn pipeline_layout(core: &Core, desc: &PipelineDesc<'_>, sets: &[SetLayout]) -> Result<vk::PipelineLayout> {
    let layouts: Vec<_> = sets.iter().map(|s| s.raw).collect();
    let size = desc.shader.push_size;
    let push = [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(size)];
    let mut info = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts);
    if size > 0 {
        info = info.push_constant_ranges(&push);
    }
    // SAFETY: `info` outlives the call.
    core.call("vkCreatePipelineLayout", desc.label, unsafe { core.raw.create_pipeline_layout(&info, None) })
}

fn create(
    core: &Core,
    cache: &PipelineCache,
    desc: &PipelineDesc<'_>,
    layout: vk::PipelineLayout,
) -> Result<vk::Pipeline> {
    let module_info = vk::ShaderModuleCreateInfo::default().code(desc.shader.spirv);
    // SAFETY: `module_info` outlives the call.
    let module = unsafe { core.raw.create_shader_module(&module_info, None) };
    let module = core.call("vkCreateShaderModule", desc.label, module)?;
    let (entries, data): (Vec<_>, Vec<_>) = (0..)
        .zip(desc.constants)
        .map(|(i, &(id, value))| (vk::SpecializationMapEntry::default().constant_id(id).offset(i * 4).size(4), value))
        .unzip();
    let special = vk::SpecializationInfo::default().map_entries(&entries).data(bytemuck::cast_slice(&data));
    let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default();
    let mut stage = vk::PipelineShaderStageCreateInfo::default()
        .stage(vk::ShaderStageFlags::COMPUTE)
        .module(module)
        .name(c"main")
        .specialization_info(&special);
    if let Some(wanted) = desc.subgroup_size {
        size = size.required_subgroup_size(wanted);
        stage = stage.push_next(&mut size);
        if core.capabilities.features.subgroup_sizes.as_ref().is_ok_and(|s| s.full) {
            stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
        }
    }
    let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout).flags(flags(desc.capture));
    // SAFETY: all that `info` points to outlives the call; the cache may be used from several threads.
    let made = unsafe { core.raw.create_compute_pipelines(cache.raw(), &[info], None) };
    // SAFETY: a pipeline does not need its module any more.
    unsafe { core.raw.destroy_shader_module(module, None) };
    // One pipeline was asked for, so one is there.
    core.call("vkCreateComputePipelines", desc.label, made.map(|p| p[0]).map_err(|(_, code)| code))
}

fn flags(capture: Capture) -> vk::PipelineCreateFlags {
    let (numbers, text) = (
        vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR,
        vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR,
    );
    match capture {
        Capture::Nothing => vk::PipelineCreateFlags::empty(),
        Capture::Statistics => numbers,
        Capture::Text => numbers | text,
    }
}
