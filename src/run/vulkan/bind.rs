//! A plan bound to a device: buffers, sets, pipelines, and command buffers that are recorded once and replayed.

use super::params::{self, MAX_ROWS};
use super::values;
use super::weights::DeviceWeights;
use super::{Options, VulkanError, too_large};
use crate::graph::{Graph, Step, Value, Watch};
use crate::ops::{RowDim, Type};
use crate::plan::compile::{Instr, Memory, resolve};
use crate::plan::pass::{Bind, Buf, Count, Dispatch, Ending, Push, Stages as PlanStages, Work};
use crate::plan::{Matrices, Plan, Tuning};
use crate::vk::{
    self, Buffer, BufferDesc, BufferRange, Capture, Declared, Executable, Kind, Pipeline, PipelineDesc, Queue,
    Recorder, Replay, Scope, Set, SetDesc, SetPool, Stages, Timestamps, Usage,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Compute, copies and indirect arguments, read and written.
pub fn everything() -> Scope {
    Scope::SHADER.and(Scope::TRANSFER_READ).and(Scope::TRANSFER_WRITE).and(Scope::INDIRECT)
}

/// A plan's stages as a scope of memory accesses.
fn scope(stages: PlanStages, source: bool) -> Scope {
    let mut out: Option<Scope> = None;
    let mut add = |s: Scope| out = Some(out.map_or(s, |o| o.and(s)));
    if stages.has(PlanStages::COMPUTE) {
        add(Scope::SHADER);
    }
    if stages.has(PlanStages::TRANSFER) {
        add(if source { Scope::TRANSFER_WRITE } else { Scope::TRANSFER_READ.and(Scope::TRANSFER_WRITE) });
    }
    if stages.has(PlanStages::HOST) {
        add(Scope::HOST_READ);
    }
    out.unwrap_or(everything())
}

/// Fills buffers with zeros.
pub fn zero<'a>(device: &vk::Device, buffers: impl Iterator<Item = &'a Buffer>) -> Result<(), vk::Error> {
    let queue = device.compute()?;
    let mut r = queue.recorder("clear", Replay::Once)?;
    let mut any = false;
    for b in buffers {
        r.fill(b, 0, b.size() / 4 * 4, 0);
        any = true;
    }
    r.barrier(Scope::TRANSFER_WRITE, everything());
    let done = r.finish()?;
    if !any {
        return Ok(());
    }
    let value = queue.submitted() + 1;
    queue.submit(&[&done], &[], value)?;
    queue.wait(value, device.deadline())
}

/// The key by which `argmax.comp` says that a logit is not finite.
const NOT_FINITE: u32 = u32::MAX;

/// A plan, ready to run.
pub struct BoundPlan {
    pub plan: Plan,
    /// The command buffers of each submit batch.
    batches: Vec<Vec<Part>>,
    /// Two times a pass, where wanted: before and after it.
    pub times: Option<Timestamps>,
    buffers: Buffers,
    /// Overwrite transients before each step.
    poison: bool,
}

/// Commands of all steps, or of those that end in one way.
struct Part {
    ending: Option<Ending>,
    commands: Executable,
}

struct Buffers {
    params: Buffer,
    ropes: Vec<Buffer>,
    arena: Buffer,
    dummy: Buffer,
    uploads: Vec<Buffer>,
    readbacks: Vec<Buffer>,
    states: Vec<Option<Buffer>>,
}

/// Pipelines by shader and constants.
pub type Pipelines = HashMap<(String, Vec<u32>), Pipeline>;

/// The descriptor sets of each pass, with their numbers.
type Sets = HashMap<usize, Vec<(u32, Set)>>;

/// What a plan is bound to.
#[derive(Clone, Copy)]
pub struct On<'a> {
    pub device: &'a vk::Device,
    pub pipelines: &'a Pipelines,
    pub weights: &'a DeviceWeights,
    pub states: &'a [Option<Buffer>],
}

impl BoundPlan {
    pub fn new(on: On, plan: Plan, options: &Options) -> Result<Self, VulkanError> {
        let count = 2 * plan.lowered.passes.len() as u32;
        let times = if options.timed { Some(Timestamps::new(on.device, "passes", count)?) } else { None };
        let buffers = Buffers::new(on.device, &plan, on.states)?;
        zero(on.device, [&buffers.dummy, &buffers.arena].into_iter())?;
        let sets = sets(on, &plan, &buffers)?;
        let poison = options.debug || cfg!(debug_assertions);
        let mut bound = Self { plan, batches: vec![], times, buffers, poison };
        bound.batches = bound.record(on, &sets, options.debug)?;
        Ok(bound)
    }

    /// The command buffers of a batch, for steps with this ending.
    pub fn commands(&self, batch: usize, ending: Ending) -> impl Iterator<Item = &Executable> {
        let wanted = move |p: &&Part| p.ending.is_none_or(|e| e == ending);
        self.batches[batch].iter().filter(wanted).map(|p| &p.commands)
    }

    /// The command buffers of each batch. `crumbs` behind every pass name the one that hangs, and order it.
    fn record(&self, on: On, sets: &Sets, crumbs: bool) -> Result<Vec<Vec<Part>>, VulkanError> {
        let plan = &self.plan;
        let (mut batches, mut parts) = (vec![], vec![]);
        let (mut recorder, mut ending): (Option<Recorder>, Option<Ending>) = (None, None);
        let mut passed = String::new();
        let queue = on.device.compute()?;
        for instr in &plan.instrs {
            // Where a part ends stands how far the step has come, should it never end.
            if let Some(mut r) = recorder.take_if(|_| matches!(instr, Instr::For(_) | Instr::Submit(_))) {
                r.breadcrumb(&passed);
                parts.push(Part { ending, commands: r.finish()? });
            }
            match (*instr, recorder.as_mut()) {
                (Instr::Begin(b), _) => {
                    ending = None;
                    recorder = Some(queue.recorder(&format!("{:?} batch {b}", plan.role), Replay::Many)?);
                }
                (Instr::For(next), _) => {
                    ending = Some(next);
                    recorder = Some(queue.recorder(&format!("{:?} {}", plan.role, next.name()), Replay::Many)?);
                }
                (Instr::Barrier(n), Some(r)) => {
                    let s = plan.barriers[n].scope;
                    r.barrier(scope(s.src, true), scope(s.dst, false));
                }
                (Instr::Pass(p), Some(r)) => {
                    self.stamp(r, p, 2 * p);
                    self.pass(r, on, p, sets)?;
                    self.stamp(r, p, 2 * p + 1);
                    passed.clone_from(&plan.lowered.passes[p].name);
                    if crumbs {
                        r.breadcrumb(&passed);
                    }
                }
                (Instr::Submit(_), _) => batches.push(std::mem::take(&mut parts)),
                _ => {}
            }
        }
        Ok(batches)
    }

    /// Writes a time of a pass, in the stage that the pass runs in: Vulkan takes one stage a time.
    fn stamp(&self, r: &mut Recorder, pass: usize, at: usize) {
        if let Some(t) = &self.times {
            let copies = matches!(self.plan.lowered.passes[pass].work, Work::Copy { .. });
            r.timestamp(t, at as u32, if copies { Stages::TRANSFER } else { Stages::COMPUTE });
        }
    }

    fn pass(&self, r: &mut Recorder, on: On, pass: usize, sets: &Sets) -> Result<(), VulkanError> {
        let p = &self.plan.lowered.passes[pass];
        match &p.work {
            Work::Dispatch(d) => {
                let pipeline = &on.pipelines[&key(d)];
                r.begin_label(&p.name).bind(pipeline);
                for (number, set) in sets.get(&pass).into_iter().flatten() {
                    r.set(*number, set);
                }
                r.push(&push_bytes(d, on.weights, pipeline.shader(), &p.name)?);
                match (d.groups, self.plan.counts.binary_search(&d.groups)) {
                    ((Count::Fixed(x), Count::Fixed(y)), _) => r.dispatch([x, y, 1]),
                    (_, Ok(n)) => r.dispatch_indirect(&self.buffers.params, params::count_offset(n)),
                    (_, Err(_)) => unreachable!("the plan lists the workgroup counts of its passes"),
                };
                r.end_label();
            }
            Work::Copy { from, to, bytes } => {
                let range = |buf: &Buf| self.buffers.range(&self.plan, *buf);
                let (from, to) = (range(from)?, range(to)?);
                r.copy(&from.buffer, from.offset, &to.buffer, to.offset, *bytes);
            }
            Work::Cpu { .. } => unreachable!("the prover keeps CPU nodes out of batches"),
        }
        Ok(())
    }

    /// The command buffer that rewrites the step's parameters, between barriers of its own. `number` counts steps; the
    /// ids below `among` may be chosen by a step that ends with tokens.
    pub fn record_params(&self, queue: &Queue, step: &Step, number: u32, among: u32) -> Result<Executable, vk::Error> {
        let words = params::words(step, &self.plan.counts, number, among);
        let mut r = queue.recorder("parameters", Replay::Once)?;
        if let Some(t) = &self.times {
            r.reset_timestamps(t);
        }
        r.barrier(everything(), everything());
        if self.poison {
            // As f32 it is no number, as an index it is out of every range: who reads what nobody wrote is found.
            r.fill(&self.buffers.arena, 0, self.buffers.arena.size() / 4 * 4, u32::MAX);
        }
        r.update(&self.buffers.params, 0, bytemuck::cast_slice(&words));
        for (buffer, freq) in self.buffers.ropes.iter().zip(&self.plan.lowered.ropes) {
            r.update(buffer, 0, bytemuck::cast_slice(&params::rotations(step, freq)));
        }
        r.barrier(Scope::TRANSFER_WRITE, everything());
        r.finish()
    }

    /// Name and kind of something that the host does.
    pub fn named(&self, instr: Instr) -> (String, &'static str) {
        match instr {
            Instr::Cpu { pass, .. } => {
                (self.plan.lowered.passes[pass].name.clone(), "CPU node, and the wait before it")
            }
            Instr::Submit(b) => (format!("submit {b}"), "submit"),
            _ => ("wait".into(), "wait"),
        }
    }

    /// A value that has been copied back.
    pub fn read(&self, graph: &Graph, readback: u32, step: &Step) -> Result<Value, VulkanError> {
        let id = self.plan.lowered.readback_of[readback as usize];
        let resource = graph.resource(id);
        let crossing = || VulkanError::Crossing(resource.name.clone());
        let rows = match resource.ty {
            Type::Tensor { rows: RowDim::Outputs, .. } => step.outputs().len(),
            _ => step.rows().len(),
        };
        let width = values::width(&resource.ty).ok_or_else(crossing)?;
        let words = self.buffers.readbacks[readback as usize].read::<u32>(0, rows * width)?;
        let value = values::from_words(&resource.ty, &words).ok_or_else(crossing)?;
        // Of rows that see something, this is what `topk.comp` makes of scores that are no numbers.
        if let (Type::Selection { every, .. }, Value::Selection(rows)) = (&resource.ty, &value)
            && rows.iter().zip(step.rows()).any(|(s, r)| s.is_empty() && r.visible_rows(*every as usize) > 0)
        {
            let (node, weight) =
                (resource.name.clone(), format!(", by scores that are no numbers{}", too_large(self.plan.shape.kv)));
            return Err(VulkanError::NonFinite { node, weight });
        }
        Ok(value)
    }

    /// The id of the highest logit of each output; None if a logit of one is not finite.
    pub fn chosen(&self, readback: u32, step: &Step) -> Result<Option<Vec<u32>>, VulkanError> {
        let found = self.buffers.readbacks[readback as usize].read::<[u32; 2]>(0, step.outputs().len())?;
        Ok(found.into_iter().map(|[key, id]| (key != NOT_FINITE).then_some(id)).collect())
    }

    /// Puts a CPU node's value where a copy will fetch it.
    pub fn write(&self, graph: &Graph, upload: u32, value: &Value) -> Result<(), VulkanError> {
        let resource = graph.resource(self.plan.lowered.upload_of[upload as usize]);
        let words =
            values::to_words(&resource.ty, value).ok_or_else(|| VulkanError::Crossing(resource.name.clone()))?;
        Ok(self.buffers.uploads[upload as usize].write(0, &words)?)
    }

    /// Shows what passes made, if the plan brings it back.
    pub fn observed(&self, graph: &Graph, step: &Step, watch: &mut Watch) -> Result<(), VulkanError> {
        if !self.plan.shape.observe {
            return Ok(());
        }
        for (n, id) in self.plan.lowered.readback_of.iter().enumerate() {
            if let Some(producer) = graph.resource(*id).producer {
                watch(&graph.dag[producer], &self.read(graph, n as u32, step)?);
            }
        }
        Ok(())
    }
}

impl Buffers {
    fn new(device: &vk::Device, plan: &Plan, states: &[Option<Buffer>]) -> Result<Self, vk::Error> {
        let make = |label: &str, size: u64, usage, kind| {
            Buffer::new(device, &BufferDesc { label, size: size.max(256), usage, kind })
        };
        let device_usage = Usage::STORAGE | Usage::TRANSFER_SRC | Usage::TRANSFER_DST;
        let role = plan.role;
        let params = make("parameters", params::BYTES, device_usage | Usage::INDIRECT, Kind::DeviceLocal)?;
        let mut ropes = vec![];
        for freq in &plan.lowered.ropes {
            let bytes = 8 * freq.len() as u64 * u64::from(MAX_ROWS.min(plan.shape.rows));
            ropes.push(make("rotations", bytes, device_usage, Kind::DeviceLocal)?);
        }
        let staged = |sizes: &[u64], label: &str, usage, kind| -> Result<Vec<Buffer>, vk::Error> {
            sizes.iter().enumerate().map(|(i, s)| make(&format!("{role:?} {label} {i}"), *s, usage, kind)).collect()
        };
        Ok(Self {
            params,
            ropes,
            arena: make(&format!("{role:?} arena"), plan.arena, device_usage, Kind::DeviceLocal)?,
            dummy: make("unused binding", 256, device_usage, Kind::DeviceLocal)?,
            uploads: staged(&plan.lowered.uploads, "upload", Usage::TRANSFER_SRC, Kind::Upload)?,
            readbacks: staged(&plan.lowered.readbacks, "readback", Usage::TRANSFER_DST, Kind::Readback)?,
            states: states.to_vec(),
        })
    }

    /// The exact bytes behind a plan's buffer.
    fn range(&self, plan: &Plan, buf: Buf) -> Result<BufferRange, VulkanError> {
        let (memory, bytes) = resolve(&plan.slots, buf);
        Ok(match memory {
            Memory::Arena => {
                BufferRange { buffer: self.arena.clone(), offset: bytes.start, size: bytes.end - bytes.start }
            }
            Memory::State(s) => match &self.states[s as usize] {
                Some(b) => BufferRange::whole(b),
                None => return Err(VulkanError::Crossing(format!("state {s}"))),
            },
            Memory::Params => BufferRange::whole(&self.params),
            Memory::Rope(n) => BufferRange::whole(&self.ropes[n as usize]),
            Memory::Upload(n) => BufferRange::whole(&self.uploads[n as usize]),
            Memory::Readback(n) => BufferRange::whole(&self.readbacks[n as usize]),
            Memory::Dummy => BufferRange::whole(&self.dummy),
        })
    }
}

fn dispatches(plan: &Plan) -> impl Iterator<Item = (usize, &Dispatch)> {
    plan.lowered.passes.iter().enumerate().filter_map(|(i, p)| match &p.work {
        Work::Dispatch(d) => Some((i, d)),
        _ => None,
    })
}

/// Every pipeline that some plans use, through the cache on disk; with `plain` by kernels that do without dot products of bytes.
pub fn pipelines(device: &vk::Device, plans: &[&Plan], plain: bool) -> Result<Pipelines, vk::Error> {
    let cache = vk::PipelineCache::open(device)?;
    let mut out = Pipelines::new();
    for (_, d) in plans.iter().flat_map(|p| dispatches(p)) {
        if let Entry::Vacant(slot) = out.entry(key(d)) {
            slot.insert(pipeline(device, &cache, d, plain)?);
        }
    }
    // A cache that cannot be written costs time at the next start, nothing else.
    let _ = cache.save();
    Ok(out)
}

fn key(d: &Dispatch) -> (String, Vec<u32>) {
    (d.shader(), d.spec.clone())
}

/// The cooperative matrices that plans for a device may use.
pub fn matrices(device: &vk::Device) -> Option<Matrices> {
    device.capabilities().matrices().ok().map(|(subgroup, side)| Matrices { subgroup, side })
}

/// How plans for a device share products out.
pub fn tuning(device: &vk::Device) -> Tuning {
    let found = device.capabilities();
    Tuning::of(found.vendor_id, found.subgroup.size)
}

fn pipeline(device: &vk::Device, cache: &vk::PipelineCache, d: &Dispatch, plain: bool) -> Result<Pipeline, vk::Error> {
    let mut shader = vk::find(&d.shader())?;
    if plain || device.capabilities().features.dot_product.is_err() {
        shader = shader.plain()?;
    }
    let constants = shader.constants(&d.spec);
    let label = format!("{}{:?}", shader.name, d.spec);
    let subgroup_size = device.capabilities().subgroup_of(shader)?;
    let desc = PipelineDesc { label: &label, shader, constants: &constants, subgroup_size, capture: Capture::Nothing };
    Pipeline::new(device, cache, &desc)
}

/// Both sets of every dispatch, in pass order.
fn sets(on: On, plan: &Plan, buffers: &Buffers) -> Result<Sets, VulkanError> {
    let mut wanted = vec![];
    for (i, d) in dispatches(plan) {
        let pipeline = &on.pipelines[&key(d)];
        let params = std::iter::once(Bind::read(Buf::Params));
        let sets: [Vec<Bind>; 2] = [params.chain(d.set0.iter().copied()).collect(), d.set1.clone()];
        agree(pipeline.shader(), &sets, &plan.lowered.passes[i].name)?;
        for (number, binds) in sets.iter().enumerate() {
            let Ok(layout) = pipeline.set_layout(number as u32) else { continue };
            if layout.bindings().is_empty() {
                continue;
            }
            let mut ranges = vec![];
            for binding in layout.bindings() {
                ranges.push(buffers.range(plan, binds[*binding as usize].buf)?);
            }
            let label = format!("{} set {number}", plan.lowered.passes[i].name);
            wanted.push((i, number as u32, label, layout, ranges));
        }
    }
    let descs: Vec<SetDesc> =
        wanted.iter().map(|(_, _, label, layout, ranges)| SetDesc { label, layout, ranges }).collect();
    let made = SetPool::exact(on.device, &format!("{:?} sets", plan.role), &descs)?;
    let mut out = Sets::new();
    for ((i, number, ..), set) in wanted.iter().zip(made) {
        out.entry(*i).or_default().push((*number, set));
    }
    Ok(out)
}

/// The prover orders what the plan says a pass writes; that must be what the kernel was compiled to write.
fn agree(shader: &vk::Shader, sets: &[Vec<Bind>; 2], pass: &str) -> Result<(), VulkanError> {
    for b in shader.bindings {
        let bind = sets.get(b.set as usize).and_then(|s| s.get(b.binding as usize));
        if bind.is_none_or(|bind| bind.write == (b.access == Declared::Read)) {
            let (pass, shader) = (pass.to_string(), shader.name);
            return Err(VulkanError::Interface { pass, shader, set: b.set, binding: b.binding });
        }
    }
    Ok(())
}

/// The block of push constants; its size in the shader is rounded up to the alignment of its members.
fn push_bytes(d: &Dispatch, weights: &DeviceWeights, shader: &vk::Shader, pass: &str) -> Result<Vec<u8>, VulkanError> {
    let mut bytes = vec![];
    for push in &d.push {
        match push {
            Push::U32(n) => bytes.extend(n.to_le_bytes()),
            Push::F32(x) => bytes.extend(x.to_le_bytes()),
            address => bytes.extend(weights.address(address)?.unwrap_or(0).to_le_bytes()),
        }
    }
    let (given, taken) = (bytes.len(), shader.push_size as usize);
    if taken != given && taken != given.next_multiple_of(8) {
        return Err(VulkanError::Constants { pass: pass.into(), shader: shader.name, given, taken });
    }
    bytes.resize(taken, 0);
    Ok(bytes)
}
