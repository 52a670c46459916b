//! Tests of whole models, of the command line and of the project's own rules. One binary, so that it links once.

#[path = "../common/mod.rs"]
mod common;

mod activations;
mod architecture;
mod caches;
mod cli;
mod compile;
mod convert;
mod demo;
mod diagnostics;
mod formats;
mod layout;
mod models;
mod plans;
mod random;
mod side_files;
mod stages;
mod support;
mod weights;
