//! The kernels that the build embedded, and what it found out about their interfaces.

use super::error::{Error, Result};

/// A compiled kernel.
#[derive(Debug)]
pub struct Shader {
    /// `linear` or `linear.bf16`.
    pub name: &'static str,
    /// The module.
    pub spirv: &'static [u32],
    /// Storage buffers, ordered by set and binding.
    pub bindings: &'static [Binding],
    /// Bytes of push constants, at most 128.
    pub push_size: u32,
    /// Ids of the specialisation constants, ordered.
    pub spec_ids: &'static [u32],
    /// Numbers of the SPIR-V capabilities that the device must offer.
    pub capabilities: &'static [u32],
    /// Workgroup size as compiled.
    pub local_size: [u32; 3],
    /// The specialisation constants that set the workgroup size.
    pub local_size_ids: [Option<u32>; 3],
}

impl Shader {
    /// The constants of a list that starts at number 0, as a pipeline takes them. Kernels of one family share a list:
    /// zero turns a feature off, also one that a kernel never has. Any other value for such a one stays, to be refused.
    pub fn constants(&self, spec: &[u32]) -> Vec<(u32, u32)> {
        let wanted = |(id, v): &(u32, u32)| *v != 0 || self.spec_ids.contains(id);
        (0..).zip(spec.iter().copied()).filter(wanted).collect()
    }

    /// Whether it makes dot products of bytes, whose digits invocations exchange within their subgroup, which must be full.
    pub fn exchanges_digits(&self) -> bool {
        self.capabilities.contains(&DOT_PRODUCT)
    }

    /// The name that plans know it by, whether it makes dot products of bytes or does without.
    pub fn planned_name(&self) -> &'static str {
        self.name.trim_end_matches(PLAIN)
    }

    /// What computes the same without dot products of bytes; itself if it makes none.
    pub fn plain(&'static self) -> Result<&'static Shader> {
        if self.exchanges_digits() { find(&format!("{}{PLAIN}", self.name)) } else { Ok(self) }
    }

    /// Whether it multiplies cooperative matrices, so that its subgroups must be full and of the size its constants say.
    pub fn multiplies_matrices(&self) -> bool {
        self.capabilities.contains(&COOPERATIVE_MATRIX)
    }
}

/// What the names of kernels end with that do without dot products.
const PLAIN: &str = ".plain";

/// Number of SPIR-V's `DotProduct`.
const DOT_PRODUCT: u32 = 6019;

/// Number of SPIR-V's `CooperativeMatrixKHR`.
pub(super) const COOPERATIVE_MATRIX: u32 = 6022;

/// A storage buffer of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// Descriptor set.
    pub set: u32,
    /// Binding in the set.
    pub binding: u32,
    /// What the kernel declares to do with it.
    pub access: Declared,
}

/// `readonly`, `writeonly` or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// `readonly`.
    Read,
    /// `writeonly`.
    Write,
    /// Both.
    ReadWrite,
}

/// The kernel of a name.
pub fn find(name: &str) -> Result<&'static Shader> {
    let at = SHADERS.binary_search_by(|s| s.name.cmp(name));
    at.map(|i| &SHADERS[i]).map_err(|_| Error::invalid("find", name, "no kernel of this name was built"))
}

/// SPIR-V is read in words, and `include_bytes` alone promises no alignment.
#[allow(dead_code, reason = "used by no kernel while there is none")]
#[repr(C, align(4))]
struct Aligned<T>(T);

#[allow(dead_code, reason = "as above")]
const fn words<const N: usize>(code: &'static Aligned<[u8; N]>) -> &'static [u32] {
    assert!(N.is_multiple_of(4));
    // SAFETY: `Aligned` puts the bytes on a four-byte boundary, there are N of them, and any bits are a u32.
    unsafe { std::slice::from_raw_parts(code.0.as_ptr().cast::<u32>(), N / 4) }
}

include!(concat!(env!("OUT_DIR"), "/shaders.rs"));
