//! The device that the tests use, and the watch over validation messages.

use coli::vk::{self, Device, DeviceOptions, Instance, Validation};
use std::sync::{Mutex, MutexGuard, OnceLock};

pub struct Gpu {
    pub instance: Instance,
    pub device: Device,
}

/// Tests take turns: messages are counted per test.
static TURN: Mutex<()> = Mutex::new(());
static GPU: OnceLock<Option<Gpu>> = OnceLock::new();

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
    let devices = vk::list(&instance)?;
    let number = std::env::var("COLI_VULKAN_DEVICE").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let picked = vk::pick(&devices, vk::Choice::Index(number))?;
    println!("device: {} ({})", picked.name, picked.driver);
    let device = Device::open(&instance, picked, DeviceOptions::default())?;
    Ok(Gpu { instance, device })
}

/// Runs a test on the device and fails on any message of the validation layer.
pub fn with(test: impl FnOnce(&Gpu)) {
    let _turn: MutexGuard<()> = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let gpu = GPU.get_or_init(|| match open() {
        Ok(gpu) => Some(gpu),
        Err(e) if required() => panic!("COLI_REQUIRE_VULKAN is set, but {e}"),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    });
    let Some(gpu) = gpu else { return };
    gpu.instance.messages().take();
    test(gpu);
    let messages = gpu.instance.messages().take();
    assert!(messages.is_empty(), "{} validation messages, the first: {:#?}", messages.len(), messages[0]);
}
