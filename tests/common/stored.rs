//! Weights in the formats that containers store, made from f32 values.

use super::safetensors::{Tensor, Tensors};
use coli::formats::{BlockScale, Encoded, Format, encode};

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
    /// One for 16.
    Int4G16,
    Int2Row,
    Int3G64,
    Mxfp4,
    Fp8,
    Fp8Ue8m0,
    /// Random codes and signs in place of the values: encoding them takes long.
    E8,
}

pub const GROUP: usize = 64;

impl Stored {
    pub const ALL: [Stored; 12] = [
        Stored::F32,
        Stored::Bf16,
        Stored::F16,
        Stored::Int8Row,
        Stored::Int4Row,
        Stored::Int4Grouped,
        Stored::Int2Row,
        Stored::Int3G64,
        Stored::Mxfp4,
        Stored::Fp8,
        Stored::Fp8Ue8m0,
        Stored::E8,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Stored::F32 => "f32",
            Stored::Bf16 => "bf16",
            Stored::F16 => "f16",
            Stored::Int8Row => "int8-row",
            Stored::Int4Row => "int4-row",
            Stored::Int4Grouped => "int4-g64",
            Stored::Int4G16 => "int4-g16",
            Stored::Int2Row => "int2-row",
            Stored::Int3G64 => "int3-g64",
            Stored::Mxfp4 => "mxfp4",
            Stored::Fp8 => "fp8-b128",
            Stored::Fp8Ue8m0 => "fp8-b128-ue8m0",
            Stored::E8 => "e8-iq3-lattice",
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
            Stored::Int4G16 if cols > 16 && cols != 48 && cols.is_multiple_of(16) => Stored::Int4G16,
            Stored::Int8Row if cols == 24 => Stored::F32,
            Stored::Int4Row | Stored::Int4Grouped | Stored::Int4G16 if cols == 47 || cols == 48 => Stored::Int8Row,
            Stored::Int4Grouped | Stored::Int4G16 => Stored::Int4Row,
            Stored::Int2Row if cols <= 2 => Stored::F32,
            Stored::Int3G64 if [24, 47, 48, 95, 96, 143, 144].contains(&cols) => Stored::Fp8,
            Stored::Mxfp4 if !cols.is_multiple_of(32) => Stored::Fp8,
            Stored::E8 if !cols.is_multiple_of(256) => Stored::Int8Row.for_shape(shape),
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
            Stored::Int4G16 => coded(name, values, 16, 7.0, nibbles),
            Stored::Int2Row => sidecar(name, encode(Format::Int2Row, cols, values).unwrap()),
            Stored::Int3G64 => sidecar(name, encode(Format::Int3G64, cols, values).unwrap()),
            Stored::E8 => sidecar(name, lattice(values)),
            Stored::Mxfp4 => {
                let Encoded { data, scales } = encode(Format::Mxfp4, cols, values).unwrap();
                scaled(name, shape, ["I8", "F8_E8M0"], [2, 32], [data, scales])
            }
            Stored::Fp8 => fp8(name, shape, values, BlockScale::F32),
            Stored::Fp8Ue8m0 => fp8(name, shape, values, BlockScale::Ue8m0),
        }
    }
}

fn sidecar(name: &str, Encoded { data, scales }: Encoded) -> Tensors {
    vec![
        (name.to_owned(), Tensor::new("U8", &[data.len()], data)),
        (format!("{name}.qs"), Tensor::new("F32", &[scales.len() / 4], scales)),
    ]
}

/// Blocks of 256 columns with codes and signs from the values' bits, worth about as much as the values.
fn lattice(values: &[f32]) -> Encoded {
    let mut data = vec![];
    for block in values.as_chunks::<256>().0 {
        data.extend(block[..96].iter().map(|v| (v.to_bits() >> 4) as u8));
        data.extend(half::f16::from_f32(0.015).to_le_bytes());
    }
    Encoded { data, scales: 6f32.to_le_bytes().to_vec() }
}

fn fp8(name: &str, shape: &[usize], values: &[f32], scale: BlockScale) -> Tensors {
    let cols = shape.last().copied().unwrap_or(1);
    let Encoded { data, scales } = encode(Format::Fp8Block { scale }, cols, values).unwrap();
    let rows = (values.len() / cols).div_ceil(128);
    let (dtype, scale_type, suffix) = match scale {
        BlockScale::F32 => ("F8_E4M3", "F32", "weight_scale_inv"),
        BlockScale::Ue8m0 => ("F8_E4M3", "F8_E8M0", "scale"),
    };
    let base = name.strip_suffix("weight").unwrap();
    vec![
        (name.to_owned(), Tensor::new(dtype, shape, data)),
        (format!("{base}{suffix}"), Tensor::new(scale_type, &[rows, cols.div_ceil(128)], scales)),
    ]
}

/// DeepSeek's names: codes and scales whose last dimension is divided.
fn scaled(name: &str, shape: &[usize], types: [&str; 2], by: [usize; 2], bytes: [Vec<u8>; 2]) -> Tensors {
    let base = name.strip_suffix("weight").unwrap();
    let names = [name.to_owned(), format!("{base}scale")];
    let divided = |by: usize| {
        let (cols, rows) = shape.split_last().unwrap();
        [rows, &[cols.div_ceil(by)]].concat()
    };
    let tensors = types.into_iter().zip(by).zip(bytes).map(|((t, by), bytes)| Tensor::new(t, &divided(by), bytes));
    names.into_iter().zip(tensors).collect()
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
