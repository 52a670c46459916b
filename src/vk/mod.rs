//! The Vulkan layer: instances, devices, buffers, pipelines, descriptor sets, command buffers, timelines.
//!
//! It knows Vulkan objects and nothing of tensors, graphs or plans. Its types leave no way to the mistakes that cost
//! earlier engines weeks:
//!
//! - A descriptor set is written once, when it is allocated, from a pool of exactly that size ([`SetPool`]).
//! - A command buffer is a [`Recorder`] until [`Recorder::finish`] makes it an [`Executable`], and only that can be
//!   submitted.
//! - Waiting for a value that nothing was submitted for is an error, and no wait is without an end ([`Queue::wait`]).
//! - Dropping anything while the device may use it defers its destruction until every queue is past that point.
//! - What a device cannot do is a [`Missing`] with a reason, never a flag that somebody forgets to ask.
//! - The memory type of every allocation is chosen here, and checked ([`Kind`]).
//!
//! Weights are read through device addresses, which Vulkan cannot follow: keep such buffers alive with
//! [`Recorder::keep`]. Everything else that a command buffer uses it keeps alive by itself.

mod access;
mod breadcrumbs;
mod budget;
mod capabilities;
mod commands;
mod core;
mod descriptors;
mod device;
mod enable;
mod error;
mod instance;
mod memory;
mod memory_types;
mod messages;
mod needs;
mod pick;
mod pipeline;
mod pipeline_cache;
mod probe;
mod queue;
mod shader;
mod statistics;
mod timeline;
mod timestamps;

#[cfg(test)]
mod tests;

pub use access::{Access, Scope, Stages};
pub use budget::{HeapState, Need};
pub use capabilities::{
    Bar, Capabilities, CooperativeMatrix, DeviceKind, Features, FloatControls, Heap, Limits, MemoryLayout, MemoryType,
    QueueFamily, Subgroup, SubgroupSizes, Sync2, Timestamps as TimestampSupport, Version,
};
pub use commands::{Executable, Recorder, Replay};
pub use descriptors::{BufferRange, Set, SetDesc, SetLayout, SetPool};
pub use device::{Answer, Device, DeviceOptions};
pub use error::{Error, Missing, Result, Support};
pub use instance::{Instance, Validation};
pub use memory::{Buffer, BufferDesc, Usage};
pub use memory_types::Kind;
pub use messages::{Message, Messages, Severity};
pub use pick::{Choice, pick};
pub use pipeline::{Capture, Pipeline, PipelineDesc};
pub use pipeline_cache::PipelineCache;
pub use probe::list;
pub use queue::Queue;
pub use shader::{Binding, Declared, SHADERS, Shader, find};
pub use statistics::{ExecutableStatistics, Statistic};
pub use timeline::{Deadline, HostTimeline, Wait};
pub use timestamps::Timestamps;
