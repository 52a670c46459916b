//! Shared by the integration tests: fixtures, a small safetensors reader and writer, weights in stored formats, random graphs.

// Every integration test compiles this module for itself and uses only a part of it.
#![allow(dead_code)]

pub mod caches;
pub mod fixture;
pub mod generate;
pub mod random_graph;
pub mod safetensors;
pub mod stored;
