//! A bound tensor: a place in a mapped file with a known format.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::formats::{Format, View};

use super::shard::Shard;

/// A weight ready to be read. Cloning shares the mapped files.
#[derive(Clone)]
pub struct Tensor {
    pub(super) name: Arc<str>,
    pub(super) format: Format,
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Lengths of both ranges are what `format` needs for `[rows, cols]`, see `resolve`.
    pub(super) data: Bytes,
    /// `None` for formats without scales.
    pub(super) scales: Option<Bytes>,
}

/// A byte range of a shard that lies inside it.
#[derive(Clone)]
pub(super) struct Bytes {
    pub(super) shard: Arc<Shard>,
    pub(super) range: Range<usize>,
}

impl Bytes {
    fn get(&self) -> &[u8] {
        &self.shard.bytes()[self.range.clone()]
    }
}

impl Tensor {
    /// Logical name, as in [`Index::names`](super::Index::names).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the bytes are laid out.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The mapped bytes with their shape: rows are the product of all wanted dimensions but the
    /// last, columns the last; a vector has one row.
    pub fn view(&self) -> View<'_> {
        View {
            format: self.format,
            rows: self.rows,
            cols: self.cols,
            data: self.data.get(),
            scales: self.scales.as_ref().map_or(&[], Bytes::get),
        }
    }

    /// Bytes of data and scales.
    pub fn bytes(&self) -> u64 {
        let scales = self.scales.as_ref().map_or(0, |scales| scales.range.len());
        (self.data.range.len() + scales) as u64
    }

    /// Row and column of the first value that is NaN or infinite, to name a bad weight.
    ///
    /// Decodes the whole tensor unless it is an integer table.
    pub fn find_nan(&self) -> Option<(usize, usize)> {
        if matches!(self.format, Format::I32 | Format::I64) || self.cols == 0 {
            return None;
        }
        let view = self.view();
        let mut values = vec![0.0f32; self.cols];
        (0..self.rows).find_map(|row| {
            view.decode_row(row, &mut values);
            values.iter().position(|value| !value.is_finite()).map(|col| (row, col))
        })
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {} [{}, {}])", self.name, self.format, self.rows, self.cols)
    }
}
