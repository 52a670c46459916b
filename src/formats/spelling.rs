//! What formats are called on the command line.

use super::{BlockScale, Format};

/// Fixed spellings. A format's own name is taken too.
const NAMES: [(&str, Format); 11] = [
    ("f32", Format::F32),
    ("f16", Format::F16),
    ("bf16", Format::Bf16),
    ("int8", Format::Int8Row),
    ("int4", Format::Int4Row),
    ("int2", Format::Int2Row),
    ("int3-g64", Format::Int3G64),
    ("e8", Format::E8),
    ("mxfp4", Format::Mxfp4),
    ("fp8", Format::Fp8Block { scale: BlockScale::F32 }),
    ("fp8-ue8m0", Format::Fp8Block { scale: BlockScale::Ue8m0 }),
];

/// All spellings, for messages.
pub const SPELLINGS: &str =
    "f32, f16, bf16, int8, int4, int4-gN (as int4-g64), int3-g64, int2, e8, mxfp4, fp8, fp8-ue8m0";

impl Format {
    /// The weight format that a user means.
    ///
    /// # Errors
    /// A sentence that names what there is.
    pub fn spelled(text: &str) -> Result<Format, String> {
        if let Some((_, format)) = NAMES.iter().find(|(name, format)| *name == text || format.name() == text) {
            return Ok(*format);
        }
        match text.strip_prefix("int4-g").and_then(|group| group.parse::<u32>().ok()) {
            Some(group) if group >= 2 && group % 2 == 0 => Ok(Format::Int4Grouped { group }),
            Some(group) => Err(format!("groups have an even number of columns, at least 2, not {group}")),
            None => Err(format!("no format is called `{text}`; take one of {SPELLINGS}")),
        }
    }

    /// What [`Format::spelled`] takes for this format.
    pub fn spelling(self) -> String {
        let known = NAMES.iter().find(|(_, known)| *known == self);
        known.map_or_else(|| self.name().into_owned(), |(name, _)| (*name).to_owned())
    }
}
