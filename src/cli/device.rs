//! Which device runs: what the user asked for, and what there is.

use super::failure::Failure;
use crate::formats::activation::Activations;
use crate::plan::place::{Place, Rule};
use crate::run::vulkan::{Fault, Options};
use crate::run::{Device, Model, Session, Sizes};
use crate::vk::{self, DeviceOptions, Instance, Validation};

/// What the user asked for; whether it can be had is decided when running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    Auto,
    Cpu,
    Oracle,
    Vulkan(Option<usize>),
}

pub fn parse_device(text: &str) -> Result<Choice, String> {
    match text {
        "auto" => Ok(Choice::Auto),
        "cpu" => Ok(Choice::Cpu),
        "oracle" => Ok(Choice::Oracle),
        "vulkan" => Ok(Choice::Vulkan(None)),
        t => match t.strip_prefix("vulkan:").map(str::parse) {
            Some(Ok(n)) => Ok(Choice::Vulkan(Some(n))),
            _ => Err("known devices: auto, cpu, oracle, vulkan, vulkan:N".into()),
        },
    }
}

/// `PATTERN=cpu` or `PATTERN=gpu`.
pub fn parse_rule(text: &str) -> Result<Rule, String> {
    let (pattern, place) = text.rsplit_once('=').ok_or("give PATTERN=cpu or PATTERN=gpu")?;
    let place = match place {
        "cpu" => Place::Cpu,
        "gpu" => Place::Gpu,
        other => return Err(format!("`{other}` is no place; give PATTERN=cpu or PATTERN=gpu")),
    };
    Ok(Rule { pattern: pattern.into(), place })
}

/// `lost@3`: what goes wrong, and in which step. Only debug builds inject faults.
pub fn parse_fault(text: &str) -> Result<Fault, String> {
    if !cfg!(debug_assertions) {
        return Err("only debug builds inject faults".into());
    }
    Fault::parse(text).ok_or_else(|| "give lost@STEP, submit@STEP, memory@STEP or stuck@STEP".into())
}

/// Opens a Vulkan device; without a number the best that is no processor.
pub fn open(number: Option<usize>) -> Result<vk::Device, Failure> {
    let opened = || -> Result<vk::Device, vk::Error> {
        let instance = Instance::new(Validation::Off)?;
        let devices = vk::list(&instance)?;
        let picked = vk::pick(&devices, number.map_or(vk::Choice::Auto, vk::Choice::Index))?;
        vk::Device::open(&instance, picked, DeviceOptions::default())
    };
    opened().map_err(|e| Failure::Device(e.to_string()))
}

/// `--place` with a device that has no other beside it.
pub fn nothing_to_choose() -> Failure {
    Failure::Usage("--place needs a Vulkan device to choose between it and the CPU".into())
}

/// A session on the host, and its name.
pub fn on_host(model: &Model, device: Device, sizes: Sizes, activations: Activations) -> (Session, String) {
    let name = match activations {
        Activations::F32 => device.name().to_string(),
        Activations::Int8 => format!("{}, int8 activations", device.name()),
    };
    (Session::with_activations(model, device, sizes, activations), name)
}

/// A session as asked for, and the name of its device. `Auto` takes the GPU if one can be used, else says why not and
/// takes the CPU. Activations must suit the choice ([`ActivationArgs::on`](super::args::ActivationArgs::on)).
pub fn session(
    model: &Model,
    choice: Choice,
    sizes: Sizes,
    activations: Activations,
    options: &Options,
) -> Result<(Session, String), Failure> {
    let on_host = |device: Device| on_host(model, device, sizes, activations);
    let number = match choice {
        Choice::Vulkan(n) => n,
        Choice::Auto => None,
        Choice::Cpu | Choice::Oracle if !options.rules.is_empty() => return Err(nothing_to_choose()),
        Choice::Cpu => return Ok(on_host(Device::Cpu)),
        Choice::Oracle => return Ok(on_host(Device::Oracle)),
    };
    let on_device = open(number).and_then(|device| {
        let name = device.capabilities().name.clone();
        let session = Session::on_vulkan(model, device, sizes, options)?;
        Ok((session, format!("vulkan ({name})")))
    });
    match (on_device, choice) {
        (Err(why), Choice::Auto) if options.rules.is_empty() && matches!(why.code(), 4 | 5) => {
            eprintln!("no GPU: {why}\nrunning on the CPU");
            Ok(on_host(Device::Cpu))
        }
        (done, _) => done,
    }
}
