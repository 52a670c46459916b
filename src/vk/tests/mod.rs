//! Tests on whatever device there is, under validation where the layer is installed.
//!
//! `COLI_REQUIRE_VULKAN=1` makes a missing driver a failure, `COLI_REQUIRE_VALIDATION=1` a missing layer;
//! `COLI_TEST_DEVICE=n` names the device.

mod argmax;
mod chain;
mod commands;
mod devices;
mod halves;
mod lifetimes;
mod memory;
mod pipelines;
mod waits;

use super::*;
use std::sync::Arc;

/// An open device for a test.
struct Bench {
    device: Device,
    cache: PipelineCache,
    messages: Arc<Messages>,
    validated: bool,
}

fn required(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|v| v == "1")
}

/// An instance under validation if that can be had, or nothing where no driver is.
fn instance(validation: Validation) -> Option<(Instance, bool)> {
    match Instance::new(validation) {
        Ok(instance) => Some((instance, validation != Validation::Off)),
        Err(error @ (Error::NoLoader { .. } | Error::NoDriver)) => {
            assert!(!required("COLI_REQUIRE_VULKAN"), "{error}");
            eprintln!("skipped: {error}");
            None
        }
        Err(error @ Error::Missing(_)) => {
            assert!(!required("COLI_REQUIRE_VALIDATION"), "{error}");
            eprintln!("without validation: {error}");
            instance(Validation::Off)
        }
        Err(error) => panic!("{error}"),
    }
}

/// The device that the tests use: the processor's will do.
fn choose(devices: &[Capabilities]) -> Option<&Capabilities> {
    let wanted = std::env::var("COLI_TEST_DEVICE").ok().map(|n| Choice::Index(n.parse().unwrap()));
    if let Some(wanted) = wanted {
        return Some(pick(devices, wanted).unwrap());
    }
    pick(devices, Choice::Auto).ok().or_else(|| devices.iter().find(|d| d.usable.is_ok()))
}

fn bench_with(validation: Validation, options: DeviceOptions) -> Option<Bench> {
    let (instance, validated) = instance(validation)?;
    let devices = list(&instance).unwrap();
    let Some(chosen) = choose(&devices) else {
        assert!(!required("COLI_REQUIRE_VULKAN"), "no device can be used: {:?}", pick(&devices, Choice::Auto));
        return None;
    };
    if chosen.is_null_hardware() {
        eprintln!("skipped: {} runs nothing", chosen.name);
        return None;
    }
    let device = Device::open(&instance, chosen, options).unwrap();
    let cache = PipelineCache::in_memory(&device).unwrap();
    Some(Bench { device, cache, messages: instance.messages().clone(), validated })
}

fn bench() -> Option<Bench> {
    bench_with(Validation::Sync, DeviceOptions { block_mib: 4, ..DeviceOptions::default() })
}

impl Bench {
    fn compute(&self) -> &Queue {
        self.device.compute().unwrap()
    }

    fn buffer(&self, label: &str, bytes: u64, kind: Kind) -> Buffer {
        let usage = Usage::all();
        Buffer::new(&self.device, &BufferDesc { label, size: bytes, usage, kind }).unwrap()
    }

    fn pipeline(&self, name: &str, constants: &[(u32, u32)]) -> Pipeline {
        let desc = PipelineDesc {
            label: name,
            shader: find(name).unwrap(),
            constants,
            subgroup_size: None,
            capture: Capture::Nothing,
        };
        Pipeline::new(&self.device, &self.cache, &desc).unwrap()
    }

    /// One set for each pair of source and target.
    fn sets(&self, pipeline: &Pipeline, pairs: &[[&Buffer; 2]]) -> Vec<Set> {
        let ranges: Vec<_> = pairs.iter().map(|pair| pair.map(BufferRange::whole)).collect();
        let layout = pipeline.set_layout(0).unwrap();
        let desc = |ranges| SetDesc { label: "pair", layout, ranges };
        SetPool::exact(&self.device, "pairs", &ranges.iter().map(|r| desc(r)).collect::<Vec<_>>()).unwrap()
    }

    /// Submits, and waits for the end.
    fn run(&self, work: &[&Executable]) {
        let queue = self.compute();
        let value = queue.submitted() + 1;
        queue.submit(work, &[], value).unwrap();
        queue.wait(value, self.device.deadline()).unwrap();
    }

    /// Ends the device and fails if anything was said that nobody expected.
    fn finish(self) {
        let messages = self.messages.clone();
        drop(self);
        silent(&messages);
    }
}

/// Fails if the layer said anything.
fn silent(messages: &Messages) {
    let said: Vec<String> = messages.take().iter().map(ToString::to_string).collect();
    assert!(said.is_empty(), "{} messages:\n{}", said.len(), said.join("\n"));
}
