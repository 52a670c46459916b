//! Shared by the integration tests: the fixtures and a small safetensors reader and writer.

// Every integration test compiles this module for itself and uses only a part of it.
#![allow(dead_code)]

pub mod fixture;
pub mod generate;
pub mod safetensors;
