//! Weights in device memory: one buffer a tensor, read by address.

use super::VulkanError;
use crate::formats;
use crate::graph::{Graph, WeightId};
use crate::plan::Plan;
use crate::plan::pass::{Push, Work};
use crate::vk::{self, Buffer, BufferDesc, Kind, Usage};
use crate::weights::Bound;
use std::collections::{BTreeMap, BTreeSet};

/// A matrix in device memory: codes, then scales from the next 16 bytes on.
struct Matrix {
    buffer: Buffer,
    scales: u64,
}

/// Everything that kernels reach by address.
pub struct DeviceWeights {
    matrices: BTreeMap<u32, Vec<Matrix>>,
    vectors: BTreeMap<u32, Buffer>,
    tables: BTreeMap<u32, Buffer>,
}

/// Bytes on their way to the device at once.
pub const STAGING: u64 = 32 << 20;

/// Bytes of device memory that the plans' weights take, without the rounding of allocations.
pub fn bytes(graph: &Graph, weights: &dyn Source, plans: &[&Plan]) -> u64 {
    let (matrices, vectors) = read_by(plans);
    let size = |m: &formats::Matrix| m.format().bytes(m.rows() as u64, m.cols() as u64);
    let matrix = |w: &u32| weights.matrices(WeightId(*w)).iter().map(|(_, m)| size(m)).sum::<u64>();
    let vector = |w: &u32| 4 * graph.weight(WeightId(*w)).need.shape.iter().product::<u64>();
    matrices.iter().map(matrix).sum::<u64>() + vectors.iter().map(vector).sum::<u64>()
}

/// Numbers of the matrices and of the vectors that plans read by address.
fn read_by(plans: &[&Plan]) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut matrices, mut vectors) = (BTreeSet::new(), BTreeSet::new());
    for push in plans.iter().flat_map(|p| &p.lowered.passes).flat_map(pushes) {
        match push {
            Push::Codes(w) | Push::Experts(w) => drop(matrices.insert(w.0)),
            Push::Vector(w) => drop(vectors.insert(w.0)),
            _ => {}
        }
    }
    (matrices, vectors)
}

/// Where the bytes of weights come from.
pub trait Source {
    /// Names and bytes of a weight's matrices, one per expert.
    fn matrices(&self, w: WeightId) -> Vec<(String, formats::Matrix<'_>)>;
    /// Name and values of a vector of `len` values.
    fn vector(&self, w: WeightId, len: usize) -> (String, Vec<f32>);
}

impl Source for Bound {
    fn matrices(&self, w: WeightId) -> Vec<(String, formats::Matrix<'_>)> {
        let tensors = (0..self.count(w.0 as usize)).map(|e| self.expert(w.0 as usize, e));
        tensors.map(|t| (t.name().to_string(), t.matrix())).collect()
    }

    fn vector(&self, w: WeightId, len: usize) -> (String, Vec<f32>) {
        let t = self.one(w.0 as usize);
        let mut values = crate::cpu::decode(t.matrix());
        values.truncate(len);
        (t.name().to_string(), values)
    }
}

impl DeviceWeights {
    /// Uploads what the plans' passes read, each weight once.
    pub fn upload(
        device: &vk::Device,
        graph: &Graph,
        weights: &dyn Source,
        plans: &[&Plan],
    ) -> Result<Self, VulkanError> {
        let mut up = Uploader::new(device)?;
        let mut out = Self { matrices: BTreeMap::new(), vectors: BTreeMap::new(), tables: BTreeMap::new() };
        for push in plans.iter().flat_map(|p| &p.lowered.passes).flat_map(pushes) {
            match push {
                Push::Codes(w) | Push::Experts(w) if !out.matrices.contains_key(&w.0) => {
                    let stored = weights.matrices(*w).into_iter();
                    let matrices = stored.map(|(name, matrix)| up.stored(&name, &matrix));
                    out.matrices.insert(w.0, matrices.collect::<Result<Vec<_>, _>>()?);
                }
                Push::Vector(w) if !out.vectors.contains_key(&w.0) => {
                    let len = graph.weight(*w).need.shape.iter().product::<u64>() as usize;
                    let (name, values) = weights.vector(*w, len);
                    out.vectors.insert(w.0, up.buffer(&name, bytemuck::cast_slice(&values))?);
                }
                _ => {}
            }
        }
        for push in plans.iter().flat_map(|p| &p.lowered.passes).flat_map(pushes) {
            if let Push::Experts(w) = push
                && !out.tables.contains_key(&w.0)
            {
                let mut words: Vec<u64> = vec![];
                for m in &out.matrices[&w.0] {
                    let at = m.buffer.address()?;
                    words.extend([at, at + m.scales]);
                }
                let label = format!("experts of weight {}", w.0);
                out.tables.insert(w.0, up.buffer(&label, bytemuck::cast_slice(&words))?);
            }
        }
        up.flush()?;
        Ok(out)
    }

    /// The 64-bit address that a push constant stands for.
    pub fn address(&self, push: &Push) -> Result<Option<u64>, vk::Error> {
        let matrix = |w: &WeightId| &self.matrices[&w.0][0];
        Ok(Some(match push {
            Push::Codes(w) => matrix(w).buffer.address()?,
            Push::Scales(w) => matrix(w).buffer.address()? + matrix(w).scales,
            Push::Vector(w) => self.vectors[&w.0].address()?,
            Push::Experts(w) => self.tables[&w.0].address()?,
            Push::NoAddress => 0,
            Push::U32(_) | Push::F32(_) => return Ok(None),
        }))
    }
}

fn pushes(pass: &crate::plan::pass::Pass) -> &[Push] {
    match &pass.work {
        Work::Dispatch(d) => &d.push,
        _ => &[],
    }
}

/// Copies through one staging buffer.
struct Uploader<'a> {
    device: &'a vk::Device,
    staging: Buffer,
    used: u64,
    copies: Vec<(u64, Buffer, u64, u64)>,
}

impl<'a> Uploader<'a> {
    fn new(device: &'a vk::Device) -> Result<Self, VulkanError> {
        let desc =
            BufferDesc { label: "weight staging", size: STAGING, usage: Usage::TRANSFER_SRC, kind: Kind::Upload };
        Ok(Self { device, staging: Buffer::new(device, &desc)?, used: 0, copies: vec![] })
    }

    /// Kernels read file order.
    fn stored(&mut self, name: &str, matrix: &formats::Matrix) -> Result<Matrix, VulkanError> {
        match matrix {
            formats::Matrix::Rows(view) => self.matrix(name, view.data, view.scales),
            formats::Matrix::Tiles(tiles) => {
                let (codes, factors) = tiles.untile();
                self.matrix(name, &codes, &factors)
            }
        }
    }

    fn matrix(&mut self, name: &str, codes: &[u8], factors: &[u8]) -> Result<Matrix, VulkanError> {
        let scales = (codes.len() as u64).next_multiple_of(16);
        let size = (scales + factors.len() as u64).next_multiple_of(16);
        let buffer = self.make(name, size)?;
        self.copy(&buffer, 0, codes)?;
        self.copy(&buffer, scales, factors)?;
        Ok(Matrix { buffer, scales })
    }

    fn buffer(&mut self, label: &str, bytes: &[u8]) -> Result<Buffer, VulkanError> {
        let buffer = self.make(label, (bytes.len() as u64).next_multiple_of(16))?;
        self.copy(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    fn make(&self, label: &str, size: u64) -> Result<Buffer, VulkanError> {
        let usage = Usage::ADDRESS | Usage::TRANSFER_DST;
        Ok(Buffer::new(self.device, &BufferDesc { label, size, usage, kind: Kind::DeviceLocal })?)
    }

    fn copy(&mut self, to: &Buffer, at: u64, bytes: &[u8]) -> Result<(), VulkanError> {
        let mut at = at;
        for part in bytes.chunks(STAGING as usize) {
            if self.used + part.len() as u64 > STAGING {
                self.flush()?;
            }
            self.staging.write(self.used, part)?;
            self.copies.push((self.used, to.clone(), at, part.len() as u64));
            self.used = (self.used + part.len() as u64).next_multiple_of(16);
            at += part.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), VulkanError> {
        if self.copies.is_empty() {
            return Ok(());
        }
        let queue = self.device.compute()?;
        let mut r = queue.recorder("weight upload", vk::Replay::Once)?;
        for (from, to, at, size) in self.copies.drain(..) {
            r.copy(&self.staging, from, &to, at, size);
        }
        r.barrier(vk::Scope::TRANSFER_WRITE, super::bind::everything());
        let value = queue.submitted() + 1;
        queue.submit(&[&r.finish()?], &[], value)?;
        queue.wait(value, self.device.deadline())?;
        self.used = 0;
        Ok(())
    }
}
