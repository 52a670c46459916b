//! Rows of f32 to stored bytes.

use super::format::{E8_BLOCK, E8_TAG, FP8_BLOCK, MXFP4_GROUP};
use super::rotation::Rotation;
use super::{BlockScale, Format, View, e8, float, fp8, int, mxfp4, planes};

/// Makes the bytes of a matrix from its rows, in blocks of rows: memory follows the block, not the matrix.
///
/// The values given are those of the weight. For a format that [`rotates`](Format::rotates) the encoder rotates
/// them, so its bytes decode to the rotated matrix.
///
/// | format | scale | codes |
/// |---|---|---|
/// | `f32`, `f16`, `bf16` | none | nearest, ties to even |
/// | `int8-row`, `int4-row`, `int4-gN`, `int3-g64`, `int2-row` | max \|w\| over 127, 7, 7, 3, 1, at least 1e-8 | nearest of `w / scale`, ties to even |
/// | `mxfp4` | the OCP MX exponent or the next, by squared error | nearest, ties to the even code |
/// | `fp8-b128` | max \|w\| / 448 | nearest, ties to even |
/// | `fp8-b128-ue8m0` | least power of two with max \|w\| <= 448 scale | nearest, ties to even |
/// | `e8-iq3-lattice` | root mean square / 20, 16 sub-scales tried | nearest codebook entries |
///
/// A row's bytes depend on that row alone, except for fp8, where they depend on the line of blocks. Source:
/// formats.md sections 1 to 7; the rules for MXFP4 and fp8 are this project's (`docs/formats.md`).
#[derive(Debug)]
pub struct Encoder {
    format: Format,
    cols: usize,
    /// Rows so far.
    rows: usize,
    rotation: Option<Rotation>,
    started: bool,
}

/// The bytes of a matrix: what [`View::new`] takes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Encoded {
    /// Codes or plain values.
    pub data: Vec<u8>,
    /// Scales; empty when the format has none.
    pub scales: Vec<u8>,
}

/// Values that a format cannot hold. Rows count from the first one given to the encoder.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// A lookup table, which is copied and not encoded.
    #[error("{format} is for tables of integers; weights are encoded in another format")]
    Table {
        /// The format asked for.
        format: Format,
    },
    /// A row length that the format has no layout for.
    #[error("{format} cannot hold rows of {cols} columns: they must be a multiple of {multiple}")]
    Cols {
        /// The format asked for.
        format: Format,
        /// Columns of a row.
        cols: usize,
        /// What would do.
        multiple: usize,
    },
    /// A group size that codes cannot be packed for.
    #[error("{format} cannot be written: a group is an even number of columns, at least 2")]
    Group {
        /// The format asked for.
        format: Format,
    },
    /// Values that are no whole number of rows.
    #[error("{values} values are no whole number of rows of {cols} columns")]
    Ragged {
        /// Values given.
        values: usize,
        /// Columns of a row.
        cols: usize,
    },
    /// Rows behind a block of rows that was not full, whose scale is already written.
    #[error("{format} is encoded in blocks of {block} rows, and {rows} were given before the last block")]
    Block {
        /// The format asked for.
        format: Format,
        /// Rows of a block.
        block: usize,
        /// Rows given so far.
        rows: usize,
    },
    /// NaN or infinity.
    #[error("the value at row {row}, column {column} is {value}; the source of these weights is damaged")]
    NotFinite {
        /// Row of the value.
        row: usize,
        /// Column of the value.
        column: usize,
        /// NaN or an infinity.
        value: f32,
    },
    /// A number beyond the range of the format: 65504 in f16, 3.39e38 in bf16, 1.7e38 in formats with scales, and
    /// blocks with a root mean square of 1.3e6 in E8.
    #[error("{format} cannot hold the values from row {row}, column {column}: {value} is beyond its range")]
    Range {
        /// The format asked for.
        format: Format,
        /// Row of the value.
        row: usize,
        /// Column of the value; the first of its block in E8.
        column: usize,
        /// The value.
        value: f32,
    },
}

/// Encodes a whole matrix of rows of `cols` values.
///
/// # Errors
/// [`EncodeError`], as [`Encoder::new`] and [`Encoder::push`].
pub fn encode(format: Format, cols: usize, values: &[f32]) -> Result<Encoded, EncodeError> {
    let (mut encoder, mut out) = (Encoder::new(format, cols)?, Encoded::default());
    encoder.push(values, &mut out.data, &mut out.scales)?;
    Ok(out)
}

/// Largest magnitude in formats with scales: above it, a code rounded up times a scale may be infinite.
const SCALED: f32 = f32::MAX / 2.0;

impl Encoder {
    /// An encoder for a matrix with `cols` columns.
    ///
    /// # Errors
    /// [`EncodeError::Cols`] where the format needs a multiple: 256 for E8, 32 for MXFP4, the group for
    /// `int4-gN`, whose readers guess the group from the number of scales and could guess wrong otherwise.
    /// [`EncodeError::Group`] for a group of an odd size, [`EncodeError::Table`] for `i32` and `i64`.
    pub fn new(format: Format, cols: usize) -> Result<Encoder, EncodeError> {
        let multiple = match format {
            Format::I32 | Format::I64 => return Err(EncodeError::Table { format }),
            Format::Int4Grouped { group } if group == 0 || group % 2 == 1 => return Err(EncodeError::Group { format }),
            Format::Int4Grouped { group } => group as usize,
            Format::Mxfp4 => MXFP4_GROUP,
            Format::E8 => E8_BLOCK,
            _ => 1,
        };
        if !cols.is_multiple_of(multiple) {
            return Err(EncodeError::Cols { format, cols, multiple });
        }
        let rotation = format.rotates().then(|| Rotation::new(cols));
        Ok(Encoder { format, cols, rows: 0, rotation, started: false })
    }

    /// Rows that share scales: every [`Encoder::push`] but the last must be a multiple of it.
    pub fn block(&self) -> usize {
        match self.format {
            Format::Fp8Block { .. } => FP8_BLOCK,
            _ => 1,
        }
    }

    /// Rows encoded so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends the bytes of the next rows to `data` and `scales`.
    ///
    /// The first call, even with no rows, also writes what the matrix has once: the tag of E8, the f32 6.
    ///
    /// # Errors
    /// [`EncodeError::NotFinite`] and [`EncodeError::Range`] name the first such value,
    /// [`EncodeError::Ragged`] and [`EncodeError::Block`] a wrong number of values. On any error the two
    /// vectors are as before and the encoder can go on.
    pub fn push(&mut self, values: &[f32], data: &mut Vec<u8>, scales: &mut Vec<u8>) -> Result<(), EncodeError> {
        let rows = self.check(values)?;
        let (data_before, scales_before) = (data.len(), scales.len());
        if self.format == Format::E8 && !self.started {
            scales.extend(6f32.to_le_bytes());
            debug_assert_eq!(scales.len() - scales_before, E8_TAG as usize);
        }
        if let Err(error) = self.rows_to(values, data, scales) {
            data.truncate(data_before);
            scales.truncate(scales_before);
            return Err(error);
        }
        self.started = true;
        self.rows += rows;
        Ok(())
    }

    /// The number of rows, after everything is checked that needs no encoding.
    fn check(&self, values: &[f32]) -> Result<usize, EncodeError> {
        let (cols, block) = (self.cols, self.block());
        if values.is_empty() {
            return Ok(0);
        }
        if cols == 0 || !values.len().is_multiple_of(cols) {
            return Err(EncodeError::Ragged { values: values.len(), cols });
        }
        if !self.rows.is_multiple_of(block) {
            return Err(EncodeError::Block { format: self.format, block, rows: self.rows });
        }
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            return Err(EncodeError::NotFinite { row: self.rows + at / cols, column: at % cols, value: values[at] });
        }
        let scaled = !matches!(self.format, Format::F32 | Format::F16 | Format::Bf16);
        match values.iter().position(|v| scaled && v.abs() > SCALED) {
            Some(at) => Err(self.range(0, at, values[at])),
            None => Ok(values.len() / cols),
        }
    }

    fn rows_to(&self, values: &[f32], data: &mut Vec<u8>, scales: &mut Vec<u8>) -> Result<(), EncodeError> {
        let rows = || values.chunks_exact(self.cols.max(1));
        match self.format {
            Format::F32 => float::encode_f32(values, data),
            Format::F16 | Format::Bf16 => return self.halves(values, data),
            Format::Int8Row => rows().for_each(|r| int::encode_int8(r, data, scales)),
            Format::Int4Row => rows().for_each(|r| int::encode_int4(r, self.cols, data, scales)),
            Format::Int4Grouped { group } => rows().for_each(|r| int::encode_int4(r, group as usize, data, scales)),
            Format::Int2Row => rows().for_each(|r| planes::encode_int2(r, data, scales)),
            Format::Int3G64 => rows().for_each(|r| planes::encode_int3(r, data, scales)),
            Format::E8 => return self.lattice(values, data),
            Format::Mxfp4 => rows().for_each(|r| mxfp4::encode_row(r, data, scales)),
            Format::Fp8Block { scale } => self.blocks(values, scale, data, scales),
            Format::I32 | Format::I64 => return Err(EncodeError::Table { format: self.format }),
        }
        Ok(())
    }

    fn halves(&self, values: &[f32], data: &mut Vec<u8>) -> Result<(), EncodeError> {
        let before = data.len();
        match self.format {
            Format::F16 => float::encode_f16(values, data),
            _ => float::encode_bf16(values, data),
        }
        // An exponent of all ones: infinity, since no value was NaN.
        let mask = if self.format == Format::F16 { 0x7C00 } else { 0x7F80 };
        let codes = data[before..].as_chunks::<2>().0;
        match codes.iter().position(|c| u16::from_le_bytes(*c) & mask == mask) {
            Some(at) => Err(self.range(0, at, values[at])),
            None => Ok(()),
        }
    }

    fn lattice(&self, values: &[f32], data: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut turned = vec![0.0; self.cols];
        for (row, values) in values.chunks_exact(self.cols.max(1)).enumerate() {
            turned.copy_from_slice(values);
            if let Some(rotation) = &self.rotation {
                rotation.forward(&mut turned);
            }
            let far = |e: e8::Overflow| self.range(row, e.column, turned[e.column]);
            e8::encode_row(&turned, data).map_err(far)?;
        }
        Ok(())
    }

    fn blocks(&self, values: &[f32], kind: BlockScale, data: &mut Vec<u8>, scales: &mut Vec<u8>) {
        let line = (self.cols * FP8_BLOCK).max(1);
        values.chunks(line).for_each(|rows| fp8::encode_rows(rows, self.cols, kind, data, scales));
    }

    /// The value `at` places behind the start of row `row` of this call.
    fn range(&self, row: usize, at: usize, value: f32) -> EncodeError {
        let cols = self.cols.max(1);
        EncodeError::Range { format: self.format, row: self.rows + row + at / cols, column: at % cols, value }
    }
}

impl Encoded {
    /// The bytes with their shape.
    ///
    /// # Errors
    /// [`ViewError`](super::ViewError) when they were encoded for another format or shape.
    pub fn view(&self, format: Format, rows: usize, cols: usize) -> Result<View<'_>, super::ViewError> {
        View::new(format, rows, cols, &self.data, &self.scales)
    }
}
