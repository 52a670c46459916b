//! What changes per step, as the kernels read it (docs/kernels.md).

use crate::graph::Step;
use crate::plan::pass::Count;

/// Rows of a step at most.
pub const MAX_ROWS: u32 = 512;

const COUNTS_AT: usize = 16;
const ROWS_AT: usize = 1024;
const OUTPUTS_AT: usize = ROWS_AT + 8 * MAX_ROWS as usize;

/// Bytes of the parameter buffer.
pub const BYTES: u64 = 4 * (OUTPUTS_AT as u64 + MAX_ROWS as u64);

/// Where the workgroup counts with this number lie.
pub fn count_offset(n: usize) -> u64 {
    4 * (COUNTS_AT as u64 + 4 * n as u64)
}

/// The words of a step. Of its logits, those below `among` may be chosen, where a step chooses.
pub fn words(step: &Step, counts: &[(Count, Count)], number: u32, among: u32) -> Vec<u32> {
    let rows = step.rows();
    let outputs = step.outputs();
    let visible = rows.iter().map(|r| r.visible()).max().unwrap_or(0);
    let mut words = vec![0; OUTPUTS_AT + MAX_ROWS as usize];
    words[..5].copy_from_slice(&[rows.len() as u32, outputs.len() as u32, visible, number, among]);
    let size = |c: Count| c.of(rows.len() as u32, outputs.len() as u32, visible);
    for (n, (x, y)) in counts.iter().enumerate() {
        words[COUNTS_AT + 4 * n..][..3].copy_from_slice(&[size(*x), size(*y), 1]);
    }
    let mut output = 0;
    for (r, row) in rows.iter().enumerate() {
        let number = if row.logits { output } else { u32::MAX };
        output += u32::from(row.logits);
        let record = [row.token, row.position, row.slot, row.visible(), u32::from(row.logits), number, 0, 0];
        words[ROWS_AT + 8 * r..][..8].copy_from_slice(&record);
    }
    for (o, row) in outputs.iter().enumerate() {
        words[OUTPUTS_AT + o] = *row as u32;
    }
    words
}

/// Rotations of the step's rows, `[R][pairs]` of (cos, sin): the angle is f32(position) * inv_freq rounded to f32, its cosine
/// and sine are taken in f64 and rounded.
pub fn rotations(step: &Step, inv_freq: &[f32]) -> Vec<f32> {
    let mut out = Vec::with_capacity(step.rows().len() * inv_freq.len() * 2);
    for row in step.rows() {
        for f in inv_freq {
            let angle = f64::from(row.position as f32 * f);
            out.push(libm::cos(angle) as f32);
            out.push(libm::sin(angle) as f32);
        }
    }
    out
}
