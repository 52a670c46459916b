//! What a step gives the host: logits, or the ids of the highest ones.

use super::super::pass::{Bind, Buf, Count, Dispatch, Ending, Pass, Push, Work};
use super::Lower;
use super::pending::Repr;
use petgraph::graph::NodeIndex;

/// Numbers of the readback buffers that a step may end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Results {
    /// The logits, `[outputs, vocab]` f32.
    pub logits: u32,
    /// `[outputs]` of (key, id), as `argmax.comp` leaves them.
    pub tokens: u32,
}

impl Results {
    pub fn readback(self, ending: Ending) -> Buf {
        match ending {
            Ending::Logits => Buf::Readback(self.logits),
            Ending::Tokens => Buf::Readback(self.tokens),
        }
    }
}

/// Threads of `argmax.comp`, and the values that they share: few enough for a vocabulary to fill a device, enough for the
/// second pass to be one workgroup's.
const ARGMAX: u32 = 256;
const STRETCH: u32 = 2048;

impl Lower<'_> {
    /// The logits' readback buffer; None if a CPU node makes them.
    pub fn logits(&mut self) -> Option<u32> {
        let id = self.graph.logits;
        if !self.made_on_gpu(id) {
            return None;
        }
        // Both endings read these rows: only the copy belongs to one.
        self.dense_rows(id);
        self.ending = Some(Ending::Logits);
        let readback = self.download(id);
        self.ending = None;
        Some(readback)
    }

    /// Readback buffer of the highest logits' ids: found in stretches of a row, then among those.
    pub fn tokens(&mut self) -> u32 {
        self.ending = Some(Ending::Tokens);
        let id = self.graph.logits;
        let (Repr::View(logits), Some(node)) = (self.reprs[id.0 as usize].clone(), self.graph.resource(id).producer)
        else {
            unreachable!("rows of logits were made on the device")
        };
        let vocab = self.width(id);
        let parts = vocab.div_ceil(STRETCH);
        let mut found = logits.buf;
        if parts > 1 {
            found = self.argmax(node, "token of stretches", (found, vocab), 0);
            found = self.argmax(node, "token", (found, parts), 1);
        } else {
            found = self.argmax(node, "token", (found, vocab), 0);
        }
        let bytes = 8 * u64::from(self.shape.rows);
        let readback = self.out.readbacks.len() as u32;
        self.out.readbacks.push(bytes);
        let name = format!("{} token to host", self.node(node).path());
        let work = Work::Copy { from: found, to: Buf::Readback(readback), bytes };
        let layer = self.node(node).layer;
        self.out.passes.push(Pass { name, layer, nodes: vec![], work, ending: self.ending });
        self.ending = None;
        readback
    }

    /// The highest of each stretch of rows of `n`; `found` as the kernel has it.
    fn argmax(&mut self, node: NodeIndex, what: &str, (x, n): (Buf, u32), found: u32) -> Buf {
        // What an earlier pass found is few enough for one workgroup.
        let stretch = if found == 1 { n } else { STRETCH };
        let parts = n.div_ceil(stretch);
        let y = self.transient(format!("{} {what}", self.node(node).path()), 2 * parts);
        let dispatch = Dispatch {
            kernel: "argmax",
            variant: None,
            spec: vec![ARGMAX, found],
            push: vec![Push::U32(n), Push::U32(stretch)],
            set0: vec![Bind::read(x), Bind::write(y)],
            set1: vec![],
            groups: (Count::Fixed(parts), Count::Outputs(1)),
            bytes: 4 * u64::from(n),
        };
        self.emit_part(node, what, dispatch);
        y
    }
}
