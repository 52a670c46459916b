//! Values that cross between the device and the host.

use super::super::pass::{Buf, Pass, Work};
use super::Lower;
use super::pending::{Repr, View};
use crate::graph::Node;
use crate::ops::{ResourceId, Type};
use petgraph::graph::NodeIndex;

impl Lower<'_> {
    /// A CPU node: what it reads from the device is copied back, what it makes may be copied up later.
    pub fn cpu(&mut self, index: NodeIndex, node: &Node) {
        let mut reads = vec![];
        for id in &node.inputs {
            if let Some(buf) = self.bring_back(*id) {
                reads.push(buf);
            }
        }
        let work = Work::Cpu { node: index, reads, writes: vec![] };
        self.out.passes.push(Pass { name: node.path(), layer: node.layer, nodes: vec![index], work, ending: None });
    }

    /// The readback buffer of a device value; None if the host made it, or keeps it.
    fn bring_back(&mut self, id: ResourceId) -> Option<Buf> {
        if let Some(n) = self.on_host[id.0 as usize] {
            return Some(Buf::Readback(n));
        }
        if !self.made_on_gpu(id) || matches!(self.ty(id), Type::Tokens | Type::Stack { .. } | Type::Cache { .. }) {
            return None;
        }
        Some(Buf::Readback(self.download(id)))
    }

    /// Copies a value to host memory.
    pub fn download(&mut self, id: ResourceId) -> u32 {
        if let Some(n) = self.on_host[id.0 as usize] {
            return n;
        }
        let view = self.dense_rows(id);
        let bytes = 4 * u64::from(self.width(id)) * u64::from(self.shape.rows);
        let n = self.out.readbacks.len() as u32;
        self.out.readbacks.push(bytes);
        self.out.readback_of.push(id);
        self.on_host[id.0 as usize] = Some(n);
        self.copy(id, view.buf, Buf::Readback(n), bytes);
        n
    }

    /// Brings back everything that passes left in a transient. What CPU nodes made the host has already.
    pub fn download_all(&mut self) {
        for n in 0..self.reprs.len() {
            let id = ResourceId(n as u32);
            let left = matches!(self.reprs[n], Repr::View(_)) && !matches!(self.ty(id), Type::Scores { .. });
            if left && self.made_on_gpu(id) {
                self.download(id);
            }
        }
    }

    pub fn made_on_gpu(&self, id: ResourceId) -> bool {
        self.graph.resource(id).producer.is_some_and(|p| self.placed[p.index()].place == super::Place::Gpu)
    }

    /// Rows that lie densely from the start of their buffer, as most kernels read them.
    pub fn dense_rows(&mut self, id: ResourceId) -> View {
        let v = self.flat(id);
        if v.stride == self.width(id) && v.off == 0 { v } else { self.repack(id, v) }
    }

    pub fn repack(&mut self, id: ResourceId, v: View) -> View {
        let Some(producer) = self.graph.resource(id).producer else { unreachable!("a tensor has a producer") };
        let y = self.dense(id);
        let width = self.width(id);
        self.emit_binary(producer, [v, v, y], width, 7, [0.0; 2]);
        self.reprs[id.0 as usize] = Repr::View(y);
        y
    }

    /// Brings a value that a CPU node made to the device.
    pub fn upload(&mut self, id: ResourceId) -> View {
        let view = self.dense(id);
        let bytes = 4 * u64::from(self.width(id)) * u64::from(self.shape.rows);
        let n = self.out.uploads.len() as u32;
        self.out.uploads.push(bytes);
        self.out.upload_of.push(id);
        let producer: Option<NodeIndex> = self.graph.resource(id).producer;
        for pass in self.out.passes.iter_mut().rev() {
            if let Work::Cpu { node, writes, .. } = &mut pass.work
                && Some(*node) == producer
            {
                writes.push(Buf::Upload(n));
                break;
            }
        }
        self.copy(id, Buf::Upload(n), view.buf, bytes);
        view
    }

    fn copy(&mut self, id: ResourceId, from: Buf, to: Buf, bytes: u64) {
        let producer = self.graph.resource(id).producer;
        let (name, layer) = producer.map_or((String::new(), None), |p| (self.node(p).path(), self.node(p).layer));
        let way = if matches!(to, Buf::Readback(_)) { "to host" } else { "to device" };
        let work = Work::Copy { from, to, bytes };
        self.out.passes.push(Pass { name: format!("{name} {way}"), layer, nodes: vec![], work, ending: self.ending });
    }
}
