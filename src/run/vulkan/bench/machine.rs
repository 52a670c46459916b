//! What a device does apart from any model: reading, copying, launching, multiplying.

use super::super::bind;
use super::BenchError;
use crate::vk::{
    self, Buffer, BufferDesc, Capture, Kind, PipelineDesc, Recorder, Replay, Scope, SetDesc, SetPool, Stages,
    Timestamps, Usage,
};
use std::time::Instant;

/// Bytes that [`read_gbps`] reads where nothing speaks against it.
pub const READ: u64 = 1 << 30;
/// Invocations of a workgroup.
const LOCAL: u32 = 256;
/// Bytes that a workgroup of the reading kernel reads.
const PIECE: u64 = 64 * LOCAL as u64 * 16;
/// Passes of a measurement, of which the best or the middle one counts.
const PASSES: u32 = 12;

fn buffer(device: &vk::Device, label: &str, size: u64, usage: Usage, kind: Kind) -> Result<Buffer, BenchError> {
    Ok(Buffer::new(device, &BufferDesc { label, size, usage, kind })?)
}

fn pipeline(device: &vk::Device, name: &str) -> Result<vk::Pipeline, BenchError> {
    let cache = vk::PipelineCache::open(device)?;
    let shader = vk::find(name)?;
    let constants = &[(0, LOCAL)];
    let desc = PipelineDesc { label: name, shader, constants, subgroup_size: None, capture: Capture::Nothing };
    Ok(vk::Pipeline::new(device, &cache, &desc)?)
}

/// Records each pass between two times, with barriers between passes, runs all, and returns their nanoseconds.
fn time(
    device: &vk::Device,
    label: &str,
    (passes, stage): (u32, Stages),
    prepare: impl FnOnce(&mut Recorder),
    record: impl Fn(&mut Recorder),
) -> Result<Vec<f64>, BenchError> {
    let times = Timestamps::new(device, label, 2 * passes)?;
    let queue = device.compute().map_err(vk::Error::from)?;
    let mut r = queue.recorder(label, Replay::Once)?;
    r.reset_timestamps(&times);
    prepare(&mut r);
    for pass in 0..passes {
        r.barrier(bind::everything(), bind::everything()).timestamp(&times, 2 * pass, stage);
        record(&mut r);
        r.timestamp(&times, 2 * pass + 1, stage);
    }
    r.barrier(bind::everything(), Scope::HOST_READ);
    let value = queue.submitted() + 1;
    queue.submit(&[&r.finish()?], &[], value)?;
    queue.wait(value, device.deadline())?;
    let mut out = vec![];
    for pass in 0..passes {
        out.extend(times.elapsed(2 * pass, 2 * pass + 1)?);
    }
    out.sort_by(f64::total_cmp);
    Ok(out)
}

/// The shortest of sorted times; endless where there is none.
fn best(times: &[f64]) -> f64 {
    times.first().copied().unwrap_or(f64::INFINITY)
}

/// Bandwidth of reading `bytes` of memory and nothing else, GB/s: the best of some passes, one after another.
pub fn read_gbps(device: &vk::Device, bytes: u64) -> Result<f64, BenchError> {
    let pipeline = pipeline(device, "bench_read")?;
    let groups = (bytes / PIECE).max(1);
    let bytes = groups * PIECE;
    let from = buffer(device, "read", bytes, Usage::ADDRESS | Usage::TRANSFER_DST, Kind::DeviceLocal)?;
    let to = buffer(device, "read result", 256, Usage::STORAGE, Kind::DeviceLocal)?;
    let layout = pipeline.set_layout(0)?;
    let ranges = [vk::BufferRange::whole(&to)];
    let sets = SetPool::exact(device, "read", &[SetDesc { label: "read", layout, ranges: &ranges }])?;
    let mut push = from.address()?.to_le_bytes().to_vec();
    push.extend(((PIECE / 16) as u32).to_le_bytes());
    push.resize(pipeline.shader().push_size as usize, 0);
    let fill = |r: &mut Recorder| {
        r.fill(&from, 0, bytes, 1).barrier(Scope::TRANSFER_WRITE, bind::everything());
        r.bind(&pipeline).set(0, &sets[0]).push(&push);
    };
    let times = time(device, "read", (PASSES, Stages::COMPUTE), fill, |r| {
        r.dispatch([groups as u32, 1, 1]);
    })?;
    Ok(bytes as f64 / best(&times))
}

/// GB/s of ways between host and device.
#[derive(Debug, Clone, Copy)]
pub struct Copies {
    /// The device copies from cached host memory to its own.
    pub to_device: f64,
    /// And back.
    pub to_host: f64,
    /// The device copies within its memory; each byte is read and written.
    pub within: f64,
    /// One thread of the host writes into upload memory.
    pub host_writes: f64,
    /// Whether that upload memory is the device's own.
    pub upload_is_device_memory: bool,
    /// One thread of the host reads cached memory that the device wrote.
    pub host_reads: f64,
}

/// Measures copies of `bytes` bytes.
pub fn copies(device: &vk::Device, bytes: u64) -> Result<Copies, BenchError> {
    let both = Usage::TRANSFER_SRC | Usage::TRANSFER_DST;
    let host = buffer(device, "host", bytes, both, Kind::Readback)?;
    let upload = buffer(device, "upload", bytes, both, Kind::Upload)?;
    let [a, b] = ["a", "b"].map(|label| buffer(device, label, bytes, both, Kind::DeviceLocal));
    let (a, b) = (a?, b?);
    let values = vec![1u32; (bytes / 4) as usize];
    let gbps = |ns: f64| bytes as f64 / ns;
    let timed = |work: &dyn Fn() -> Result<(), BenchError>| -> Result<f64, BenchError> {
        let mut best = f64::INFINITY;
        for _ in 0..4 {
            let start = Instant::now();
            work()?;
            best = best.min(start.elapsed().as_secs_f64() * 1e9);
        }
        Ok(gbps(best))
    };
    let host_writes = timed(&|| Ok(upload.write(0, &values)?))?;
    // Pages of host memory that nobody has touched would be made during the copy.
    host.write(0, &values)?;
    let copy = |label, from: &Buffer, to: &Buffer| -> Result<f64, BenchError> {
        let times = time(
            device,
            label,
            (PASSES / 2, Stages::TRANSFER),
            |_| {},
            |r| {
                r.copy(from, 0, to, 0, bytes);
            },
        )?;
        Ok(gbps(best(&times)))
    };
    let to_device = copy("copy to the device", &host, &a)?;
    let within = copy("copy within the device", &a, &b)?;
    let to_host = copy("copy to the host", &b, &host)?;
    let host_reads = timed(&|| {
        std::hint::black_box(host.read::<u32>(0, values.len())?);
        Ok(())
    })?;
    let upload_is_device_memory = upload.is_device_local();
    Ok(Copies { to_device, to_host, within, host_writes, upload_is_device_memory, host_reads })
}

/// Runs `groups` workgroups, `chain` times behind one another, each of `rounds` rounds of dependent multiply-adds: the
/// nanoseconds of the whole chain, the middle of some runs.
fn alu(device: &vk::Device, groups: u32, chain: u32, rounds: u32) -> Result<f64, BenchError> {
    let pipeline = pipeline(device, "bench_alu")?;
    let to = buffer(device, "alu result", u64::from(LOCAL) * 4, Usage::STORAGE, Kind::DeviceLocal)?;
    let layout = pipeline.set_layout(0)?;
    let ranges = [vk::BufferRange::whole(&to)];
    let sets = SetPool::exact(device, "alu", &[SetDesc { label: "alu", layout, ranges: &ranges }])?;
    let mut push = rounds.to_le_bytes().to_vec();
    // Keeps values finite, whatever they start from.
    push.extend([0.5f32, 1.0].iter().flat_map(|x| x.to_le_bytes()));
    let bind = |r: &mut Recorder| {
        r.bind(&pipeline).set(0, &sets[0]).push(&push);
    };
    let times = time(device, "alu", (5, Stages::COMPUTE), bind, |r| {
        for i in 0..chain {
            if i > 0 {
                r.barrier(Scope::SHADER, Scope::SHADER);
            }
            r.dispatch([groups, 1, 1]);
        }
    })?;
    Ok(times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY))
}

/// What it costs to have work done.
#[derive(Debug, Clone, Copy)]
pub struct Launches {
    /// Microseconds of a dispatch of one workgroup that does nothing, and the barrier behind it.
    pub dispatch_us: f64,
    /// Microseconds on the host from a submit of such a dispatch to the end of the wait for it.
    pub submit_us: f64,
}

/// Dispatches in the chain of [`launches`].
pub const CHAIN: u32 = 256;

/// Measures a chain of tiny dispatches, and submits of one.
pub fn launches(device: &vk::Device) -> Result<Launches, BenchError> {
    let dispatch_us = alu(device, 1, CHAIN, 0)? / 1e3 / f64::from(CHAIN);
    let queue = device.compute().map_err(vk::Error::from)?;
    let mut waits = vec![];
    for _ in 0..21 {
        let mut r = queue.recorder("empty", Replay::Once)?;
        r.barrier(bind::everything(), bind::everything());
        let (work, value) = (r.finish()?, queue.submitted() + 1);
        let start = Instant::now();
        queue.submit(&[&work], &[], value)?;
        queue.wait(value, device.deadline())?;
        waits.push(start.elapsed().as_secs_f64() * 1e6);
    }
    waits.sort_by(f64::total_cmp);
    Ok(Launches { dispatch_us, submit_us: waits[waits.len() / 2] })
}

/// Speed of f32 multiply-adds.
#[derive(Debug, Clone, Copy)]
pub struct Arithmetic {
    /// Nanoseconds from one to the next that needs its result, in one workgroup on an otherwise idle device.
    pub dependent_ns: f64,
    /// Multiply-adds per nanosecond of the whole device.
    pub per_ns: f64,
}

/// Multiply-adds of a round, as in the shader.
const ROUND: f64 = 32.0;

/// The rounds at which `groups` workgroups take about `ns` nanoseconds, and what another round takes.
fn slope(device: &vk::Device, groups: u32, ns: f64) -> Result<f64, BenchError> {
    let mut rounds = 16;
    let mut took = alu(device, groups, 1, rounds)?;
    while took < ns && rounds < 1 << 18 {
        rounds *= 4;
        took = alu(device, groups, 1, rounds)?;
    }
    // The difference leaves out the launch.
    let short = alu(device, groups, 1, rounds / 2)?;
    Ok((took - short).max(0.0) / f64::from(rounds - rounds / 2))
}

/// Measures chains of dependent multiply-adds.
pub fn arithmetic(device: &vk::Device) -> Result<Arithmetic, BenchError> {
    // Enough for every unit of any device; a processor has few, and would take long.
    let groups = if device.capabilities().kind == vk::DeviceKind::Cpu { 64 } else { 8192 };
    const NS: f64 = 2e6;
    let alone = slope(device, 1, NS)?;
    let all = slope(device, groups, NS)?;
    let done = f64::from(groups) * f64::from(LOCAL) * ROUND;
    Ok(Arithmetic { dependent_ns: alone / ROUND, per_ns: done / all.max(1e-9) })
}
