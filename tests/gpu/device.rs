//! The device that the tests use, and the watch over validation messages.

use coli::vk::{self, Buffer, BufferDesc, Device, DeviceOptions, Instance, Kind, Replay, Usage, Validation};
use std::sync::{Mutex, MutexGuard, OnceLock};

pub struct Gpu {
    pub instance: Instance,
    pub device: Device,
}

/// Tests take turns: messages are counted per test.
static TURN: Mutex<()> = Mutex::new(());
static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
/// GPU-assisted validation does not survive the end of the process with a device open, so each test has its own.
fn assisted() -> bool {
    std::env::var("COLI_VALIDATION").is_ok_and(|v| v == "gpu")
}

fn required() -> bool {
    std::env::var_os("COLI_REQUIRE_VULKAN").is_some_and(|v| v == "1")
}

fn open() -> Result<Gpu, vk::Error> {
    let validation = match std::env::var("COLI_VALIDATION").as_deref() {
        Ok("off") => Validation::Off,
        Ok("gpu") => Validation::GpuAssisted,
        _ => Validation::Sync,
    };
    let instance = Instance::new(validation)?;
    let device = device(&instance)?;
    let found = device.capabilities();
    println!("device: {} ({})", found.name, found.driver);
    let gpu = Gpu { instance, device };
    if validation == Validation::Sync {
        canary(&gpu)?;
    }
    Ok(gpu)
}

fn device(instance: &Instance) -> Result<Device, vk::Error> {
    let devices = vk::list(instance)?;
    let number = std::env::var("COLI_VULKAN_DEVICE").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    Device::open(instance, vk::pick(&devices, vk::Choice::Index(number))?, DeviceOptions::default())
}

impl Gpu {
    /// The same device once more, to be spoilt.
    pub fn another(&self) -> Device {
        let told = self.instance.messages().take();
        assert!(told.is_empty(), "{told:#?}");
        let opened = device(&self.instance).unwrap_or_else(|e| panic!("{e}"));
        if assisted() {
            // What the layer changed in the device's limits for itself.
            self.instance.messages().take();
        }
        opened
    }
}

/// A copy that reads what a fill wrote, with nothing between: silence about everything else counts only if this is
/// reported.
fn canary(gpu: &Gpu) -> Result<(), vk::Error> {
    let usage = Usage::TRANSFER_SRC | Usage::TRANSFER_DST;
    let desc = BufferDesc { label: "canary", size: 256, usage, kind: Kind::DeviceLocal };
    let (from, to) = (Buffer::new(&gpu.device, &desc)?, Buffer::new(&gpu.device, &desc)?);
    let queue = gpu.device.compute()?;
    let mut r = queue.recorder("canary", Replay::Once)?;
    r.fill(&from, 0, 256, 1).copy(&from, 0, &to, 0, 256);
    let value = queue.submitted() + 1;
    queue.submit(&[&r.finish()?], &[], value)?;
    queue.wait(value, gpu.device.deadline())?;
    let told = gpu.instance.messages().take();
    let hazard = told.iter().any(|m| m.id.contains("SYNC-HAZARD-READ-AFTER-WRITE"));
    assert!(hazard, "the layer does not report the planted hazard, so its silence means nothing: {told:?}");
    println!("canary: the planted hazard is reported");
    Ok(())
}

fn opened() -> Option<Gpu> {
    match open() {
        Ok(gpu) => Some(gpu),
        Err(e) if required() => panic!("COLI_REQUIRE_VULKAN is set, but {e}"),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

/// Runs a test on the device and fails on any message of the validation layer.
pub fn with(test: impl FnOnce(&Gpu)) {
    let _turn: MutexGuard<()> = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let own;
    let gpu = if assisted() {
        own = opened();
        own.as_ref()
    } else {
        GPU.get_or_init(opened).as_ref()
    };
    let Some(gpu) = gpu else { return };
    gpu.instance.messages().take();
    test(gpu);
    let messages = gpu.instance.messages().take();
    assert!(messages.is_empty(), "{} validation messages, the first: {:#?}", messages.len(), messages[0]);
}
