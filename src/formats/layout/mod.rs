//! The engine layout: one way to store every weight format so that processors and GPUs read it fast.
//!
//! A row of a file is a sequence of *items*: the 32-bit words of its codes, its scales. Rows are taken in tiles
//! of [`TILE`]; of each item, the copies of the tile's rows lie together:
//!
//! ```text
//! plane = [tile][item of the row][row of the tile]
//! ```
//!
//! so 64 bytes are one word of each of 16 rows, and whoever holds a vector of them holds 16 outputs that meet the
//! same inputs. That is the whole layout: no bit of a word moves. Planes follow each other at multiples of
//! [`ALIGN`] bytes:
//!
//! | format | planes, with the bytes of an item |
//! |---|---|
//! | `f32`, `f16`, `bf16` | words 4 |
//! | `int8-row`, `int4-row`, `int2-row` | words 4; row scale 4 |
//! | `int4-gN`, `int3-g64` | words 4; group scales 4 |
//! | `mxfp4` | words 4; exponents 1 |
//! | `e8-iq3-lattice` | words of indices 4; words of signs and sub-scale codes 4; super-scales 2 |
//! | `fp8-*` | words 4; block scales 4 or 1, one for the whole tile |
//!
//! Rows are filled up to whole tiles and columns to whole multiples of [`COLS`] with codes that decode to zero
//! (and scales of zero). What a file has behind the last column inside its last byte or block stays as it is, so
//! that [`Tiled::untile`] gives the file's bytes back; kernels multiply it with inputs of zero.
//!
//! Measurements that decided for this layout: `docs/formats.md`.

mod planes;
#[cfg(test)]
mod tests;

pub use planes::{Plane, of as planes};

use super::{Format, Integers, View, ViewError};
use planes::Part;

/// What a file says whose tensors are stored like this (`"layout"` in its metadata).
pub const STAMP: &str = "tile16-v1";
/// Rows of a tile.
pub const TILE: usize = 16;
/// Columns are filled up to a multiple of this.
pub const COLS: usize = 64;
/// Planes start at multiples of this many bytes from the start of the matrix.
pub const ALIGN: usize = 64;

/// The tag that stands for the scales of an E8 matrix in files, as the converter writes it.
const E8_TAG: [u8; 4] = 6f32.to_le_bytes();

/// Bytes of a `[rows, cols]` matrix in the engine layout; `None` for integer tables, which have none, and for sizes
/// that no memory has.
pub fn bytes(format: Format, rows: usize, cols: usize) -> Option<usize> {
    Some(planes(format, rows, cols)?.last().map_or(0, |p| p.at + p.bytes))
}

/// Whether a matrix is worth tiling: it has a whole tile of rows and of columns, so that less than half of the
/// layout's bytes are filling. Vectors are not, which a tile would make 16 times as long, and integer tables, which
/// have no layout.
pub fn suits(format: Format, rows: usize, cols: usize) -> bool {
    rows >= TILE && cols >= COLS && bytes(format, rows, cols).is_some()
}

/// Rewrites a matrix from file order into the engine layout. `None` for formats that have no layout.
pub fn tile(view: &View) -> Option<Vec<u8>> {
    let mut out = vec![0; bytes(view.format, view.rows, view.cols)?];
    tile_into(view, &mut out);
    Some(out)
}

/// As [`tile`], over bytes that are there; those between planes stay as they are.
///
/// # Panics
/// When `out` is shorter than [`bytes`]. Formats without a layout write nothing.
pub fn tile_into(view: &View, out: &mut [u8]) {
    for plane in planes(view.format, view.rows, view.cols).unwrap_or_default() {
        let rows = plane.file_rows(view);
        let tiles = out[plane.at..][..plane.bytes].chunks_exact_mut(plane.tile_bytes().max(1));
        for (t, tile) in tiles.enumerate() {
            for lane in 0..plane.lanes {
                let row = rows.get(plane.file_row(t, lane));
                plane.write_row(row, lane, tile);
            }
        }
    }
}

/// The bytes of a matrix in the engine layout, at an address that is a multiple of [`ALIGN`] as in a file.
#[derive(Clone, Debug)]
pub struct Buffer(Vec<Line>);

#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

impl Buffer {
    /// As [`tile`].
    pub fn tile(view: &View) -> Option<Buffer> {
        let lines = bytes(view.format, view.rows, view.cols)?.div_ceil(ALIGN);
        let mut buffer = Buffer(vec![Line([0; ALIGN]); lines]);
        tile_into(view, bytemuck::cast_slice_mut(&mut buffer.0));
        Some(buffer)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// A matrix in the engine layout, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Tiled<'a> {
    /// Layout of codes and scales inside a row.
    pub format: Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    bytes: &'a [u8],
    planes: Planes,
}

/// The planes of a matrix: three at most.
type Planes = [Option<Plane>; 3];

impl<'a> Tiled<'a> {
    /// Puts a shape on bytes that [`tile`] made.
    ///
    /// # Errors
    /// [`ViewError`] when their number is not that of the shape, or the format has no layout.
    pub fn new(format: Format, rows: usize, cols: usize, bytes: &'a [u8]) -> Result<Tiled<'a>, ViewError> {
        let need = self::bytes(format, rows, cols).map_or(u64::MAX, |n| n as u64);
        if need != bytes.len() as u64 {
            return Err(ViewError { format, rows, cols, part: "tiles", need, found: bytes.len() as u64 });
        }
        let mut planes = Planes::default();
        let known = self::planes(format, rows, cols).unwrap_or_default();
        planes.iter_mut().zip(known).for_each(|(place, plane)| *place = Some(plane));
        Ok(Tiled { format, rows, cols, bytes, planes })
    }

    /// The planes in their order: the code words first.
    pub fn planes(&self) -> impl Iterator<Item = &Plane> {
        self.planes.iter().flatten()
    }

    /// The bytes of plane number `index`; nothing where the format has fewer planes.
    pub fn plane(&self, index: usize) -> &'a [u8] {
        self.planes().nth(index).map_or(&[], |p| &self.bytes[p.at..][..p.bytes])
    }

    /// Bytes of all planes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The file's bytes: data and scales, as [`View`] wants them.
    pub fn untile(&self) -> (Vec<u8>, Vec<u8>) {
        let (r, c) = (self.rows as u64, self.cols as u64);
        // The matrix lies in memory, so its sizes fit.
        let mut data = vec![0; self.format.data_bytes(r, c) as usize];
        let mut scales = vec![0; self.format.scale_bytes(r, c) as usize];
        if self.format == Format::E8 {
            scales.copy_from_slice(&E8_TAG);
        }
        for plane in self.planes() {
            let (stride, per) = (plane.stride, plane.rows_per_line);
            let part = match plane.part {
                Part::Data => &mut data,
                Part::Scales => &mut scales,
            };
            for (line, out) in part.chunks_exact_mut(stride.max(1)).enumerate() {
                plane.read_row(self.bytes, line * per, out);
            }
        }
        (data, scales)
    }

    /// Writes the `cols` values of `row` to the front of `out`, with the bits of [`View::decode_row`].
    ///
    /// # Panics
    /// When `row >= rows` or `out` is shorter than `cols`.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        self.decode_rows(row, &mut out[..self.cols]);
    }

    /// Writes the values of the rows from `first` on, as many as fill `out`: quicker than one by one.
    ///
    /// # Panics
    /// When they reach beyond the matrix, or `out` is no whole number of rows.
    pub fn decode_rows(&self, first: usize, out: &mut [f32]) {
        let count = out.len() / self.cols.max(1);
        assert!(first + count.max(1) <= self.rows, "rows from {first} on of a matrix of {} rows", self.rows);
        assert_eq!(out.len(), count * self.cols);
        let mut line = FileRow::of(self);
        for (row, out) in (first..).zip(out.chunks_exact_mut(self.cols.max(1))) {
            line.read(self, row).decode_row(0, out);
        }
    }

    /// The integers of a row, as [`View::integers`].
    ///
    /// # Panics
    /// When `row >= rows`.
    pub fn integers(&self, row: usize) -> Option<Integers> {
        assert!(row < self.rows, "row {row} of a matrix of {} rows", self.rows);
        FileRow::of(self).read(self, row).integers(0)
    }
}

/// Room for a row as it would lie in a file.
struct FileRow {
    data: Vec<u8>,
    scales: Vec<u8>,
}

impl FileRow {
    fn of(tiles: &Tiled) -> FileRow {
        let bytes = |n: u64| vec![0; n as usize];
        let cols = tiles.cols as u64;
        FileRow { data: bytes(tiles.format.data_bytes(1, cols)), scales: bytes(tiles.format.scale_bytes(1, cols)) }
    }

    /// The row in file order, until the next is read.
    fn read(&mut self, tiles: &Tiled, row: usize) -> View<'_> {
        for plane in tiles.planes() {
            let line = match plane.part {
                Part::Data => &mut self.data,
                Part::Scales => &mut self.scales,
            };
            plane.read_row(tiles.bytes, row, line);
        }
        View { format: tiles.format, rows: 1, cols: tiles.cols, data: &self.data, scales: &self.scales }
    }
}
