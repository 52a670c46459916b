//! Weights in the formats that containers store, made from f32 values.

use super::safetensors::{Tensor, Tensors};

/// How a weight is stored. The integer formats are the codes `NAME` and the scales `NAME.qs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    F32,
    Bf16,
    F16,
    Int8Row,
    Int4Row,
    /// One scale per 64 columns.
    Int4Grouped,
}

pub const GROUP: usize = 64;

impl Stored {
    pub const ALL: [Stored; 6] =
        [Stored::F32, Stored::Bf16, Stored::F16, Stored::Int8Row, Stored::Int4Row, Stored::Int4Grouped];

    pub fn name(self) -> &'static str {
        match self {
            Stored::F32 => "f32",
            Stored::Bf16 => "bf16",
            Stored::F16 => "f16",
            Stored::Int8Row => "int8-row",
            Stored::Int4Row => "int4-row",
            Stored::Int4Grouped => "int4-g64",
        }
    }

    /// The format nearest to this one that such a matrix can have.
    ///
    /// Byte counts must leave a reader one choice: 24 columns of int8 and 48 of int4 could be int3, and one or
    /// a broken group is not what this grouped format is for.
    pub fn for_shape(self, shape: &[usize]) -> Stored {
        let cols = shape.last().copied().unwrap_or(1);
        let rows: usize = shape.iter().product::<usize>() / cols.max(1);
        match self {
            Stored::F32 | Stored::Bf16 | Stored::F16 => self,
            _ if rows == 1 => Stored::F32,
            Stored::Int4Grouped if cols > GROUP && cols.is_multiple_of(GROUP) => Stored::Int4Grouped,
            Stored::Int8Row if cols == 24 => Stored::F32,
            Stored::Int4Row | Stored::Int4Grouped if cols == 47 || cols == 48 => Stored::Int8Row,
            Stored::Int4Grouped => Stored::Int4Row,
            other => other,
        }
    }

    /// The tensors that hold a weight, in this format exactly.
    pub fn tensors(self, name: &str, shape: &[usize], values: &[f32]) -> Tensors {
        let cols = shape.last().copied().unwrap_or(1);
        let plain = |tensor| vec![(name.to_owned(), tensor)];
        match self {
            Stored::F32 => plain(Tensor::from_f32(shape, values)),
            Stored::Bf16 => plain(Tensor::from_f32_as_bf16(shape, values)),
            Stored::F16 => {
                let bytes = values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes());
                plain(Tensor::new("F16", shape, bytes.collect()))
            }
            Stored::Int8Row => coded(name, values, cols, 127.0, |codes| codes.iter().map(|q| *q as u8).collect()),
            Stored::Int4Row => coded(name, values, cols, 7.0, nibbles),
            Stored::Int4Grouped => coded(name, values, GROUP, 7.0, nibbles),
        }
    }
}

/// Codes and scales of runs of `run` values: `scale = max |w| / largest`, `code = round(w / scale)`.
fn coded(name: &str, values: &[f32], run: usize, largest: f32, pack: fn(&[i8]) -> Vec<u8>) -> Tensors {
    let (mut codes, mut scales) = (vec![], vec![]);
    for run in values.chunks(run) {
        let most = run.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let scale = (most / largest).max(1e-8);
        scales.push(scale);
        let codes_of: Vec<i8> =
            run.iter().map(|v| (v / scale).round_ties_even().clamp(-largest - 1.0, largest) as i8).collect();
        codes.extend(pack(&codes_of));
    }
    vec![
        (name.to_owned(), Tensor::new("U8", &[codes.len()], codes)),
        (format!("{name}.qs"), Tensor::from_f32(&[scales.len()], &scales)),
    ]
}

/// Two codes a byte, 8 added, the first in the low nibble; an odd last one alone.
fn nibbles(codes: &[i8]) -> Vec<u8> {
    let nibble = |q: i8| (q + 8) as u8;
    codes.chunks(2).map(|c| nibble(c[0]) | c.get(1).map_or(0, |q| nibble(*q) << 4)).collect()
}
