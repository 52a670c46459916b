//! A stored matrix in either order.

use super::layout::Tiled;
use super::{Format, Integers, View};

/// The bytes of a matrix, borrowed from where they are stored.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "borrows and offsets, one for each product")]
pub enum Matrix<'a> {
    /// In the row order of files: kernels transpose 16 rows piece by piece on the way.
    Rows(View<'a>),
    /// In the engine layout.
    Tiles(Tiled<'a>),
}

impl Matrix<'_> {
    /// How codes and scales are laid out inside a row.
    pub fn format(&self) -> Format {
        match self {
            Matrix::Rows(v) => v.format,
            Matrix::Tiles(t) => t.format,
        }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        match self {
            Matrix::Rows(v) => v.rows,
            Matrix::Tiles(t) => t.rows,
        }
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        match self {
            Matrix::Rows(v) => v.cols,
            Matrix::Tiles(t) => t.cols,
        }
    }

    /// Bytes of codes and scales as stored.
    pub fn bytes(&self) -> usize {
        match self {
            Matrix::Rows(v) => v.data.len() + v.scales.len(),
            Matrix::Tiles(t) => t.bytes().len(),
        }
    }

    /// Writes the values of a row to the front of `out`.
    ///
    /// # Panics
    /// As [`View::decode_row`].
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        match self {
            Matrix::Rows(v) => v.decode_row(row, out),
            Matrix::Tiles(t) => t.decode_row(row, out),
        }
    }

    /// Writes the values of the rows from `first` on, as many as fill `out`.
    ///
    /// # Panics
    /// As [`Tiled::decode_rows`].
    pub fn decode_rows(&self, first: usize, out: &mut [f32]) {
        match self {
            Matrix::Rows(v) => {
                (first..).zip(out.chunks_exact_mut(v.cols.max(1))).for_each(|(row, out)| v.decode_row(row, out));
            }
            Matrix::Tiles(t) => t.decode_rows(first, out),
        }
    }

    /// The integers of a row of coded weights, as [`View::integers`].
    ///
    /// # Panics
    /// As [`View::decode_row`].
    pub fn integers(&self, row: usize) -> Option<Integers> {
        match self {
            Matrix::Rows(v) => v.integers(row),
            Matrix::Tiles(t) => t.integers(row),
        }
    }

    /// The integers of a row, as [`View::int_row`]; `None` for weights, and tables are never tiled.
    ///
    /// # Panics
    /// As [`View::decode_row`].
    pub fn int_row(&self, row: usize, out: &mut [i64]) -> Option<()> {
        match self {
            Matrix::Rows(v) => v.int_row(row, out),
            Matrix::Tiles(_) => None,
        }
    }
}

impl<'a> From<View<'a>> for Matrix<'a> {
    fn from(view: View<'a>) -> Self {
        Matrix::Rows(view)
    }
}

impl<'a> From<Tiled<'a>> for Matrix<'a> {
    fn from(tiles: Tiled<'a>) -> Self {
        Matrix::Tiles(tiles)
    }
}
