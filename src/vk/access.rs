//! Pipeline stages and memory accesses, as far as compute work has them.

use ash::vk;
use bitflags::bitflags;

bitflags! {
    /// Where in the device's pipeline something happens.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Stages: u32 {
        /// Compute shaders.
        const COMPUTE = 1;
        /// Copies, fills and buffer updates.
        const TRANSFER = 2;
        /// Reading the arguments of an indirect dispatch.
        const INDIRECT = 4;
        /// Reads and writes of mapped memory.
        const HOST = 8;
    }
}

bitflags! {
    /// How memory is touched.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// A shader reads a storage buffer, bound or by address.
        const SHADER_READ = 1;
        /// A shader writes a storage buffer.
        const SHADER_WRITE = 2;
        /// A copy reads.
        const TRANSFER_READ = 4;
        /// A copy, fill or update writes.
        const TRANSFER_WRITE = 8;
        /// An indirect dispatch reads its arguments.
        const INDIRECT_READ = 16;
        /// The host reads mapped memory.
        const HOST_READ = 32;
        /// The host writes mapped memory.
        const HOST_WRITE = 64;
    }
}

/// One side of a barrier. With no access it orders execution only, which is enough after reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The stages that wait or are waited for.
    pub stages: Stages,
    /// The accesses made visible or available.
    pub access: Access,
}

impl Scope {
    /// A shader's reads.
    pub const SHADER_READ: Self = Self { stages: Stages::COMPUTE, access: Access::SHADER_READ };
    /// A shader's writes.
    pub const SHADER_WRITE: Self = Self { stages: Stages::COMPUTE, access: Access::SHADER_WRITE };
    /// A shader's reads and writes.
    pub const SHADER: Self = Self { stages: Stages::COMPUTE, access: Access::SHADER_READ.union(Access::SHADER_WRITE) };
    /// The source of a copy.
    pub const TRANSFER_READ: Self = Self { stages: Stages::TRANSFER, access: Access::TRANSFER_READ };
    /// The target of a copy, fill or update.
    pub const TRANSFER_WRITE: Self = Self { stages: Stages::TRANSFER, access: Access::TRANSFER_WRITE };
    /// The arguments of an indirect dispatch.
    pub const INDIRECT: Self = Self { stages: Stages::INDIRECT, access: Access::INDIRECT_READ };
    /// The host reading results.
    pub const HOST_READ: Self = Self { stages: Stages::HOST, access: Access::HOST_READ };

    /// Both scopes at once.
    pub const fn and(self, other: Self) -> Self {
        Self { stages: self.stages.union(other.stages), access: self.access.union(other.access) }
    }
}

impl Stages {
    pub(crate) fn raw(self) -> vk::PipelineStageFlags2 {
        let table = [
            (Self::COMPUTE, vk::PipelineStageFlags2::COMPUTE_SHADER),
            (Self::TRANSFER, vk::PipelineStageFlags2::ALL_TRANSFER),
            (Self::INDIRECT, vk::PipelineStageFlags2::DRAW_INDIRECT),
            (Self::HOST, vk::PipelineStageFlags2::HOST),
        ];
        table
            .iter()
            .filter(|(ours, _)| self.contains(*ours))
            .map(|(_, theirs)| *theirs)
            .fold(Default::default(), |a, b| a | b)
    }
}

impl Access {
    pub(crate) fn raw(self) -> vk::AccessFlags2 {
        let table = [
            (Self::SHADER_READ, vk::AccessFlags2::SHADER_STORAGE_READ),
            (Self::SHADER_WRITE, vk::AccessFlags2::SHADER_STORAGE_WRITE),
            (Self::TRANSFER_READ, vk::AccessFlags2::TRANSFER_READ),
            (Self::TRANSFER_WRITE, vk::AccessFlags2::TRANSFER_WRITE),
            (Self::INDIRECT_READ, vk::AccessFlags2::INDIRECT_COMMAND_READ),
            (Self::HOST_READ, vk::AccessFlags2::HOST_READ),
            (Self::HOST_WRITE, vk::AccessFlags2::HOST_WRITE),
        ];
        table
            .iter()
            .filter(|(ours, _)| self.contains(*ours))
            .map(|(_, theirs)| *theirs)
            .fold(Default::default(), |a, b| a | b)
    }
}
