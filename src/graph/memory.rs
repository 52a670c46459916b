//! Persistent state on the host: where a row lies, and how a sequence is saved, restored and cut.
//!
//! A state is `[slot][capacity][width]`, reached only through [`States::row_addr`]. `Rows` keeps a row
//! per `every` positions. `Ring` keeps `window + chunk - 1` rows, so that a whole chunk can be written before
//! its first row looks back. `Window` keeps the last `len`. `Matrix` is one row.
//!
//! The first two are caches ([`StateKind::is_cache`]): they hold what [`Limits::kv`] says, are written by
//! [`States::append`] and read as [`CacheRows`]. The others are f32, read by [`States::row`].

use super::node::Graph;
use super::step::Limits;
use crate::ops::{Kv, StateKind};
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::borrow::Cow;
use std::ops::Range;

/// What a state cannot do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error(
        "slot {slot} cannot go back from {from} to {to} positions: `{state}` is a {kind} state, which keeps no \
         history; restore a snapshot, or start the sequence again"
    )]
    Recurrent { slot: u32, from: u32, to: u32, state: String, kind: &'static str },
    #[error("slot {slot} holds {len} positions, it cannot be cut to {to}")]
    Beyond { slot: u32, len: u32, to: u32 },
    #[error("slot {slot} does not exist, there are {slots}")]
    Slot { slot: u32, slots: u32 },
    #[error(
        "a step of slot {slot} failed halfway and its recurrent state is not whole; restore a snapshot, or start \
         the sequence again"
    )]
    Broken { slot: u32 },
    #[error("the snapshot was made by another model or with another --chunk")]
    Foreign,
    #[error("the snapshot holds {len} positions, more than the context of {ctx}")]
    TooLong { len: u32, ctx: u32 },
    #[error(
        "the snapshot has caches of {}, this session has them of {}: restore it into one with --kv {}", of.name(), kv.name(),
        of.name()
    )]
    Kv { of: Kv, kv: Kv },
    #[error(
        "slot {slot} cannot be saved: row {row} of `{state}`, a cache of f16, holds what is no finite number, as a device \
         leaves of a value above 65504; start the sequence again with --kv f32"
    )]
    NotFinite { slot: u32, state: String, row: u32 },
}

/// A value that a cache of f16 cannot hold, or that is no number.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("`{node}` has {value} in row {row} for a cache of f16, which holds numbers up to 65504: run it with --kv f32")]
pub struct TooLarge {
    pub node: String,
    /// The row of what was to be written.
    pub row: usize,
    pub value: f32,
}

/// Values of a state.
#[derive(Debug, Clone, PartialEq)]
enum Data {
    F32(Vec<f32>),
    F16(Vec<f16>),
}

impl Data {
    fn zeros(kind: &StateKind, kv: Kv, values: usize) -> Data {
        match (kind.is_cache(), kv) {
            (true, Kv::F16) => Data::F16(vec![f16::ZERO; values]),
            _ => Data::F32(vec![0.0; values]),
        }
    }

    fn len(&self) -> usize {
        match self {
            Data::F32(d) => d.len(),
            Data::F16(d) => d.len(),
        }
    }

    fn clear(&mut self, range: Range<usize>) {
        match self {
            Data::F32(d) => d[range].fill(0.0),
            Data::F16(d) => d[range].fill(f16::ZERO),
        }
    }

    fn part(&self, range: Range<usize>) -> Data {
        match self {
            Data::F32(d) => Data::F32(d[range].to_vec()),
            Data::F16(d) => Data::F16(d[range].to_vec()),
        }
    }

    fn put(&mut self, range: Range<usize>, part: &Data) {
        match (self, part) {
            (Data::F32(d), Data::F32(p)) => d[range].copy_from_slice(p),
            (Data::F16(d), Data::F16(p)) => d[range].copy_from_slice(p),
            _ => unreachable!("a snapshot of another type was refused"),
        }
    }
}

/// The rows of a cache, all slots, as they are stored.
#[derive(Clone, Copy)]
pub struct CacheRows<'a, T> {
    data: &'a [T],
    capacity: usize,
    width: usize,
}

impl<'a, T> CacheRows<'a, T> {
    pub fn row(&self, slot: u32, row: usize) -> &'a [T] {
        let at = row_addr(self.capacity, self.width, slot, row);
        &self.data[at..at + self.width]
    }
}

fn row_addr(capacity: usize, width: usize, slot: u32, row: usize) -> usize {
    (slot as usize * capacity + row % capacity) * width
}

/// A sequence's complete state at some position.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    len: u32,
    /// As [`States::written`].
    written: u32,
    kv: Kv,
    kinds: Vec<(StateKind, usize)>,
    parts: Vec<Data>,
}

impl Snapshot {
    /// Positions that the sequence holds.
    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

struct Memory {
    name: String,
    kind: StateKind,
    capacity: usize,
    width: usize,
    data: Data,
}

/// All states of all slots.
pub struct States {
    limits: Limits,
    lengths: Vec<u32>,
    /// Positions of each slot that may have been written since it was empty, also by a failed step or before a cut: rings
    /// have lost what lies a capacity or more below.
    written: Vec<u32>,
    /// Slots whose recurrent state a failed step has left between two positions.
    broken: Vec<bool>,
    memories: Vec<Memory>,
}

/// Rows that one slot of a state holds, and values per row, for a context and rows of a slot in a step at most.
pub fn capacity(kind: &StateKind, ctx: u32, chunk: u32) -> (usize, usize) {
    let ctx = ctx as usize;
    match *kind {
        StateKind::Rows { width, every } => (ctx.div_ceil(every as usize), width as usize),
        StateKind::Ring { width, window } => (ctx.min(window as usize + chunk as usize - 1), width as usize),
        StateKind::Window { len, width } => (len as usize, width as usize),
        StateKind::Matrix { heads, k, v } => (1, (heads * k * v) as usize),
    }
}

impl States {
    pub fn new(graph: &Graph, limits: Limits) -> Self {
        let memories = graph.states.iter().map(|s| {
            let (capacity, width) = capacity(&s.kind, limits.ctx, limits.chunk);
            let data = Data::zeros(&s.kind, limits.kv, limits.slots as usize * capacity * width);
            Memory { name: s.name.clone(), kind: s.kind, capacity, width, data }
        });
        Self {
            limits,
            lengths: vec![0; limits.slots as usize],
            written: vec![0; limits.slots as usize],
            broken: vec![false; limits.slots as usize],
            memories: memories.collect(),
        }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Positions that each slot holds.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// Called when a step has failed: recurrent states of its slots may hold half of it. Rows of growing
    /// states beyond the length are not part of a sequence, so those stay usable.
    pub fn failed(&mut self, rows: &[super::Row]) {
        self.wrote(rows);
        if self.memories.iter().any(|m| !m.kind.is_cache()) {
            rows.iter().for_each(|r| self.broken[r.slot as usize] = true);
        }
    }

    /// Whether each slot of some rows can go on.
    pub fn usable(&self, rows: &[super::Row]) -> Result<(), StateError> {
        match rows.iter().find(|r| self.broken.get(r.slot as usize) == Some(&true)) {
            Some(r) => Err(StateError::Broken { slot: r.slot }),
            None => Ok(()),
        }
    }

    /// Called after a step has written its rows.
    pub fn advance(&mut self, rows: &[super::Row]) {
        self.wrote(rows);
        for r in rows {
            self.lengths[r.slot as usize] = r.position + 1;
        }
    }

    fn wrote(&mut self, rows: &[super::Row]) {
        for r in rows {
            let written = &mut self.written[r.slot as usize];
            *written = (*written).max(r.position + 1);
        }
    }

    /// First value of a row. `row` is a position, a window number for states with `every`, 0 for a matrix;
    /// states that keep only the newest wrap around.
    pub fn row_addr(&self, state: usize, slot: u32, row: usize) -> usize {
        let m = &self.memories[state];
        row_addr(m.capacity, m.width, slot, row)
    }

    /// A row of a state that holds f32.
    pub fn row(&self, state: usize, slot: u32, row: usize) -> &[f32] {
        let (m, at) = (&self.memories[state], self.row_addr(state, slot, row));
        match &m.data {
            Data::F32(d) => &d[at..at + m.width],
            Data::F16(_) => unreachable!("{} is a cache", m.name),
        }
    }

    pub fn row_mut(&mut self, state: usize, slot: u32, row: usize) -> &mut [f32] {
        let at = self.row_addr(state, slot, row);
        let m = &mut self.memories[state];
        match &mut m.data {
            Data::F32(d) => &mut d[at..at + m.width],
            Data::F16(_) => unreachable!("{} is a cache", m.name),
        }
    }

    /// Writes a row of a cache, rounded to what it holds.
    ///
    /// # Errors
    /// The first value that it cannot hold; the row is not part of the sequence then.
    pub fn append(&mut self, state: usize, slot: u32, row: usize, values: &[f32]) -> Result<(), f32> {
        let at = self.row_addr(state, slot, row);
        match &mut self.memories[state].data {
            Data::F32(d) => d[at..at + values.len()].copy_from_slice(values),
            Data::F16(d) => {
                let to = &mut d[at..at + values.len()];
                // To the nearest, of two to the even one, whatever the processor.
                to.convert_from_f32_slice(values);
                if let Some(bad) = to.iter().position(|x| !x.is_finite()) {
                    return Err(values[bad]);
                }
            }
        }
        Ok(())
    }

    /// The rows of a cache of f32; None if it is of f16.
    pub fn floats(&self, state: usize) -> Option<CacheRows<'_, f32>> {
        let m = &self.memories[state];
        match &m.data {
            Data::F32(data) => Some(CacheRows { data, capacity: m.capacity, width: m.width }),
            Data::F16(_) => None,
        }
    }

    /// The rows of a cache of f16; None if it is of f32.
    pub fn halves(&self, state: usize) -> Option<CacheRows<'_, f16>> {
        let m = &self.memories[state];
        match &m.data {
            Data::F16(data) => Some(CacheRows { data, capacity: m.capacity, width: m.width }),
            Data::F32(_) => None,
        }
    }

    /// A row of any state in f32.
    pub fn widened(&self, state: usize, slot: u32, row: usize) -> Cow<'_, [f32]> {
        match self.halves(state) {
            Some(rows) => Cow::Owned(rows.row(slot, row).to_f32_vec()),
            None => Cow::Borrowed(self.row(state, slot, row)),
        }
    }

    /// Bytes of a state in all slots.
    pub fn bytes(&self, state: usize) -> u64 {
        let m = &self.memories[state];
        m.data.len() as u64 * m.kind.value_bytes(self.limits.kv)
    }

    /// The bytes of all rows that a state keeps of one slot.
    pub fn slot_mut(&mut self, state: usize, slot: u32) -> &mut [u8] {
        let m = &mut self.memories[state];
        let range = Self::slot_range(m, slot, m.capacity);
        match &mut m.data {
            Data::F32(d) => bytemuck::cast_slice_mut(&mut d[range]),
            Data::F16(d) => bytemuck::cast_slice_mut(&mut d[range]),
        }
    }

    /// Whether there is such a slot.
    pub fn check(&self, slot: u32) -> Result<(), StateError> {
        if slot < self.limits.slots { Ok(()) } else { Err(StateError::Slot { slot, slots: self.limits.slots }) }
    }

    fn slot_range(m: &Memory, slot: u32, rows: usize) -> std::ops::Range<usize> {
        let start = slot as usize * m.capacity * m.width;
        start..start + rows * m.width
    }

    /// Rows of a state in use when a slot holds `len` positions.
    fn used(m: &Memory, len: u32) -> usize {
        match m.kind {
            StateKind::Rows { every, .. } => len as usize / every as usize,
            _ => m.capacity,
        }
    }

    /// The first row in use of a cache of f16 that holds what is no finite number. A device refuses to go on from
    /// such rows only where logits are wanted, and the processor takes for granted that there are none.
    fn not_finite(&self, m: &Memory, slot: u32) -> Option<u32> {
        let Data::F16(data) = &m.data else { return None };
        let len = self.lengths[slot as usize];
        let mut rows = match m.kind {
            // Elsewhere a failed step may have left anything.
            StateKind::Ring { .. } => self.written[slot as usize].saturating_sub(m.capacity as u32)..len,
            _ => 0..Self::used(m, len) as u32,
        };
        let cache = CacheRows { data: data.as_slice(), capacity: m.capacity, width: m.width };
        rows.find(|row| !cache.row(slot, *row as usize).iter().all(|x| x.is_finite()))
    }

    /// Empties a slot.
    pub fn reset(&mut self, slot: u32) -> Result<(), StateError> {
        self.check(slot)?;
        for m in &mut self.memories {
            let range = Self::slot_range(m, slot, m.capacity);
            m.data.clear(range);
        }
        self.lengths[slot as usize] = 0;
        self.written[slot as usize] = 0;
        self.broken[slot as usize] = false;
        Ok(())
    }

    /// Copies everything a sequence needs to go on from here.
    pub fn snapshot(&self, slot: u32) -> Result<Snapshot, StateError> {
        self.check(slot)?;
        if self.broken[slot as usize] {
            return Err(StateError::Broken { slot });
        }
        let bad = |m: &Memory| Some((m.name.clone(), self.not_finite(m, slot)?));
        if let Some((state, row)) = self.memories.iter().find_map(bad) {
            return Err(StateError::NotFinite { slot, state, row });
        }
        let len = self.lengths[slot as usize];
        let part = |m: &Memory| m.data.part(Self::slot_range(m, slot, Self::used(m, len)));
        let kinds = self.memories.iter().map(|m| (m.kind, self.fixed_capacity(m))).collect();
        let (written, kv) = (self.written[slot as usize], self.limits.kv);
        Ok(Snapshot { len, written, kv, kinds, parts: self.memories.iter().map(part).collect() })
    }

    /// The capacity where it decides how rows are laid out; growing states may differ in context.
    fn fixed_capacity(&self, m: &Memory) -> usize {
        if matches!(m.kind, StateKind::Rows { .. }) { 0 } else { m.capacity }
    }

    /// Puts a snapshot into a slot.
    pub fn restore(&mut self, slot: u32, snapshot: &Snapshot) -> Result<(), StateError> {
        self.check(slot)?;
        let kinds: Vec<_> = self.memories.iter().map(|m| (m.kind, self.fixed_capacity(m))).collect();
        if kinds != snapshot.kinds {
            return Err(StateError::Foreign);
        }
        if snapshot.kv != self.limits.kv {
            return Err(StateError::Kv { of: snapshot.kv, kv: self.limits.kv });
        }
        if snapshot.len > self.limits.ctx {
            return Err(StateError::TooLong { len: snapshot.len, ctx: self.limits.ctx });
        }
        for (m, part) in self.memories.iter_mut().zip(&snapshot.parts) {
            let rows = Self::used(m, snapshot.len);
            let range = Self::slot_range(m, slot, rows);
            m.data.put(range, part);
        }
        self.lengths[slot as usize] = snapshot.len;
        self.written[slot as usize] = snapshot.written;
        self.broken[slot as usize] = false;
        Ok(())
    }

    /// Forgets the positions from `to` on. Only states that keep all their rows allow it; a ring allows it
    /// as far back as its oldest kept rows.
    pub fn truncate(&mut self, slot: u32, to: u32) -> Result<(), StateError> {
        self.check(slot)?;
        let from = self.lengths[slot as usize];
        if to > from {
            return Err(StateError::Beyond { slot, len: from, to });
        }
        if to == from {
            return Ok(());
        }
        if to == 0 {
            return self.reset(slot);
        }
        // Not from the length: rows behind an earlier cut have taken the places of old ones all the same.
        let behind = (self.written[slot as usize] - to) as usize;
        let kept = |m: &Memory| match m.kind {
            StateKind::Rows { .. } => true,
            StateKind::Ring { window, .. } => behind + (window as usize).min(to as usize) <= m.capacity,
            StateKind::Window { .. } | StateKind::Matrix { .. } => false,
        };
        if let Some(m) = self.memories.iter().find(|m| !kept(m)) {
            return Err(StateError::Recurrent { slot, from, to, state: m.name.clone(), kind: m.kind.name() });
        }
        self.lengths[slot as usize] = to;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;

    const WIDTH: usize = 2;

    /// One slot of a ring with room for 8 rows, a row of which sees 4 positions.
    fn ring(kv: Kv) -> States {
        let limits = Limits { vocab: 10, ctx: 64, slots: 1, chunk: 5, kv };
        let kind = StateKind::Ring { width: WIDTH as u64, window: 4 };
        let (capacity, width) = capacity(&kind, limits.ctx, limits.chunk);
        assert_eq!((capacity, width), (8, WIDTH));
        let data = Data::zeros(&kind, kv, capacity * width);
        let memories = vec![Memory { name: "near".into(), kind, capacity, width, data }];
        States { limits, lengths: vec![0], written: vec![0], broken: vec![false], memories }
    }

    fn rows(positions: Range<u32>) -> Vec<Row> {
        positions.map(|position| Row { token: 1, position, slot: 0, logits: false }).collect()
    }

    fn is_lost(done: Result<(), StateError>) -> bool {
        matches!(done, Err(StateError::Recurrent { .. }))
    }

    #[test]
    fn rows_that_a_ring_has_lost_do_not_come_back() {
        let mut s = ring(Kv::F32);
        s.advance(&rows(0..5));
        s.advance(&rows(5..10));
        s.truncate(0, 7).unwrap();
        let saved = s.snapshot(0).unwrap();
        assert!(is_lost(s.truncate(0, 4)), "position 1 is where 9 was written");
        s.truncate(0, 6).unwrap();
        // As well in the snapshot, wherever it is restored.
        s.reset(0).unwrap();
        s.restore(0, &saved).unwrap();
        assert!(is_lost(s.truncate(0, 5)));
        s.truncate(0, 6).unwrap();
        s.reset(0).unwrap();
        s.advance(&rows(0..5));
        s.truncate(0, 2).unwrap();
    }

    #[test]
    fn a_failed_step_takes_places_in_a_ring() {
        let mut s = ring(Kv::F32);
        s.advance(&rows(0..5));
        s.advance(&rows(5..10));
        s.failed(&rows(10..15));
        s.truncate(0, 10).unwrap();
        assert!(is_lost(s.truncate(0, 9)), "position 6 is where 14 was written");
    }
    #[test]
    fn what_is_no_number_is_not_saved() {
        let mut s = ring(Kv::F16);
        s.advance(&rows(0..5));
        s.advance(&rows(5..6));
        let put = |s: &mut States, position, value| s.append(0, 0, position, &[0.0, value]);
        assert_eq!(put(&mut s, 4, 1e6), Err(1e6));
        let refused = s.snapshot(0).unwrap_err();
        assert_eq!(refused, StateError::NotFinite { slot: 0, state: "near".into(), row: 4 });
        assert!(refused.to_string().contains("`near`") && refused.to_string().contains("--kv f32"), "{refused}");
        put(&mut s, 4, 65504.0).unwrap();
        s.snapshot(0).unwrap();
        // Behind the length a failed step may leave anything.
        assert!(put(&mut s, 6, f32::NAN).is_err());
        s.failed(&rows(6..7));
        s.snapshot(0).unwrap();
    }
}
