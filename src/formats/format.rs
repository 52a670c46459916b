//! The list of formats and the byte counts that follow from a shape.

use std::borrow::Cow;
use std::fmt;

/// Side of the square block that shares one scale in [`Format::Fp8Block`].
pub(super) const FP8_BLOCK: usize = 128;

/// Inputs that share one scale in [`Format::Mxfp4`].
pub(super) const MXFP4_GROUP: usize = 32;

/// Inputs that share one scale in [`Format::Int3G64`], and the bytes of their codes.
pub(super) const INT3_GROUP: usize = 64;
pub(super) const INT3_BYTES: usize = 24;

/// Inputs of one block of [`Format::E8`], and its bytes.
pub(super) const E8_BLOCK: usize = 256;
pub(super) const E8_BYTES: usize = 98;

/// Bytes of the sidecar of [`Format::E8`]: a tag of the whole matrix that no reader looks into.
pub(super) const E8_TAG: u64 = 4;

/// How the scale of one 128x128 block of [`Format::Fp8Block`] is stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlockScale {
    /// Four bytes, a plain f32.
    F32,
    /// One byte `e`, worth `2^(e-127)`; 255 is NaN and 0 is the subnormal `2^-127`.
    Ue8m0,
}

impl BlockScale {
    /// Bytes of one scale.
    pub(super) const fn width(self) -> usize {
        match self {
            BlockScale::F32 => 4,
            BlockScale::Ue8m0 => 1,
        }
    }
}

/// Layout of a `[rows, cols]` matrix: its codes ("data") and, for quantised formats, its scales.
///
/// Source: formats.md section 0 (table) and sections 1 to 7.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Format {
    /// IEEE single precision, no scales.
    F32,
    /// IEEE half precision, no scales.
    F16,
    /// The upper half of an f32, no scales.
    Bf16,
    /// Signed 32-bit integers: a lookup table, not weights.
    I32,
    /// Signed 64-bit integers: a lookup table, not weights.
    I64,
    /// One signed byte per element, one f32 scale per row.
    Int8Row,
    /// Two elements per byte (even column in the low nibble), value `nibble - 8`, one f32 scale per row.
    Int4Row,
    /// Codes as [`Format::Int4Row`], one f32 scale per `group` consecutive columns of a row.
    Int4Grouped {
        /// Columns that share a scale; the last group of a row may be shorter.
        group: u32,
    },
    /// Four elements per byte (the first in the lowest bits), value `field - 2`, one f32 scale per row.
    Int2Row,
    /// 64 elements in 24 bytes (16 of low bit pairs, 8 of high bits), value `code - 4`, one f32 scale each.
    Int3G64,
    /// 256 elements in 98 bytes: codebook entries, signs, sub-scales and an f16 scale. The matrix is stored
    /// multiplied by the rotation of [`rotation`](super::rotation), see [`Format::rotates`].
    E8,
    /// Two e2m1 elements per byte (even column in the low nibble), one exponent byte per 32 columns of a row.
    Mxfp4,
    /// One e4m3 byte per element, one scale per 128x128 block.
    Fp8Block {
        /// How each block's scale is stored.
        scale: BlockScale,
    },
}

impl Format {
    /// Short name for messages, file names and kernel lookup; distinct for every layout.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Format::F32 => "f32",
            Format::F16 => "f16",
            Format::Bf16 => "bf16",
            Format::I32 => "i32",
            Format::I64 => "i64",
            Format::Int8Row => "int8-row",
            Format::Int4Row => "int4-row",
            Format::Int4Grouped { group } => return Cow::Owned(format!("int4-g{group}")),
            Format::Int2Row => "int2-row",
            Format::Int3G64 => "int3-g64",
            Format::E8 => "e8-iq3-lattice",
            Format::Mxfp4 => "mxfp4",
            Format::Fp8Block { scale: BlockScale::F32 } => "fp8-b128",
            Format::Fp8Block { scale: BlockScale::Ue8m0 } => "fp8-b128-ue8m0",
        })
    }

    /// Whether decoded values are `W Q` in place of `W`, with `Q` the orthogonal matrix of
    /// [`rotation`](super::rotation). A product `W x` is then `(W Q) (Q^T x)`: whoever multiplies has to
    /// rotate `x` first. Source: formats.md 6.5.
    pub fn rotates(self) -> bool {
        self == Format::E8
    }

    /// Data bytes of one row of `cols` elements (rows follow each other without padding).
    pub fn row_bytes(self, cols: u64) -> u64 {
        match self {
            Format::F32 | Format::I32 => cols.saturating_mul(4),
            Format::F16 | Format::Bf16 => cols.saturating_mul(2),
            Format::I64 => cols.saturating_mul(8),
            Format::Int8Row | Format::Fp8Block { .. } => cols,
            Format::Int4Row | Format::Int4Grouped { .. } | Format::Mxfp4 => cols.div_ceil(2),
            Format::Int2Row => cols.div_ceil(4),
            Format::Int3G64 => cols.div_ceil(INT3_GROUP as u64).saturating_mul(INT3_BYTES as u64),
            Format::E8 => cols.div_ceil(E8_BLOCK as u64).saturating_mul(E8_BYTES as u64),
        }
    }

    /// Data bytes of a `[rows, cols]` matrix, without scales.
    ///
    /// Saturates at `u64::MAX`, a size no file has, so an absurd shape compares as "does not fit".
    pub fn data_bytes(self, rows: u64, cols: u64) -> u64 {
        rows.saturating_mul(self.row_bytes(cols))
    }

    /// Scale bytes of a `[rows, cols]` matrix, 0 for formats without scales. Saturates.
    ///
    /// For [`Format::E8`] these are the four bytes of a tag, whatever the shape.
    pub fn scale_bytes(self, rows: u64, cols: u64) -> u64 {
        let (scale_rows, per_row, width) = match self {
            Format::F32 | Format::F16 | Format::Bf16 | Format::I32 | Format::I64 => return 0,
            Format::E8 => return E8_TAG,
            Format::Int8Row | Format::Int4Row | Format::Int2Row => (rows, 1, 4),
            Format::Int3G64 => (rows, cols.div_ceil(INT3_GROUP as u64), 4),
            // A group of 0 cannot be read from any file; treating it as 1 keeps the division defined.
            Format::Int4Grouped { group } => (rows, cols.div_ceil(u64::from(group.max(1))), 4),
            Format::Mxfp4 => (rows, cols.div_ceil(MXFP4_GROUP as u64), 1),
            Format::Fp8Block { scale } => {
                let block = FP8_BLOCK as u64;
                (rows.div_ceil(block), cols.div_ceil(block), scale.width() as u64)
            }
        };
        scale_rows.saturating_mul(per_row).saturating_mul(width)
    }

    /// Data and scale bytes of a `[rows, cols]` matrix. Saturates.
    pub fn bytes(self, rows: u64, cols: u64) -> u64 {
        self.data_bytes(rows, cols).saturating_add(self.scale_bytes(rows, cols))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_stable() {
        let all = [
            (Format::F32, "f32"),
            (Format::F16, "f16"),
            (Format::Bf16, "bf16"),
            (Format::I32, "i32"),
            (Format::I64, "i64"),
            (Format::Int8Row, "int8-row"),
            (Format::Int4Row, "int4-row"),
            (Format::Int4Grouped { group: 64 }, "int4-g64"),
            (Format::Int2Row, "int2-row"),
            (Format::Int3G64, "int3-g64"),
            (Format::E8, "e8-iq3-lattice"),
            (Format::Mxfp4, "mxfp4"),
            (Format::Fp8Block { scale: BlockScale::F32 }, "fp8-b128"),
            (Format::Fp8Block { scale: BlockScale::Ue8m0 }, "fp8-b128-ue8m0"),
        ];
        for (format, name) in all {
            assert_eq!(format.to_string(), name);
        }
    }

    #[test]
    fn sizes_of_published_experts() {
        // GLM-5.2 expert, three 6144x2048 matrices, and the two MXFP4 models (formats.md 9.5, 7.1).
        let g64 = Format::Int4Grouped { group: 64 };
        assert_eq!(2 * g64.bytes(2048, 6144) + g64.bytes(6144, 2048), 21_233_664);
        let mx = Format::Mxfp4;
        assert_eq!(2 * mx.bytes(3072, 3584) + mx.bytes(3584, 3072), 17_547_264);
        assert_eq!(2 * mx.bytes(2048, 4096) + mx.bytes(4096, 2048), 13_369_344);
        // The GLM-5.2 expert in E8: codes of formats.md 9.5 and three tags.
        assert_eq!(2 * Format::E8.bytes(2048, 6144) + Format::E8.bytes(6144, 2048), 14_450_688 + 12);
    }

    #[test]
    fn ragged_shapes_round_up() {
        assert_eq!(Format::Int4Row.data_bytes(5, 131), 330);
        assert_eq!(Format::Int4Grouped { group: 48 }.scale_bytes(5, 200), 100);
        assert_eq!(Format::Mxfp4.scale_bytes(3, 33), 6);
        assert_eq!(Format::Int2Row.bytes(6, 133), 204 + 24);
        assert_eq!(Format::Int3G64.bytes(5, 150), 360 + 60);
        assert_eq!(Format::E8.bytes(3, 257), 3 * 196 + 4);
        let fp8 = Format::Fp8Block { scale: BlockScale::F32 };
        assert_eq!((fp8.data_bytes(130, 200), fp8.scale_bytes(130, 200)), (26_000, 16));
    }

    #[test]
    fn absurd_shapes_saturate() {
        assert_eq!(Format::F32.bytes(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(Format::E8.data_bytes(1, u64::MAX), (u64::MAX / 256 + 1) * 98);
        assert_eq!(Format::E8.bytes(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(Format::Int4Grouped { group: 0 }.scale_bytes(u64::MAX, 2), u64::MAX);
    }
}
