//! Choosing a device.

use super::capabilities::{Capabilities, DeviceKind};
use super::error::{Error, Result};
use std::cmp::Reverse;

/// Which device to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The best that computes in hardware: a processor's driver is only ever used by its number.
    #[default]
    Auto,
    /// The one with this number.
    Index(usize),
}

/// Chooses among the devices of [`list`](super::list). The error says what there is, and what stands against each.
pub fn pick(devices: &[Capabilities], choice: Choice) -> Result<&Capabilities> {
    match choice {
        Choice::Auto => devices
            .iter()
            .filter(|d| d.usable.is_ok() && d.kind != DeviceKind::Cpu && !d.is_null_hardware())
            .max_by_key(|d| (rank(d.kind), device_memory(d), Reverse(d.index)))
            .ok_or_else(|| Error::NoDevice { found: devices.iter().map(describe).collect() }),
        Choice::Index(index) => {
            let found = || devices.iter().map(describe).collect();
            let refuse = |reason: String| Error::NoSuchDevice { index, reason, found: found() };
            let device = devices.iter().find(|d| d.index == index);
            let device = device.ok_or_else(|| refuse("there is none of that number".into()))?;
            device.usable.as_ref().map(|()| device).map_err(|against| refuse(against.join(", ")))
        }
    }
}

fn rank(kind: DeviceKind) -> u32 {
    match kind {
        DeviceKind::Discrete => 3,
        DeviceKind::Integrated => 2,
        DeviceKind::Virtual => 1,
        DeviceKind::Cpu | DeviceKind::Other => 0,
    }
}

fn device_memory(device: &Capabilities) -> u64 {
    device.memory.heaps.iter().filter(|h| h.device_local).map(|h| h.size).max().unwrap_or(0)
}

fn describe(device: &Capabilities) -> String {
    let verdict = match (&device.usable, device.kind) {
        (Err(against), _) => against.join(", "),
        (Ok(()), DeviceKind::Cpu) => "computes on the processor; used only when asked for by its number".into(),
        (Ok(()), _) if device.is_null_hardware() => "compiles and computes nothing".into(),
        (Ok(()), _) => "usable".into(),
    };
    format!("{} {} ({verdict})", device.index, device.name)
}
