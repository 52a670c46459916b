//! A graph to a plan: what runs where and when, in which bytes, behind which barriers.
//!
//! [`compile`](compile::compile) is the list of steps: [`place`] decides GPU or CPU for every node, [`lower`] makes
//! passes and fuses, [`schedule`] finds segments and levels, [`memory`] places transients by lifetime, [`barrier`]
//! derives barriers, and [`prove`] replays the finished plan and refuses it if any conflict is unordered. [`summary`] and
//! [`text`] count what a graph costs before any device is known.
//!
//! Invariant: no Vulkan type appears here. A graph and the formats of its weights are enough, so plans are
//! printed, compared and proven on machines without a GPU.

pub mod barrier;
pub mod compile;
pub mod draw;
pub mod lower;
pub mod memory;
pub mod pass;
pub mod place;
pub mod print;
pub mod prove;
pub mod schedule;
pub mod summary;
pub mod text;
pub mod tuning;

pub use crate::graph::Role;
pub use compile::{Plan, PlanError, compile};
pub use lower::{Matrices, Shape};
pub use summary::{Summary, summarize};
pub use tuning::Tuning;
