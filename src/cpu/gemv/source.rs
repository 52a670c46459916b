//! Where the words of 16 weight rows come from: the engine layout, or a file's row order transposed on the way.

use super::isa::Isa;
use super::order::UNIT;
use crate::formats::layout::{TILE, Tiled};
use crate::formats::{Format, View};
use std::marker::PhantomData;

/// Bytes behind a place that a kernel asks for ahead of time: measured, see docs/performance.md.
const AHEAD: usize = 2048;
/// The same for each of 16 rows of a file.
const AHEAD_ROW: usize = 256;

/// Codes and scales of one tile.
///
/// # Safety
/// Units, groups and so on must lie inside the matrix; for the instruction set see [`Isa`].
pub(super) trait Source {
    /// `count` words, all of unit `unit`, of plane `plane`: `[word][lane]`, to be read at once.
    unsafe fn words<S: Isa>(&mut self, plane: usize, unit: usize, count: usize) -> *const u8;
    /// The f32 scales of group `group`.
    unsafe fn scales<S: Isa>(&self, group: usize) -> S::F;
    /// The exponent bytes of group `group`.
    unsafe fn exponents<S: Isa>(&self, group: usize) -> S::I;
    /// The f16 super-scales of block `block`.
    unsafe fn halves<S: Isa>(&self, block: usize) -> S::F;
    /// The scales of fp8 block `block`.
    unsafe fn blocks<S: Isa>(&self, block: usize) -> S::F;
}

/// The scale of an fp8 block.
fn fp8_scale(bytes: &[u8], block: usize, width: usize) -> f32 {
    match bytes.get(block * width..(block + 1) * width) {
        Some([a, b, c, d]) => f32::from_le_bytes([*a, *b, *c, *d]),
        Some([0]) => f32::from_bits(1 << 22),
        Some([255]) | None => f32::NAN,
        Some([e, ..]) => f32::from_bits(u32::from(*e) << 23),
        Some([]) => f32::NAN,
    }
}

/// A tile of the engine layout: planes of the tile alone.
pub(super) struct Tile<'a> {
    planes: [&'a [u8]; 3],
}

impl<'a> Tile<'a> {
    pub fn new(w: &Tiled<'a>, tile: usize) -> Self {
        let mut planes: [&[u8]; 3] = [&[]; 3];
        for (i, plane) in w.planes().enumerate() {
            let size = plane.items * plane.lanes * plane.width;
            planes[i] = &w.plane(i)[tile * size..][..size];
        }
        Tile { planes }
    }

    /// `bytes` bytes at `at` of a plane.
    #[inline(always)]
    fn at(&self, plane: usize, at: usize, bytes: usize) -> *const u8 {
        debug_assert!(at + bytes <= self.planes[plane].len());
        self.planes[plane].as_ptr().wrapping_add(at)
    }
}

impl Source for Tile<'_> {
    #[inline(always)]
    unsafe fn words<S: Isa>(&mut self, plane: usize, unit: usize, count: usize) -> *const u8 {
        let p = self.at(plane, unit * count * 64, count * 64);
        for w in 0..count {
            // SAFETY: a prefetch may name any address.
            unsafe { S::prefetch(p.wrapping_add(w * 64 + AHEAD)) };
        }
        p
    }
    #[inline(always)]
    unsafe fn scales<S: Isa>(&self, group: usize) -> S::F {
        // SAFETY: the plane has 64 bytes for each group of the tile.
        unsafe { S::load_f(self.at(1, group * 64, 64).cast()) }
    }
    #[inline(always)]
    unsafe fn exponents<S: Isa>(&self, group: usize) -> S::I {
        // SAFETY: the plane has 16 bytes for each group of the tile.
        unsafe { S::load_bytes(self.at(1, group * 16, 16)) }
    }
    #[inline(always)]
    unsafe fn halves<S: Isa>(&self, block: usize) -> S::F {
        // SAFETY: the plane has 32 bytes for each block of the tile.
        unsafe { S::load_halves(self.at(2, block * 32, 32)) }
    }
    #[inline(always)]
    unsafe fn blocks<S: Isa>(&self, block: usize) -> S::F {
        let planes = self.planes;
        // Four bytes or one for every 128 columns, and 16 words of codes for every 64.
        let blocks = (planes[0].len() / (16 * 64)).div_ceil(2).max(1);
        // SAFETY: the caller's promise about the instruction set.
        unsafe { S::splat_f(fp8_scale(planes[1], block, planes[1].len() / blocks)) }
    }
}

/// Words that are transposed at once, at most.
const PIECE: usize = 64;

/// Where the words of a plane lie in a file's row: `words` of them from `first` on in every `bytes` bytes.
#[derive(Clone, Copy)]
struct Blocks {
    bytes: usize,
    words: usize,
    first: usize,
}

/// 16 rows of a file (the last one again where the matrix has no more).
///
/// Invariant: data and scales have the lengths of the shape, which `new` checks, so every row has `stride` bytes
/// from its start in `rows` on, and `scales + 1` scales of its format's width from its start in `lines` on.
pub(super) struct Rows<'a> {
    rows: [*const u8; TILE],
    stride: usize,
    lines: [*const u8; TILE],
    /// Bytes of a scale.
    width: usize,
    /// The last scale of a line: it stands in for those of columns that do not exist.
    scales: usize,
    blocks: [Blocks; 2],
    /// Transposed words of plane 0 and 1: the number of the piece plus one, then `[word][lane]`.
    pieces: [(usize, Piece); 2],
    view: PhantomData<&'a [u8]>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Piece([u32; PIECE * TILE]);

impl<'a> Rows<'a> {
    /// # Panics
    /// When `first` lies behind the matrix, or the view has other lengths than its shape.
    pub fn new(w: View<'a>, first: usize) -> Self {
        let (r, c) = (w.rows as u64, w.cols as u64);
        assert!(first < w.rows, "row {first} of {}", w.rows);
        assert!(w.format.data_bytes(r, c) == w.data.len() as u64, "data of another shape");
        assert!(w.format.scale_bytes(r, c) == w.scales.len() as u64, "scales of another shape");
        // Both lie in memory, so they fit.
        let (stride, line) = (w.format.row_bytes(c) as usize, w.format.scale_bytes(1, c) as usize);
        let (share, width) = match w.format {
            Format::Fp8Block { .. } => (128, line / w.cols.div_ceil(128).max(1)),
            Format::Mxfp4 => (1, 1),
            // The tag of E8 belongs to no row.
            Format::E8 => (usize::MAX, 4),
            _ => (1, 4),
        };
        let lane = |l: usize| (first + l).min(w.rows - 1);
        let rows = std::array::from_fn(|l| w.data[lane(l) * stride..][..stride].as_ptr());
        let lines = std::array::from_fn(|l| w.scales[lane(l) / share * line..][..line].as_ptr());
        let blocks = match w.format {
            Format::E8 => [Blocks { bytes: 98, words: 16, first: 0 }, Blocks { bytes: 98, words: 8, first: 64 }],
            _ => [Blocks { bytes: 64, words: 16, first: 0 }; 2],
        };
        let scales = (line / width.max(1)).saturating_sub(1);
        Rows {
            rows,
            stride,
            lines,
            width,
            scales,
            blocks,
            pieces: [(0, Piece([0; PIECE * TILE])); 2],
            view: PhantomData,
        }
    }

    /// Transposes `words` words of every row, in steps of 16.
    #[inline(always)]
    unsafe fn fill<S: Isa>(&mut self, plane: usize, from: usize, words: usize) {
        let b = self.blocks[plane];
        for (step, out) in self.pieces[plane].1.0.chunks_exact_mut(16 * TILE).take(words.div_ceil(16)).enumerate() {
            let at = ((from / b.words + step) * b.bytes + b.first).min(self.stride);
            let have = (4 * b.words).min(self.stride - at);
            let mut rows = self.rows;
            for row in &mut rows {
                *row = row.wrapping_add(at);
            }
            if have == 64 {
                for row in &rows {
                    // SAFETY: a prefetch may name any address.
                    unsafe { S::prefetch(row.wrapping_add(AHEAD_ROW)) };
                }
                // SAFETY: every row has 64 bytes behind `at`, `out` has room for 16 words of 16 lanes.
                unsafe { S::transpose(&rows, out.as_mut_ptr()) };
                continue;
            }
            out.fill(0);
            for (l, row) in rows.iter().enumerate() {
                for w in 0..have / 4 {
                    // SAFETY: every row has `have` bytes behind `at`.
                    out[w * TILE + l] = unsafe { row.add(4 * w).cast::<u32>().read_unaligned() };
                }
                if !have.is_multiple_of(4) {
                    let mut bytes = [0; 4];
                    // SAFETY: as above.
                    let rest = unsafe { std::slice::from_raw_parts(row.add(have / 4 * 4), have % 4) };
                    bytes[..rest.len()].copy_from_slice(rest);
                    out[have / 4 * TILE + l] = u32::from_ne_bytes(bytes);
                }
            }
        }
    }
}

impl Source for Rows<'_> {
    #[inline(always)]
    unsafe fn words<S: Isa>(&mut self, plane: usize, unit: usize, count: usize) -> *const u8 {
        let words = match count {
            // The smallest multiple of a unit's words that is a multiple of 16.
            6 => 48,
            // The signs of one E8 block.
            2 => 8,
            n => n.max(16),
        };
        let (piece, within) = (unit * count / words, unit * count % words);
        if self.pieces[plane].0 != piece + 1 {
            // SAFETY: the caller's promise about the instruction set.
            unsafe { self.fill::<S>(plane, piece * words, words) };
            self.pieces[plane].0 = piece + 1;
        }
        self.pieces[plane].1.0[within * TILE..].as_ptr().cast()
    }
    #[inline(always)]
    unsafe fn scales<S: Isa>(&self, group: usize) -> S::F {
        let (mut values, at) = ([0u32; TILE], group.min(self.scales));
        for (value, line) in values.iter_mut().zip(&self.lines) {
            // SAFETY: a scale of the line, see the invariant.
            *value = unsafe { line.cast::<u32>().add(at).read_unaligned() };
        }
        // SAFETY: 16 values.
        unsafe { S::load_f(values.as_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn exponents<S: Isa>(&self, group: usize) -> S::I {
        let (mut bytes, at) = ([0u8; TILE], group.min(self.scales));
        for (byte, line) in bytes.iter_mut().zip(&self.lines) {
            // SAFETY: a scale of the line, see the invariant.
            *byte = unsafe { line.add(at).read() };
        }
        // SAFETY: 16 bytes.
        unsafe { S::load_bytes(bytes.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn halves<S: Isa>(&self, block: usize) -> S::F {
        let (mut halves, at) = ([0u16; TILE], (block * 98 + 96).min(self.stride.saturating_sub(2)));
        for (half, row) in halves.iter_mut().zip(&self.rows) {
            // SAFETY: two bytes inside the row, which has at least one block.
            *half = unsafe { row.add(at).cast::<u16>().read_unaligned() };
        }
        // SAFETY: 32 bytes.
        unsafe { S::load_halves(halves.as_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn blocks<S: Isa>(&self, block: usize) -> S::F {
        // The rows of a tile may lie in two lines of blocks.
        let (mut values, bytes) = ([0.0; TILE], self.width * (self.scales + 1));
        for (value, line) in values.iter_mut().zip(&self.lines) {
            // SAFETY: the scales of the line, see the invariant.
            *value = fp8_scale(unsafe { std::slice::from_raw_parts(*line, bytes) }, block, self.width);
        }
        // SAFETY: 16 values.
        unsafe { S::load_f(values.as_ptr()) }
    }
}

/// Units of a matrix of `cols` columns.
pub(super) fn units(cols: usize) -> usize {
    cols.div_ceil(UNIT)
}
