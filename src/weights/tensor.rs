//! A bound tensor: a place in a mapped file with a known format.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::formats::layout::{self, Buffer, Tiled};
use crate::formats::{Format, Matrix, View};

use super::shard::Shard;

/// A weight ready to be read. Cloning shares the mapped files.
#[derive(Clone)]
pub struct Tensor {
    pub(super) name: Arc<str>,
    pub(super) format: Format,
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Whether `data` holds the matrix in the engine layout, scales and all.
    pub(super) tiled: bool,
    /// Lengths of both ranges are what `format` needs for `[rows, cols]`, see `resolve`.
    pub(super) data: Bytes,
    /// `None` for formats without scales, and in the engine layout.
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

    /// Outputs: the product of all wanted dimensions but the last; a vector has one.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs: the last wanted dimension.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Whether the bytes are in the engine layout.
    pub fn is_tiled(&self) -> bool {
        self.tiled
    }

    /// The bytes with their shape, in the order in which they are stored.
    pub fn matrix(&self) -> Matrix<'_> {
        let (format, rows, cols, data) = (self.format, self.rows, self.cols, self.data.get());
        if self.tiled {
            return match Tiled::new(format, rows, cols, data) {
                Ok(tiles) => Matrix::Tiles(tiles),
                Err(e) => unreachable!("{}: bound with other sizes: {e}", self.name),
            };
        }
        Matrix::Rows(View { format, rows, cols, data, scales: self.scales.as_ref().map_or(&[], Bytes::get) })
    }

    /// A copy in the engine layout, in memory of its own; `None` where it is in it already, or would gain nothing
    /// ([`suits`](crate::formats::layout::suits)).
    pub fn retiled(&self) -> Option<Tensor> {
        let Matrix::Rows(view) = self.matrix() else { return None };
        if !self.can_be_retiled() {
            return None;
        }
        let buffer = Buffer::tile(&view)?;
        let len = layout::bytes(self.format, self.rows, self.cols)?;
        let shard = Arc::new(Shard::from_bytes(&self.name, buffer));
        Some(Tensor { tiled: true, data: Bytes { shard, range: 0..len }, scales: None, ..self.clone() })
    }

    /// Whether [`Tensor::retiled`] makes a copy.
    pub fn can_be_retiled(&self) -> bool {
        !self.tiled && layout::suits(self.format, self.rows, self.cols)
    }

    /// Reads every page of the stored bytes, so that they are in memory.
    pub fn touch(&self) {
        const PAGE: usize = 4096;
        for part in std::iter::once(&self.data).chain(&self.scales) {
            std::hint::black_box(part.get().iter().step_by(PAGE).fold(0u8, |a, b| a ^ b));
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
        let matrix = self.matrix();
        let mut values = vec![0.0f32; self.cols];
        (0..self.rows).find_map(|row| {
            matrix.decode_row(row, &mut values);
            values.iter().position(|value| !value.is_finite()).map(|col| (row, col))
        })
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {} [{}, {}])", self.name, self.format, self.rows, self.cols)
    }
}
