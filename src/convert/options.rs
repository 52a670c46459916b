//! What each role of weight becomes.

use crate::formats::Format;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A format to write, or the bytes as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// The stored bytes, unchanged.
    Keep,
    /// Decoded, and encoded in this format; unchanged if it is in this format already.
    Format(Format),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if text == "keep" {
            return Ok(Target::Keep);
        }
        Format::spelled(text).map(Target::Format).map_err(|why| format!("{why} (or keep)"))
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Target, String> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> String {
        target.to_string()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Keep => f.write_str("keep"),
            Target::Format(format) => f.write_str(&format.spelling()),
        }
    }
}

/// Everything that decides the output's bytes besides the source and the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Matrices of experts.
    pub experts: Target,
    /// Dense matrices: attention, shared experts, dense layers.
    pub dense: Target,
    /// Embedding and output head. None: int8 where `dense` is quantised and they are not yet, else as they are.
    pub io: Option<Target>,
    /// Largest shard, in bytes, unless a single expert or tensor is larger.
    pub shard_bytes: u64,
    /// Leave out tensors that the graph ignores (draft layers).
    pub drop_ignored: bool,
}

impl Options {
    /// What embedding and head become when they are stored as `stored`.
    ///
    /// The C converter makes them int8 (formats.md 9.3); doing so when the rest stays floating would surprise.
    pub(super) fn io(&self, stored: Format) -> Target {
        let floats = |format| matches!(format, Format::F32 | Format::F16 | Format::Bf16);
        match (self.io, self.dense) {
            (Some(target), _) => target,
            (None, Target::Format(dense)) if !floats(dense) && floats(stored) => Target::Format(Format::Int8Row),
            (None, _) => Target::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for text in ["keep", "f32", "int8", "int4", "int4-g64", "int4-g512", "int3-g64", "e8", "fp8-ue8m0"] {
            assert_eq!(text.parse::<Target>().map(|t| t.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("e8-iq3-lattice".parse(), Ok(Target::Format(Format::E8)));
        assert!("int5".parse::<Target>().is_err_and(|why| why.contains("int4-gN")));
        assert!("int4-g7".parse::<Target>().is_err_and(|why| why.contains("even")));
        assert!("int4-g0".parse::<Target>().is_err());
    }

    #[test]
    fn embeddings_follow_only_quantised_matrices() {
        let options = |dense, io| Options { experts: Target::Keep, dense, io, shard_bytes: 1, drop_ignored: false };
        let int4 = Target::Format(Format::Int4Row);
        assert_eq!(options(int4, None).io(Format::Bf16), Target::Format(Format::Int8Row));
        assert_eq!(options(int4, None).io(Format::Int4Row), Target::Keep);
        assert_eq!(options(Target::Format(Format::F32), None).io(Format::Bf16), Target::Keep);
        assert_eq!(options(Target::Keep, Some(int4)).io(Format::Bf16), int4);
    }
}
