//! Element types a safetensors header may name.

use std::fmt;

/// Storage type of one stored tensor. Being listed here means its size is known, not that a weight
/// may have it: a file may carry such tensors as long as nothing asks for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dtype {
    Bool,
    U8,
    I8,
    F8E4m3,
    F8E5m2,
    F8E8m0,
    U16,
    I16,
    F16,
    Bf16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
    C64,
}

/// Every accepted spelling; the first of a type is the one shown in messages.
const SPELLINGS: [(&str, Dtype); 19] = [
    ("BOOL", Dtype::Bool),
    ("U8", Dtype::U8),
    ("I8", Dtype::I8),
    ("F8_E4M3", Dtype::F8E4m3),
    ("F8_E4M3FN", Dtype::F8E4m3),
    ("F8_E5M2", Dtype::F8E5m2),
    ("F8_E8M0", Dtype::F8E8m0),
    ("F8_E8M0FNU", Dtype::F8E8m0),
    ("U16", Dtype::U16),
    ("I16", Dtype::I16),
    ("F16", Dtype::F16),
    ("BF16", Dtype::Bf16),
    ("U32", Dtype::U32),
    ("I32", Dtype::I32),
    ("F32", Dtype::F32),
    ("U64", Dtype::U64),
    ("I64", Dtype::I64),
    ("F64", Dtype::F64),
    ("C64", Dtype::C64),
];

impl Dtype {
    /// The type a header spells `name`.
    pub(super) fn parse(name: &str) -> Option<Dtype> {
        SPELLINGS.iter().find(|(spelling, _)| *spelling == name).map(|(_, dtype)| *dtype)
    }

    /// Bytes of one element.
    pub(super) fn width(self) -> u64 {
        use Dtype::*;
        match self {
            Bool | U8 | I8 | F8E4m3 | F8E5m2 | F8E8m0 => 1,
            U16 | I16 | F16 | Bf16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 | C64 => 8,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spelling = SPELLINGS.iter().find(|(_, dtype)| dtype == self);
        f.write_str(spelling.map_or("?", |(spelling, _)| spelling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_parse_and_print() {
        for (spelling, dtype) in SPELLINGS {
            assert_eq!(Dtype::parse(spelling), Some(dtype));
            assert_eq!(Dtype::parse(&dtype.to_string()), Some(dtype));
        }
        assert_eq!(Dtype::parse("f32"), None);
        assert_eq!(Dtype::F8E4m3.to_string(), "F8_E4M3");
    }
}
