//! `coli`: a render-graph engine for frontier mixture-of-experts language models.
//!
//! Modules in reading order; `docs/architecture.md` has the data flow, and a test holds the dependencies
//! to its table.

pub mod formats;
pub mod names;
pub mod spec;

pub mod ops;

pub mod graph;
pub mod weights;

pub mod convert;

pub mod oracle;

pub mod cpu;
pub mod vk;

pub mod plan;

pub mod run;
pub mod text;

pub mod cli;
