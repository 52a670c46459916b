//! What the driver's compiler tells of a pipeline: registers, spills, instruction counts, machine code.

use super::error::{Error, Result};
use super::pipeline::{Capture, Pipeline};
use ash::vk;
use serde::Serialize;
use std::ffi::c_char;

/// One compiled stage of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExecutableStatistics {
    /// The driver's name for it.
    pub name: String,
    /// Subgroup size that it was compiled for.
    pub subgroup_size: u32,
    /// The driver's numbers.
    pub statistics: Vec<Statistic>,
    /// The driver's texts by name, such as the machine code; with [`Capture::Text`].
    pub texts: Vec<(String, String)>,
}

/// A number with its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistic {
    /// Such as `VGPRs`.
    pub name: String,
    /// Its value.
    pub value: f64,
}

impl Pipeline {
    /// What the driver kept, as the pipeline's [`Capture`] asked for.
    pub fn statistics(&self) -> Result<Vec<ExecutableStatistics>> {
        let core = self.core();
        let functions = match (&core.executables, self.capture()) {
            (Some(functions), Capture::Statistics | Capture::Text) => functions,
            _ => return Err(Error::invalid("statistics", self.label(), "it was made without")),
        };
        let info = vk::PipelineInfoKHR::default().pipeline(self.raw());
        // SAFETY: the pipeline is alive and was made with the flag for it.
        let found = unsafe { functions.get_pipeline_executable_properties(&info) };
        let found = core.call("vkGetPipelineExecutablePropertiesKHR", self.label(), found)?;
        let one = |(index, p): (u32, &vk::PipelineExecutablePropertiesKHR<'_>)| {
            let at = vk::PipelineExecutableInfoKHR::default().pipeline(self.raw()).executable_index(index);
            // SAFETY: as above; the index is one that the driver named.
            let numbers = unsafe { functions.get_pipeline_executable_statistics(&at) };
            let numbers = core.call("vkGetPipelineExecutableStatisticsKHR", self.label(), numbers)?;
            Ok(ExecutableStatistics {
                name: text(&p.name),
                subgroup_size: p.subgroup_size,
                statistics: numbers.iter().map(statistic).collect(),
                texts: if self.capture() == Capture::Text { self.texts(&at)? } else { Vec::new() },
            })
        };
        (0..).zip(&found).map(one).collect()
    }

    /// Two calls: the first tells how long each text is.
    fn texts(&self, at: &vk::PipelineExecutableInfoKHR<'_>) -> Result<Vec<(String, String)>> {
        let core = self.core();
        let Some(functions) = &core.executables else { return Ok(Vec::new()) };
        let call = "vkGetPipelineExecutableInternalRepresentationsKHR";
        // SAFETY: the pipeline is alive and was made with the flag for it.
        let found = unsafe { functions.get_pipeline_executable_internal_representations(at) };
        let mut found = core.call(call, self.label(), found)?;
        let mut buffers: Vec<Vec<u8>> = found.iter().map(|r| vec![0; r.data_size]).collect();
        for (representation, buffer) in found.iter_mut().zip(&mut buffers) {
            representation.p_data = buffer.as_mut_ptr().cast();
        }
        let mut count = found.len() as u32;
        let get = functions.fp().get_pipeline_executable_internal_representations_khr;
        // SAFETY: as above; each representation points to a buffer of the length that the driver asked for.
        let code = unsafe { get(core.raw.handle(), at, &mut count, found.as_mut_ptr()) };
        core.call(call, self.label(), code.result())?;
        let is_text = |r: &vk::PipelineExecutableInternalRepresentationKHR<'_>| r.is_text == vk::TRUE;
        let pairs = found.iter().zip(&buffers).filter(|(r, _)| is_text(r));
        Ok(pairs.map(|(r, b)| (text(&r.name), String::from_utf8_lossy(b).trim_end_matches('\0').to_owned())).collect())
    }
}

fn statistic(s: &vk::PipelineExecutableStatisticKHR<'_>) -> Statistic {
    use vk::PipelineExecutableStatisticFormatKHR as Format;
    // SAFETY: the format says which member was written.
    let value = unsafe {
        match s.format {
            Format::BOOL32 => f64::from(s.value.b32),
            Format::INT64 => s.value.i64 as f64,
            Format::UINT64 => s.value.u64 as f64,
            Format::FLOAT64 => s.value.f64,
            _ => f64::NAN,
        }
    };
    Statistic { name: text(&s.name), value }
}

fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().flat_map(|c| c.to_ne_bytes()).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
