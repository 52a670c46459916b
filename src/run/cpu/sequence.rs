//! Ops that write state: caches, convolution, delta rule, pooling.
//!
//! A row reads what earlier positions of its slot brought, be they rows of this step or of the state as it
//! was before the step. So rows need no order among them, and the state is written once, at the end.

use super::error::CpuError;
use super::work::{Work, made};
use crate::cpu::{conv, decode, delta, pool};
use crate::graph::{Node, TooLarge, Value};
use crate::ops::RowDim;
use rayon::prelude::*;

type Made = Result<Value, CpuError>;

/// Where the input of an earlier position lies.
enum Source {
    /// In this row of the step.
    Step(usize),
    State,
}

impl Work<'_> {
    pub(super) fn append(&mut self, n: &Node, width: usize) -> Made {
        let state = self.state(n)?;
        let x = self.shared(n, 0)?.clone();
        let places: Vec<(u32, u32)> = match self.row_dim(n, 0) {
            RowDim::Emitted(m) => self.step.emitted(m as usize).iter().map(|e| (e.slot, e.window)).collect(),
            _ => self.rows().iter().map(|r| (r.slot, r.position)).collect(),
        };
        for (row, (x, (slot, at))) in x.chunks_exact(width).zip(places).enumerate() {
            let too_large = |value| TooLarge { node: n.path(), row, value };
            self.states.append(state, slot, at as usize, x).map_err(too_large)?;
        }
        Ok(Value::Cache(state))
    }

    /// Where the slot's input at a position is; the position is not behind the step's last row of the slot.
    fn source(&self, slot: u32, position: u32) -> Source {
        let rows = self.slots.get(&slot).map_or(&[][..], Vec::as_slice);
        let first = rows.first().map_or(u32::MAX, |r| self.rows()[*r].position);
        match position.checked_sub(first).and_then(|i| rows.get(i as usize)) {
            Some(row) => Source::Step(*row),
            None => Source::State,
        }
    }

    /// Rows of the step whose positions are among the last `len` of their slot: what a window state keeps.
    fn newest(&self, len: usize) -> Vec<usize> {
        self.slots.values().flat_map(|rows| &rows[rows.len().saturating_sub(len)..]).copied().collect()
    }

    pub(super) fn conv(&mut self, n: &Node, channels: usize, taps: usize, act: bool) -> Made {
        let (state, w) = (self.state(n)?, decode(self.matrix(n, 0)?));
        let x = self.shared(n, 0)?.clone();
        let row = |r: usize| &x[r * channels..][..channels];
        let value = {
            // Nothing stands before position 0, whatever an earlier sequence left in the state.
            let input = |slot: u32, position: usize| match self.source(slot, position as u32) {
                Source::Step(r) => row(r),
                Source::State => self.states.row(state, slot, position),
            };
            let of = |r: &crate::graph::Row| {
                let (slot, next) = (r.slot, r.position as usize + 1);
                (0..taps).map(move |j| (slot, (next + j).checked_sub(taps)))
            };
            let inputs: Vec<Option<&[f32]>> =
                self.rows().iter().flat_map(of).map(|(slot, p)| p.map(|p| input(slot, p))).collect();
            made(x.len(), |y| conv::causal_conv1d(&inputs, &w, taps, act, y))?
        };
        for r in self.newest(taps - 1) {
            let at = self.rows()[r];
            self.states.row_mut(state, at.slot, at.position as usize).copy_from_slice(row(r));
        }
        Ok(value)
    }

    pub(super) fn delta_rule(&mut self, n: &Node, heads: usize, k: usize, v: usize) -> Made {
        let state = self.state(n)?;
        let inputs: Vec<_> = (0..5).map(|i| self.shared(n, i).cloned()).collect::<Result<_, _>>()?;
        let part = |i: usize, r: usize, width: usize| &inputs[i][r * width..][..width];
        let mut out = vec![0.0; self.rows().len() * heads * v];
        for (slot, rows) in &self.slots {
            let of = |r: &usize| delta::Input {
                q: part(0, *r, heads * k),
                k: part(1, *r, heads * k),
                v: part(2, *r, heads * v),
                g: part(3, *r, heads * k),
                beta: part(4, *r, heads),
            };
            let memory = self.states.row_mut(state, *slot, 0);
            if rows.first().is_some_and(|r| self.step.rows()[*r].position == 0) {
                memory.fill(0.0);
            }
            let mut by_head = vec![0.0; rows.len() * heads * v];
            delta::delta_rule(&rows.iter().map(of).collect::<Vec<_>>(), heads, k, v, memory, &mut by_head);
            for (c, part) in by_head.chunks_exact(v).enumerate() {
                let (h, r) = (c / rows.len(), rows[c % rows.len()]);
                out[(r * heads + h) * v..][..v].copy_from_slice(part);
            }
        }
        Ok(Value::tensor(out))
    }

    pub(super) fn window_pool(&mut self, n: &Node, m: usize, d: usize, overlap: bool) -> Made {
        let (state, ape) = (self.state(n)?, self.vector(n, 0)?);
        let kv = self.shared(n, 0)?.clone();
        let width = if overlap { 2 * d } else { d };
        let mut z = self.tensor(n, 1)?.to_vec();
        for (z, row) in z.chunks_exact_mut(width).zip(self.rows()) {
            let ape = &ape[row.position as usize % m * width..][..width];
            z.iter_mut().zip(ape).for_each(|(z, a)| *z += a);
        }
        let value = {
            // Values and gates of one position, one half of the channels of an overlapping window.
            let entry = |slot: u32, position: usize, half: usize| match self.source(slot, position as u32) {
                Source::Step(r) => (&kv[r * width + half * d..][..d], &z[r * width + half * d..][..d]),
                Source::State => {
                    let row = self.states.row(state, slot, position);
                    (&row[half * d..][..d], &row[width + half * d..][..d])
                }
            };
            let emitted = self.step.emitted(m);
            let mut out = vec![0.0; emitted.len() * d];
            emitted.par_iter().zip(out.par_chunks_mut(d)).for_each(|(e, out)| {
                let start = e.window as usize * m;
                let before = if overlap { start.saturating_sub(m)..start } else { 0..0 };
                let entries: Vec<(&[f32], &[f32])> = before
                    .map(|p| entry(e.slot, p, 0))
                    .chain((start..start + m).map(|p| entry(e.slot, p, usize::from(overlap))))
                    .collect();
                pool::window_pool(&entries, out);
            });
            Value::tensor(out)
        };
        for r in self.newest(if overlap { 2 * m } else { m }) {
            let at = self.rows()[r];
            let (values, gates) = self.states.row_mut(state, at.slot, at.position as usize).split_at_mut(width);
            values.copy_from_slice(&kv[r * width..][..width]);
            gates.copy_from_slice(&z[r * width..][..width]);
        }
        Ok(value)
    }
}
