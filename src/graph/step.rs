//! What one step computes: a list of rows.

use crate::ops::Kv;

/// A row: one token of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub token: u32,
    /// 0-based position in the sequence.
    pub position: u32,
    /// The sequence; its state is reached through `row_addr(slot, position)` only.
    pub slot: u32,
    /// Whether the row's logits are wanted.
    pub logits: bool,
}

impl Row {
    /// Positions that the row may look at, its own included.
    pub fn visible(&self) -> u32 {
        self.position + 1
    }

    /// Rows of a cache with one row per `every` positions that the row may look at.
    pub fn visible_rows(&self, every: usize) -> usize {
        self.visible() as usize / every
    }
}

/// A window of `m` positions that closes with a row of this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emit {
    /// The row that closes it.
    pub row: usize,
    pub slot: u32,
    /// Its number: it covers positions `window * m ..= window * m + m - 1`.
    pub window: u32,
}

/// What the rows of a step are, which decides the kernels that compute them, whatever their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Rows of a prompt: tiled kernels.
    Prompt,
    /// One to eight generated rows: each weight row is read once for all of them.
    Decode,
}

/// Generated rows in one step at most.
pub const DECODE_ROWS: usize = 8;

/// What a step may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub vocab: u32,
    /// Positions per slot.
    pub ctx: u32,
    pub slots: u32,
    /// Rows per step and slot.
    pub chunk: u32,
    /// What caches hold.
    pub kv: Kv,
}

/// Rows that cannot be a step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error("a step needs at least one row")]
    Empty,
    #[error("token {token} at position {position} is outside the vocabulary of {vocab}")]
    Token { token: u32, position: u32, vocab: u32 },
    #[error(
        "position {position} does not fit in the context of {ctx} positions; give a larger --ctx or a shorter prompt"
    )]
    Context { position: u32, ctx: u32 },
    #[error("slot {slot} does not exist, there are {slots}")]
    Slot { slot: u32, slots: u32 },
    #[error("slot {slot} holds {len} positions, so its next row must be position {len}, not {position}")]
    Gap { slot: u32, len: u32, position: u32 },
    #[error("{0} generated rows in one step, at most {DECODE_ROWS} are possible")]
    DecodeRows(usize),
    #[error("{rows} rows of slot {slot} in one step, but the state was made for {chunk}")]
    Chunk { slot: u32, rows: u32, chunk: u32 },
}

/// The rows of a step, checked. Rows of several slots may alternate; within a slot positions follow on.
#[derive(Debug, Clone)]
pub struct Step {
    role: Role,
    rows: Vec<Row>,
    outputs: Vec<usize>,
}

impl Step {
    /// `lengths[slot]` is what each slot holds before the step.
    pub fn new(role: Role, rows: Vec<Row>, limits: Limits, lengths: &[u32]) -> Result<Step, StepError> {
        if rows.is_empty() {
            return Err(StepError::Empty);
        }
        if role == Role::Decode && rows.len() > DECODE_ROWS {
            return Err(StepError::DecodeRows(rows.len()));
        }
        let mut next = lengths.to_vec();
        for r in &rows {
            let Some(len) = next.get_mut(r.slot as usize).filter(|_| r.slot < limits.slots) else {
                return Err(StepError::Slot { slot: r.slot, slots: limits.slots });
            };
            if r.token >= limits.vocab {
                return Err(StepError::Token { token: r.token, position: r.position, vocab: limits.vocab });
            }
            if r.position >= limits.ctx {
                return Err(StepError::Context { position: r.position, ctx: limits.ctx });
            }
            if r.position != *len {
                return Err(StepError::Gap { slot: r.slot, len: *len, position: r.position });
            }
            *len += 1;
            let rows = *len - lengths[r.slot as usize];
            if rows > limits.chunk {
                return Err(StepError::Chunk { slot: r.slot, rows, chunk: limits.chunk });
            }
        }
        let outputs = (0..rows.len()).filter(|i| rows[*i].logits).collect();
        Ok(Step { role, rows, outputs })
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Indices of the rows that want logits.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// Windows of `m` positions that close in this step, in row order.
    pub fn emitted(&self, m: usize) -> Vec<Emit> {
        let closes = |r: &Row| (r.visible() as usize).is_multiple_of(m);
        let emit = |(row, r): (usize, &Row)| Emit { row, slot: r.slot, window: r.position / m as u32 };
        self.rows.iter().enumerate().filter(|(_, r)| closes(r)).map(emit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(slot: u32, position: u32) -> Row {
        Row { token: 1, position, slot, logits: position % 2 == 1 }
    }

    const LIMITS: Limits = Limits { vocab: 10, ctx: 8, slots: 2, chunk: 4, kv: Kv::F32 };

    #[test]
    fn rows_follow_on_in_each_slot() {
        let step = Step::new(Role::Decode, vec![row(0, 3), row(1, 0), row(0, 4), row(1, 1)], LIMITS, &[3, 0]).unwrap();
        assert_eq!(step.outputs(), [0, 3]);
        assert_eq!(step.emitted(4), [Emit { row: 0, slot: 0, window: 0 }]);
        assert_eq!(step.emitted(2).len(), 2);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let bad = |rows: Vec<Row>, lengths: &[u32]| Step::new(Role::Prompt, rows, LIMITS, lengths).unwrap_err();
        assert_eq!(bad(vec![], &[0, 0]), StepError::Empty);
        assert!(matches!(bad(vec![row(0, 1)], &[0, 0]), StepError::Gap { .. }));
        assert!(matches!(bad(vec![row(2, 0)], &[0, 0]), StepError::Slot { .. }));
        assert!(matches!(bad(vec![row(0, 8)], &[8, 0]), StepError::Context { .. }));
        assert!(matches!(bad(vec![Row { token: 10, ..row(0, 0) }], &[0, 0]), StepError::Token { .. }));
        let five = (0..5).map(|p| row(0, p)).collect();
        assert!(matches!(bad(five, &[0, 0]), StepError::Chunk { rows: 5, .. }));
    }
}
