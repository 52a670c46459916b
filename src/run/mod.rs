//! Running a model: its files, its graph, its state.

mod choose;
pub mod cpu;
pub mod load;
mod lockstep;
pub mod session;
pub mod vulkan;

pub use load::{LoadError, Model, ModelSource};
pub use lockstep::{Compare, Lockstep};
pub use session::{Device, RunError, Session, Sizes, Want};
