//! A borrowed matrix and its row decoder.

use super::format::{FP8_BLOCK, INT3_GROUP, MXFP4_GROUP};
use super::{Format, e8, float, fp8, int, mxfp4, planes};
use std::ops::Range;

/// The bytes of a `[rows, cols]` matrix, borrowed from where they are stored.
///
/// `data` holds `format.data_bytes(rows, cols)` bytes and `scales` holds
/// `format.scale_bytes(rows, cols)` bytes, both at any alignment. [`View::new`] checks this.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Layout of both byte ranges.
    pub format: Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// Codes or plain values, row-major.
    pub data: &'a [u8],
    /// Scales, row-major; empty when the format has none.
    pub scales: &'a [u8],
}

/// Byte ranges that cannot hold the matrix they are said to hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a {format} matrix of {rows} x {cols} takes {need} bytes of {part}, not {found}; \
     the shape or the format given for these bytes is wrong"
)]
pub struct ViewError {
    /// Layout that was asked for.
    pub format: Format,
    /// Outputs that were asked for.
    pub rows: usize,
    /// Inputs that were asked for.
    pub cols: usize,
    /// Which range is wrong: `data` or `scales`.
    pub part: &'static str,
    /// Bytes the shape takes.
    pub need: u64,
    /// Bytes that were given.
    pub found: u64,
}

impl<'a> View<'a> {
    /// Puts a shape on two byte ranges.
    ///
    /// # Errors
    /// [`ViewError`] when either range has another length than the format and shape need.
    pub fn new(
        format: Format,
        rows: usize,
        cols: usize,
        data: &'a [u8],
        scales: &'a [u8],
    ) -> Result<View<'a>, ViewError> {
        let (r, c) = (rows as u64, cols as u64);
        let parts = [
            ("data", format.data_bytes(r, c), data.len() as u64),
            ("scales", format.scale_bytes(r, c), scales.len() as u64),
        ];
        for (part, need, found) in parts {
            if need != found {
                return Err(ViewError { format, rows, cols, part, need, found });
            }
        }
        Ok(View { format, rows, cols, data, scales })
    }

    /// Writes the `cols` values of `row` to the front of `out`.
    ///
    /// The values are exact: one f32 multiplication `code * scale` per element for quantised
    /// formats, widening for floats, conversion to the nearest f32 for integer tables. [`Format::E8`]
    /// multiplies three times, and its values are those of the rotated matrix ([`Format::rotates`]).
    ///
    /// # Panics
    /// When `row >= rows`, `out` is shorter than `cols`, or the ranges are shorter than
    /// [`View::new`] would have allowed.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        let out = &mut out[..self.cols];
        let data = self.data_row(row);
        match self.format {
            Format::F32 => float::f32_row(data, out),
            Format::F16 => float::f16_row(data, out),
            Format::Bf16 => float::bf16_row(data, out),
            Format::I32 => int::i32_as_f32(data, out),
            Format::I64 => int::i64_as_f32(data, out),
            Format::Int8Row => int::int8_row(data, slice(self.scales, row, 4), out),
            Format::Int4Row => int::int4_row(data, slice(self.scales, row, 4), self.cols, out),
            Format::Int4Grouped { group } => {
                let group = (group as usize).max(1);
                let scales = slice(self.scales, row, self.cols.div_ceil(group) * 4);
                int::int4_row(data, scales, group, out);
            }
            Format::Int2Row => planes::int2_row(data, slice(self.scales, row, 4), out),
            Format::Int3G64 => {
                let scales = slice(self.scales, row, self.cols.div_ceil(INT3_GROUP) * 4);
                planes::int3_row(data, scales, out);
            }
            Format::E8 => e8::row(data, out),
            Format::Mxfp4 => {
                let scales = slice(self.scales, row, self.cols.div_ceil(MXFP4_GROUP));
                mxfp4::row(data, scales, out);
            }
            Format::Fp8Block { scale } => {
                let stride = self.cols.div_ceil(FP8_BLOCK) * scale.width();
                fp8::row(data, slice(self.scales, row / FP8_BLOCK, stride), scale, out);
            }
        }
    }

    /// Writes the `cols` integers of `row` to the front of `out`; `None`, with `out` untouched,
    /// when the format is not an integer table ([`Format::I32`], [`Format::I64`]).
    ///
    /// # Panics
    /// As [`View::decode_row`].
    pub fn int_row(&self, row: usize, out: &mut [i64]) -> Option<()> {
        match self.format {
            Format::I32 => int::i32_row(self.data_row(row), &mut out[..self.cols]),
            Format::I64 => int::i64_row(self.data_row(row), &mut out[..self.cols]),
            _ => return None,
        }
        Some(())
    }

    /// Some of the rows. For fp8, whose blocks share scales, they start at a multiple of 128.
    ///
    /// # Panics
    /// When `rows` reaches beyond the matrix.
    pub fn part(&self, rows: Range<usize>) -> View<'a> {
        let lines = |bytes: &'a [u8], stride: u64, per: usize| {
            // Lines of this matrix lie in memory, so that their bytes fit.
            &bytes[rows.start / per * stride as usize..rows.end.div_ceil(per) * stride as usize]
        };
        let cols = self.cols as u64;
        let scales = match self.format {
            // A tag of the whole matrix.
            Format::E8 => self.scales,
            Format::Fp8Block { .. } => lines(self.scales, self.format.scale_bytes(1, cols), FP8_BLOCK),
            _ => lines(self.scales, self.format.scale_bytes(1, cols), 1),
        };
        View { rows: rows.len(), data: lines(self.data, self.format.row_bytes(cols), 1), scales, ..*self }
    }

    pub(super) fn data_row(&self, row: usize) -> &'a [u8] {
        assert!(row < self.rows, "row {row} of a matrix of {} rows", self.rows);
        // `cols` elements of this row lie in memory, so the stride fits a usize.
        slice(self.data, row, self.format.row_bytes(self.cols as u64) as usize)
    }
}

/// Line number `row` of `bytes` cut into lines of `stride` bytes.
pub(super) fn slice(bytes: &[u8], row: usize, stride: usize) -> &[u8] {
    &bytes[row * stride..][..stride]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::BlockScale;

    #[test]
    fn new_checks_both_ranges() {
        let bytes = [0u8; 16];
        assert!(View::new(Format::F32, 2, 2, &bytes, &[]).is_ok());
        let short = View::new(Format::F32, 2, 3, &bytes, &[]).unwrap_err();
        assert_eq!((short.part, short.need, short.found), ("data", 24, 16));
        let fp8 = Format::Fp8Block { scale: BlockScale::F32 };
        let scales = View::new(fp8, 4, 4, &bytes, &[]).unwrap_err();
        assert_eq!((scales.part, scales.need), ("scales", 4));
        assert!(View::new(Format::I64, usize::MAX, usize::MAX, &bytes, &[]).is_err());
    }

    #[test]
    fn empty_columns_decode_to_nothing() {
        let view = View::new(Format::F32, 3, 0, &[], &[]).unwrap();
        view.decode_row(2, &mut []);
    }

    #[test]
    #[should_panic(expected = "row 2 of a matrix of 2 rows")]
    fn row_out_of_range_is_named() {
        let view = View::new(Format::F32, 2, 1, &[0; 8], &[]).unwrap();
        view.decode_row(2, &mut [0.0]);
    }
}
