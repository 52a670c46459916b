//! A block of rows from one format to another, and from file order into tiles.

use crate::formats::{EncodeError, Encoder, Format, Matrix, View, layout, rotation::Rotation};
use std::ops::Range;

/// Rows that a thread holds at a time: those that share a scale in fp8, which no format exceeds.
pub const ROWS: usize = 128;

/// Buffers of one thread, reused from block to block.
#[derive(Default)]
pub(super) struct Scratch {
    /// The source's values.
    values: Vec<f32>,
    /// A row read back.
    row: Vec<f32>,
    /// Codes made from them.
    pub(super) data: Vec<u8>,
    /// Scales made from them.
    pub(super) scales: Vec<u8>,
    /// Codes and scales as tiles.
    pub(super) tiles: Vec<u8>,
}

/// Squared error and squared size of some values.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sums {
    pub(super) error: f64,
    pub(super) size: f64,
}

impl Sums {
    pub(super) fn add(&mut self, other: Sums) {
        self.error += other.error;
        self.size += other.size;
    }

    /// Frobenius norm of the error by that of the values; 0 where both are 0.
    pub(super) fn relative(self) -> f64 {
        if self.error == 0.0 { 0.0 } else { (self.error / self.size).sqrt() }
    }
}

/// Decodes some rows of `source`, encodes them as `format` into the scratch, and measures what that costs.
///
/// Rows that are stored rotated are rotated back first. `rows` starts at a multiple of [`ROWS`].
///
/// # Errors
/// Values that `format` cannot hold, with rows counted from the start of the tensor.
pub(super) fn encode(
    source: Matrix,
    format: Format,
    rows: Range<usize>,
    scratch: &mut Scratch,
) -> Result<Sums, EncodeError> {
    let (cols, first) = (source.cols(), rows.start);
    let back = source.format().rotates().then(|| Rotation::new(cols));
    scratch.values.resize(rows.len() * cols, 0.0);
    for (row, values) in rows.clone().zip(scratch.values.chunks_exact_mut(cols.max(1))) {
        source.decode_row(row, values);
        if let Some(rotation) = &back {
            rotation.inverse(values);
        }
    }
    scratch.data.clear();
    scratch.scales.clear();
    // Grown by doubling they might take twice what the documentation says.
    let (many, wide) = (rows.len() as u64, cols as u64);
    scratch.data.reserve_exact(format.data_bytes(many, wide) as usize);
    scratch.scales.reserve_exact(format.scale_bytes(many, wide) as usize);
    let mut encoder = Encoder::new(format, cols)?;
    encoder.push(&scratch.values, &mut scratch.data, &mut scratch.scales).map_err(|e| shifted(e, first))?;
    Ok(measure(scratch, format, rows.len(), cols))
}

/// Writes codes and scales of a block in file order to `out` as tiles: those of the whole matrix, since a tile depends
/// on its own rows alone.
pub(super) fn tile(view: &View, out: &mut Vec<u8>) {
    let bytes = layout::bytes(view.format, view.rows, view.cols).unwrap_or(0);
    out.clear();
    out.reserve_exact(bytes);
    out.resize(bytes, 0);
    layout::tile_into(view, out);
}

/// Compares the scratch's values with what its bytes decode to.
fn measure(scratch: &mut Scratch, format: Format, rows: usize, cols: usize) -> Sums {
    let view = View { format, rows, cols, data: &scratch.data, scales: &scratch.scales };
    let back = format.rotates().then(|| Rotation::new(cols));
    scratch.row.resize(cols, 0.0);
    let mut sums = Sums::default();
    for (row, values) in scratch.values.chunks_exact(cols.max(1)).enumerate() {
        view.decode_row(row, &mut scratch.row);
        if let Some(rotation) = &back {
            rotation.inverse(&mut scratch.row);
        }
        for (want, got) in values.iter().zip(&scratch.row) {
            let (want, got) = (f64::from(*want), f64::from(*got));
            sums.error += (want - got).powi(2);
            sums.size += want * want;
        }
    }
    sums
}

/// The error with rows counted from the start of the tensor.
fn shifted(mut error: EncodeError, first: usize) -> EncodeError {
    if let EncodeError::NotFinite { row, .. } | EncodeError::Range { row, .. } = &mut error {
        *row += first;
    }
    error
}
