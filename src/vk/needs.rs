//! What this program needs of a device, and what a kernel needs.

use super::capabilities::{Capabilities, Features};
use super::error::{Missing, Support};
use super::shader::{COOPERATIVE_MATRIX, Shader};

/// As PCI numbers it.
const INTEL: u32 = 0x8086;

impl Capabilities {
    /// The size of subgroups that a kernel's pipelines must demand, if any, with which they are full where a device can promise it.
    pub fn subgroup_of(&self, shader: &Shader) -> Support<Option<u32>> {
        if shader.multiplies_matrices() {
            return self.matrices().map(|(size, _)| Some(size));
        }
        let sizes = self.features.subgroup_sizes.as_ref().ok().filter(|_| shader.exchanges_digits());
        // Intel reports 32, at which a kernel has half the registers of sixteen (not measured: nobody here has one).
        let size = if self.vendor_id == INTEL { 16 } else { self.subgroup.size };
        // Without the choice a device has one size, and workgroups are multiples of it.
        Ok(sizes.map(|s| size.clamp(s.min, s.max)))
    }
}

/// Everything that stands against a device.
pub(super) fn against(device: &Capabilities) -> Vec<String> {
    if !device.api.at_least(1, 2) {
        return vec![format!("Vulkan 1.2 is needed and this driver has {}", device.api)];
    }
    let mut out: Vec<String> =
        needed(&device.features).into_iter().filter_map(Result::err).map(|m| m.to_string()).collect();
    if !device.subgroup.in_compute {
        out.push("compute shaders have no subgroup operations".into());
    }
    out.extend(
        ["basic", "arithmetic", "ballot"]
            .iter()
            .filter(|op| !device.subgroup.ops.contains(op))
            .map(|op| format!("no {op} subgroup operations")),
    );
    if !device.queues.iter().any(|q| q.compute) {
        out.push("no queue takes compute work".into());
    }
    if device.subgroup.size < 4 {
        out.push(format!("subgroups of {}, 4 are needed", device.subgroup.size));
    }
    if device.limits.push_constants < 128 {
        out.push(format!("{} bytes of push constants, 128 are needed", device.limits.push_constants));
    }
    out
}

/// Kernels take 64-bit addresses, so integers of that size are as necessary as the addresses.
fn needed(features: &Features) -> [Support; 4] {
    [
        features.timeline.clone(),
        features.address.clone(),
        features.sync2.as_ref().map(|_| ()).map_err(Clone::clone),
        features.int64.clone(),
    ]
}

/// Whether the device offers a SPIR-V capability; numbers of the SPIR-V specification, section 3.31.
pub(super) fn spirv_capability(device: &Capabilities, number: u32) -> Support {
    let f = &device.features;
    let subgroup = |op: &'static str| {
        let there = device.subgroup.in_compute && device.subgroup.ops.contains(&op);
        there.then_some(()).ok_or_else(|| Missing::new(format!("{op} subgroup operations"), "the device has none"))
    };
    match number {
        // Shader, and storage classes that come with it.
        1 => Ok(()),
        9 => f.float16.clone(),
        11 => f.int64.clone(),
        22 => f.int16.clone(),
        39 => f.int8.clone(),
        61 => subgroup("basic"),
        62 => subgroup("vote"),
        63 => subgroup("arithmetic"),
        64 => subgroup("ballot"),
        65 => subgroup("shuffle"),
        66 => subgroup("shuffle-relative"),
        67 => subgroup("clustered"),
        68 => subgroup("quad"),
        4433 => f.storage16.clone(),
        4448 => f.storage8.clone(),
        5345 | 5346 => f.memory_model.clone(),
        5347 => f.address.clone(),
        6016..=6019 => f.dot_product.clone(),
        COOPERATIVE_MATRIX => f.cooperative_matrix.as_ref().map(|_| ()).map_err(Clone::clone),
        n => Err(Missing::new(format!("SPIR-V capability {n}"), "this program never enables it")),
    }
}
