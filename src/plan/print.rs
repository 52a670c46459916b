//! A compiled plan as a person reads it: its snapshot form.

use super::compile::{Cause, Figures, Hazard, Instr, Plan};
use super::lower::UNUSED;
use super::pass::{Buf, Count, Pass, Stages, Work};
use super::place::Place;
use super::text::bytes;
use crate::graph::{Graph, LayerKind};
use crate::ops::Kv;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} dispatches in {} stages, {} barriers, {} submits, {} joins with {} CPU nodes",
            self.dispatches, self.stages, self.barriers, self.submits, self.joins, self.cpu_nodes
        )
    }
}

impl Plan {
    /// Figures, then every pass of one layer of each kind and of what lies outside the layers.
    pub fn text(&self, graph: &Graph) -> String {
        let mut out = String::new();
        let f = self.figures();
        let _ = writeln!(out, "{:?} plan: {f}", self.role);
        let _ = writeln!(
            out,
            "arena {} for {} of transients, steps of up to {} rows, context {}{}",
            bytes(f.arena_bytes),
            bytes(f.transient_bytes),
            self.shape.rows,
            self.shape.ctx,
            if self.shape.kv == Kv::F32 { String::new() } else { format!(", caches of {}", self.shape.kv.name()) }
        );
        self.cpu_reasons(graph, &mut out);
        for kind in &graph.kinds {
            self.kind(kind, &mut out);
        }
        let _ = writeln!(out, "outside the layers");
        self.passes(None, &mut out);
        out
    }

    /// Why nodes run on the CPU, by operator and reason.
    fn cpu_reasons(&self, graph: &Graph, out: &mut String) {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, placed) in graph.nodes().zip(&self.placed).filter(|(_, p)| p.place == Place::Cpu) {
            *reasons.entry(placed.why.as_deref().unwrap_or("")).or_default() += 1;
        }
        // A reason that names a node would be listed once per layer; the first of each sort stands for all.
        let mut sorts: BTreeMap<String, (usize, &str)> = BTreeMap::new();
        for (why, n) in reasons {
            let sort: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
            sorts.entry(sort).or_insert((0, why)).0 += n;
        }
        for (n, why) in sorts.into_values() {
            let _ = writeln!(out, "{n:5} nodes on the CPU: {why}");
        }
    }

    fn kind(&self, kind: &LayerKind, out: &mut String) {
        // The first layers also hold what crosses from outside; a later one is typical.
        let layer = kind.layers[kind.layers.len() / 2];
        let stages: BTreeSet<u32> = self
            .ordered()
            .filter(|(_, p)| p.layer == Some(layer) && p.on_gpu())
            .map(|(i, _)| self.schedule.rank[i])
            .collect();
        let n = kind.layers.len();
        let plural = if n == 1 { "" } else { "s" };
        let _ =
            writeln!(out, "{n} layer{plural} of {}: {} stages; layer {layer}", kind.blocks.join(" + "), stages.len());
        self.passes(Some(layer), out);
    }

    fn ordered(&self) -> impl Iterator<Item = (usize, &Pass)> {
        self.schedule.order.iter().map(|i| (*i, &self.lowered.passes[*i]))
    }

    fn passes(&self, layer: Option<u32>, out: &mut String) {
        let barriers = self.barrier_before();
        let mut last = None;
        for (i, pass) in self.ordered().filter(|(_, p)| p.layer == layer) {
            if last != Some(self.schedule.rank[i]) {
                for b in barriers.get(&self.schedule.rank[i]).into_iter().flatten() {
                    let _ = writeln!(out, "    barrier {}", self.barrier_text(*b));
                }
            }
            last = Some(self.schedule.rank[i]);
            let _ = writeln!(out, "  {}", self.pass_text(pass));
        }
    }

    /// Barriers by the time rank of the first pass behind them.
    fn barrier_before(&self) -> BTreeMap<u32, Vec<usize>> {
        let mut out: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut waiting = vec![];
        for instr in &self.instrs {
            match instr {
                Instr::Barrier(b) => waiting.push(*b),
                // A barrier to the host at the end of a step has nothing behind it.
                Instr::For(_) => waiting.retain(|b| self.barriers[*b].scope.dst != Stages::HOST),
                Instr::Pass(p) if !waiting.is_empty() => {
                    out.entry(self.schedule.rank[*p]).or_default().append(&mut waiting);
                }
                _ => {}
            }
        }
        out
    }

    fn barrier_text(&self, b: usize) -> String {
        let barrier = &self.barriers[b];
        let short = |p: usize| {
            let name = &self.lowered.passes[p].name;
            name.split_once('.').map_or(name.clone(), |(_, rest)| rest.to_string())
        };
        let cause = |c: &Cause| match c.hazard {
            Hazard::ReadAfterWrite => format!("{} reads {}", short(c.later), short(c.earlier)),
            Hazard::WriteAfterRead => format!("{} reuses bytes read by {}", short(c.later), short(c.earlier)),
            Hazard::WriteAfterWrite => format!("{} reuses bytes of {}", short(c.later), short(c.earlier)),
            Hazard::HostRead => format!("the host reads {}", short(c.earlier)),
        };
        let mut causes: Vec<String> = barrier.causes.iter().map(cause).collect();
        causes.dedup();
        let more = causes.len().saturating_sub(4);
        causes.truncate(4);
        let tail = if more > 0 { format!("; {more} more") } else { String::new() };
        format!("{} -> {}: {}{tail}", barrier.scope.src, barrier.scope.dst, causes.join("; "))
    }

    fn pass_text(&self, pass: &Pass) -> String {
        let fused = pass.nodes.len().saturating_sub(1);
        let mut plus = if fused > 0 { format!(" (+{fused} nodes)") } else { String::new() };
        if let Some(ending) = pass.ending {
            let _ = write!(plus, ", for {}", ending.name());
        }
        match &pass.work {
            Work::Dispatch(d) => {
                let (x, y) = d.groups;
                let mut binds = d.set0.iter().chain(&d.set1);
                let written = binds.find(|b| b.write && !self.unused(b.buf));
                let write = written.map_or(String::new(), |b| self.buffer(b.buf));
                format!("{:<24} {:<18} {} x {} -> {write}{plus}", pass.name, d.shader(), count(x), count(y))
            }
            Work::Copy { bytes: n, .. } => format!("{:<24} copy {} a step{plus}", pass.name, bytes(*n)),
            Work::Cpu { .. } => format!("{:<24} on the CPU", pass.name),
        }
    }

    /// A stand-in for a binding that a kernel declares and a specialisation leaves alone.
    fn unused(&self, buf: Buf) -> bool {
        matches!(buf, Buf::Transient(t) if self.lowered.transients[t as usize].name == UNUSED)
    }

    fn buffer(&self, buf: Buf) -> String {
        match buf {
            Buf::Transient(t) => {
                let s = self.slots[t as usize];
                format!("arena+{:#x} ({})", s.offset, bytes(s.bytes))
            }
            Buf::State(s) => format!("state {}", s.0),
            other => format!("{other:?}"),
        }
    }
}

fn count(c: Count) -> String {
    match c {
        Count::Fixed(n) => n.to_string(),
        Count::Rows(1) => "R".into(),
        Count::Rows(n) => format!("R/{n}"),
        Count::Outputs(1) => "O".into(),
        Count::Outputs(n) => format!("O/{n}"),
        Count::Visible(n) => format!("V/{n}"),
        Count::Tiles { .. } => "T".into(),
    }
}
