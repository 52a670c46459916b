//! Faults on purpose: how a session ends when a device does.

use crate::vk::{self, Answer, Buffer, BufferDesc, Deadline, HostTimeline, Kind, Replay, Scope, Usage};
use std::time::Duration;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The device is gone.
    Lost,
    /// A submit is refused for want of memory.
    Submit,
    /// An allocation is refused.
    Memory,
    /// Work waits for something that never comes.
    Stuck,
}

/// A fault in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    pub step: u32,
}

impl Fault {
    /// `lost@3` and the like.
    pub fn parse(text: &str) -> Option<Fault> {
        let (kind, step) = text.split_once('@')?;
        let kind = match kind {
            "lost" => FaultKind::Lost,
            "submit" => FaultKind::Submit,
            "memory" => FaultKind::Memory,
            "stuck" => FaultKind::Stuck,
            _ => return None,
        };
        Some(Fault { kind, step: step.parse().ok()? })
    }

    /// Brings the fault about. No call can make a driver lose its device or run out of memory, so what it would answer is
    /// put in its place, at the call that would get the answer; a stuck timeline is real.
    pub fn strike(self, device: &vk::Device, submitted: &mut u64) -> Result<(), vk::Error> {
        let queue = device.compute()?;
        match self.kind {
            FaultKind::Lost => {
                device.inject(Answer::Lost);
                Ok(())
            }
            FaultKind::Submit => {
                device.inject(Answer::OutOfMemory);
                Ok(())
            }
            FaultKind::Memory => {
                device.inject(Answer::OutOfMemory);
                let desc = BufferDesc { label: "injected", size: 256, usage: Usage::STORAGE, kind: Kind::DeviceLocal };
                Buffer::new(device, &desc).map(|_| ())
            }
            FaultKind::Stuck => {
                let never = HostTimeline::new(device, "injected")?;
                never.promise(1);
                let mut r = queue.recorder("injected", Replay::Once)?;
                r.barrier(Scope::SHADER, Scope::SHADER);
                *submitted += 1;
                queue.submit(&[&r.finish()?], &[never.at(1)], *submitted)?;
                let waited = queue.wait(*submitted, Deadline::still(Duration::from_millis(300)));
                // Released, so that the device can be taken down in order.
                never.signal(1)?;
                waited
            }
        }
    }
}
