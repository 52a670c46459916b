//! What a graph costs, before any device is known: sizes, state, transients, bytes per token.
//!
//! [`summary`] counts, [`memory`] places transients by lifetime, [`text`] prints. Nothing here knows a
//! device or a tensor's bytes: a graph and the formats of its weights are enough.

pub mod memory;
pub mod summary;
pub mod text;

pub use summary::{Summary, summarize};
