//! Whole models on a Vulkan device under the validation layer. One process, so that one canary vouches for all.
//!
//! Without a driver these tests say so and pass; `COLI_REQUIRE_VULKAN=1` (set by tests/run.sh and CI) makes a missing
//! driver or layer a failure. `COLI_VULKAN_DEVICE=N` picks a device, `COLI_VALIDATION=off` is for hardware without the layer,
//! `COLI_VALIDATION=gpu` for a GPU-assisted run.

#[path = "../common/mod.rs"]
mod common;
#[path = "../suite/support.rs"]
mod support;

mod bits;
mod caches;
mod device;
mod greedy;
mod grouped;
mod kernels;
mod models;
mod random;
mod report;
