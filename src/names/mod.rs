//! Names that people type: patterns, and the nearest of the known ones.

pub mod glob;
pub mod near;
