//! Where the items of a row lie in the file, and where in the layout.

use super::super::format::{E8_BLOCK, E8_BYTES, FP8_BLOCK, INT3_BYTES, INT3_GROUP, MXFP4_GROUP};
use super::super::{Format, View};
use super::{ALIGN, COLS, TILE};

/// Which of the file's two byte ranges a plane comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Data,
    Scales,
}

/// One plane: `[tile][item][lane]`, items of `width` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plane {
    /// First byte, counted from the start of the matrix.
    pub at: usize,
    /// Bytes, without the filling up to the next plane.
    pub bytes: usize,
    /// Items of a row.
    pub items: usize,
    /// Bytes of an item.
    pub width: usize,
    /// Rows of a tile that have items of their own: [`TILE`], or 1 where the tile shares them.
    pub lanes: usize,
    pub(super) part: Part,
    /// File bytes of a line of items.
    pub(super) stride: usize,
    /// Matrix rows that share a line: 1, or the side of a block.
    pub(super) rows_per_line: usize,
    /// File bytes of a block, items of this plane in it, and where they start.
    block: (usize, usize, usize),
    /// What missing bytes are filled with, so that the codes decode to zero.
    zero: u8,
}

/// The lines of a byte range; a line that the file lacks is empty.
pub(super) struct Lines<'a> {
    bytes: &'a [u8],
    stride: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn get(&self, line: usize) -> &'a [u8] {
        self.bytes.get(line * self.stride..(line + 1) * self.stride).unwrap_or(&[])
    }
}

impl Plane {
    /// Bytes of a tile in this plane.
    pub fn tile_bytes(&self) -> usize {
        self.items * self.lanes * self.width
    }

    pub(super) fn file_rows<'a>(&self, view: &View<'a>) -> Lines<'a> {
        let bytes = match self.part {
            Part::Data => view.data,
            Part::Scales => view.scales,
        };
        Lines { bytes, stride: self.stride }
    }

    /// The file's line with the items of a lane.
    pub(super) fn file_row(&self, tile: usize, lane: usize) -> usize {
        (tile * TILE + lane) / self.rows_per_line
    }

    /// Where item `item` starts in its line.
    fn offset(&self, item: usize) -> usize {
        let (size, items, first) = self.block;
        item / items * size + first + item % items * self.width
    }

    /// Writes a line's items (missing bytes as zero codes) to a tile.
    pub(super) fn write_row(&self, line: &[u8], lane: usize, tile: &mut [u8]) {
        for item in 0..self.items {
            let out = &mut tile[(item * self.lanes + lane) * self.width..][..self.width];
            let from = line.get(self.offset(item)..).unwrap_or(&[]);
            let have = from.len().min(self.width);
            out[..have].copy_from_slice(&from[..have]);
            out[have..].fill(self.zero);
        }
    }

    /// The inverse: collects the items of matrix row `row` into its line.
    pub(super) fn read_row(&self, bytes: &[u8], row: usize, line: &mut [u8]) {
        let tile = &bytes[self.at + row / TILE * self.tile_bytes()..];
        let lane = row % TILE % self.lanes;
        if self.block == (4, 1, 0) && self.lanes == TILE {
            // Words one after the other: most bytes of most formats.
            let words = tile[..self.tile_bytes()].chunks_exact(4 * TILE).map(|words| &words[4 * lane..][..4]);
            line.chunks_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word[..to.len()]));
            return;
        }
        for item in 0..self.items {
            let from = &tile[(item * self.lanes + lane) * self.width..][..self.width];
            let Some(to) = line.get_mut(self.offset(item)..) else { continue };
            let have = to.len().min(self.width);
            to[..have].copy_from_slice(&from[..have]);
        }
    }
}

/// What [`of`] needs to know of a plane that is not the same for all.
struct Kind {
    part: Part,
    width: usize,
    block: (usize, usize, usize),
    /// Columns that a block covers.
    cols: usize,
    rows_per_line: usize,
    zero: u8,
}

fn words(cols: usize, zero: u8) -> Kind {
    Kind { part: Part::Data, width: 4, block: (4, 1, 0), cols, rows_per_line: 1, zero }
}

fn scales(cols: usize, width: usize) -> Kind {
    Kind { part: Part::Scales, width, block: (width, 1, 0), cols, rows_per_line: 1, zero: 0 }
}

/// The planes of a format, `cols` columns wide.
fn kinds(format: Format, cols: usize) -> Option<Vec<Kind>> {
    let row = cols.max(1);
    let e8 = |width, items, first| Kind {
        part: Part::Data,
        width,
        block: (E8_BYTES, items, first),
        cols: E8_BLOCK,
        rows_per_line: 1,
        zero: 0,
    };
    Some(match format {
        Format::F32 => vec![words(1, 0)],
        Format::F16 | Format::Bf16 => vec![words(2, 0)],
        Format::I32 | Format::I64 => return None,
        Format::Int8Row => vec![words(4, 0), scales(row, 4)],
        Format::Int4Row => vec![words(8, 0x88), scales(row, 4)],
        Format::Int2Row => vec![words(16, 0xAA), scales(row, 4)],
        Format::Int4Grouped { group } => vec![words(8, 0x88), scales((group as usize).max(1), 4)],
        // The zero code is 4: low planes of zeros, high planes of ones. A row of a file ends with a whole group, so
        // only whole groups are filled up, and a scale of zero makes zeros of any code.
        Format::Int3G64 => {
            vec![Kind { block: (INT3_BYTES, 6, 0), cols: INT3_GROUP, ..words(0, 0) }, scales(INT3_GROUP, 4)]
        }
        Format::E8 => vec![e8(4, 16, 0), e8(4, 8, 64), e8(2, 1, 96)],
        Format::Mxfp4 => vec![words(8, 0), scales(MXFP4_GROUP, 1)],
        Format::Fp8Block { scale } => {
            let shared = Kind { rows_per_line: FP8_BLOCK, ..scales(FP8_BLOCK, scale.width()) };
            vec![words(4, 0), shared]
        }
    })
}

/// The planes of a `[rows, cols]` matrix in their order; `None` where there is no layout.
pub fn of(format: Format, rows: usize, cols: usize) -> Option<Vec<Plane>> {
    let (wide, tiles) = (cols.checked_next_multiple_of(COLS)?, rows.div_ceil(TILE));
    let mut at = 0usize;
    let mut out = vec![];
    for k in kinds(format, wide)? {
        let items = wide.div_ceil(k.cols).checked_mul(k.block.1)?;
        let lanes = if k.rows_per_line == 1 { TILE } else { 1 };
        let bytes = tiles.checked_mul(items)?.checked_mul(lanes * k.width)?;
        let stride = match k.part {
            Part::Data => format.row_bytes(cols as u64),
            Part::Scales => format.scale_bytes(1, cols as u64),
        };
        let (part, width, rows_per_line, block, zero) = (k.part, k.width, k.rows_per_line, k.block, k.zero);
        let stride = usize::try_from(stride).ok()?;
        out.push(Plane { at, bytes, items, width, lanes, part, stride, rows_per_line, block, zero });
        at = at.checked_add(bytes)?.checked_next_multiple_of(ALIGN)?;
    }
    Some(out)
}
