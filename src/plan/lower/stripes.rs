//! How a workgroup of `dots.glsl` or `digits.glsl` lies over a matrix: quads of rows by stripes of columns.

use super::super::tuning::Tuning;
use crate::formats::Format;

/// Columns of a block of `digits.glsl`, whose inputs have one power of two.
pub const BLOCK: u32 = 32;

/// How the threads of a workgroup share a matrix out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripes {
    /// Threads of a workgroup.
    pub local: u32,
    /// Quads of four rows that they share; the rest of the threads are stripes of columns.
    pub quads: u32,
    /// Chunks of a stripe whose loads are under way together.
    pub depth: u32,
}

impl Stripes {
    /// For `rows` matrix rows of `cols` columns.
    pub fn of(tuning: &Tuning, format: Format, rows: u32, cols: u32) -> Stripes {
        let digits = takes_digits(format);
        let chunks = cols.div_ceil(if digits { BLOCK } else { chunk(format) });
        // Small matrices have few tiles: their quads are spread over more workgroups. Two quads still read whole sectors
        // of 32 bytes.
        let tiles = rows.div_ceil(16);
        // In digits there are always four: so many make a block's.
        let quads = if digits { 4 } else { 1 << tuning.tiles.iter().filter(|n| tiles >= **n).count() };
        let wide = digits || matches!(format, Format::F32 | Format::F16 | Format::Bf16);
        let most = if wide { tuning.wide_threads } else { tuning.threads };
        // About four chunks a stripe, but not fewer threads than keep a device busy as long as there are chunks for them.
        let all = quads * chunks.next_power_of_two();
        let local = (quads * chunks.div_ceil(4).next_power_of_two()).max(all.min(tuning.busy)).clamp(64, most);
        let each = chunks / (local / quads);
        Stripes { local, quads, depth: if each >= 8 && !wide { tuning.ahead } else { 1 } }
    }

    /// For the rows of a head with `cols` columns, in `expand.comp`: wide enough that few workgroups merge the parts of
    /// a head. With several rows a workgroup has half the quads and as many stripes, which keeps a row's bits.
    pub fn of_heads(format: Format, cols: u32, many: bool) -> Stripes {
        let stripes = cols.div_ceil(chunk(format)).div_ceil(2).next_power_of_two().clamp(4, 32);
        let quads = if many { 8 } else { 16 };
        Stripes { local: quads * stripes, quads, depth: 1 }
    }

    /// Matrix rows of a workgroup.
    pub fn outs(self) -> u32 {
        4 * self.quads
    }
}

/// Formats of small integers, whose products `digits.glsl` makes: those that define BYTES.
pub fn takes_digits(format: Format) -> bool {
    matches!(format, Format::Int8Row | Format::Int4Row | Format::Int4Grouped { .. } | Format::E8)
}

/// Columns that an invocation takes at once: `CHUNK` of a format's shader.
pub fn chunk(format: Format) -> u32 {
    match format {
        Format::Int2Row => 16,
        Format::Int3G64 | Format::E8 => 32,
        _ => 8,
    }
}
