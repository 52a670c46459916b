//! Tests of whole formats: reference vectors, properties, damaged bytes.

mod fuzz;
mod props;
mod vectors;

use std::collections::HashMap;
use std::time::Duration;

use super::{Encoded, Format, View};

/// Time for a loop over random damage: `seconds`, unless `COLI_FUZZ_SECONDS` says more.
pub(crate) fn fuzz_time(seconds: f64) -> Duration {
    let asked = std::env::var("COLI_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs_f64(asked.unwrap_or(seconds))
}

/// splitmix64, so a failure can be repeated from its round number.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// In 0..1, never 0.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Normally distributed.
    fn normal(&mut self) -> f32 {
        let (a, b) = (self.unit(), self.unit());
        ((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
    }
}

/// Formats of integer codes, with groups that kernels read.
pub(crate) fn coded() -> Vec<Format> {
    let groups = [16, 32, 48, 64, 96, 128].map(|group| Format::Int4Grouped { group });
    let rest = [Format::Int8Row, Format::Int4Row, Format::Int2Row, Format::Int3G64, Format::Mxfp4, Format::E8];
    rest.into_iter().chain(groups).collect()
}

/// A matrix in a format of [`coded`]: any codes, and finite scales of either sign and many sizes.
pub(crate) fn random_codes(format: Format, rows: usize, cols: usize, random: &mut Random) -> Encoded {
    let (r, c) = (rows as u64, cols as u64);
    let mut data: Vec<u8> = (0..format.data_bytes(r, c)).map(|_| random.next() as u8).collect();
    if format == Format::E8 {
        // Super-scales below 2, subnormals among them.
        data.chunks_exact_mut(98).for_each(|block| block[97] &= 0xbf);
    }
    let bytes = format.scale_bytes(r, c);
    let scales = match format {
        Format::Mxfp4 => (0..bytes).map(|_| [0, 1, 100, 126, 127, 128, 140][random.below(7)]).collect(),
        _ => (0..bytes / 4).flat_map(|_| (random.normal() * 2f32.powi(random.below(9) as i32)).to_le_bytes()).collect(),
    };
    Encoded { data, scales }
}

/// The reference vectors: tensors of a safetensors file by name, as bytes.
struct Vectors(HashMap<String, Vec<u8>>);

impl Vectors {
    fn read() -> Vectors {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/formats/formats.safetensors");
        let file = std::fs::read(path).unwrap();
        let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        let (text, data) = file[8..].split_at(header);
        let text: HashMap<String, serde_json::Value> = serde_json::from_slice(text).unwrap();
        let tensor = |entry: &serde_json::Value| {
            let at = |i: usize| entry["data_offsets"][i].as_u64().unwrap() as usize;
            data[at(0)..at(1)].to_vec()
        };
        Vectors(text.iter().map(|(name, entry)| (name.clone(), tensor(entry))).collect())
    }

    fn bytes(&self, name: &str) -> &[u8] {
        self.0.get(name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn f32(&self, name: &str) -> Vec<f32> {
        self.bytes(name).as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }
}

/// All values.
fn decode(view: View) -> Vec<f32> {
    let mut out = vec![0.0; view.rows * view.cols];
    out.chunks_exact_mut(view.cols.max(1)).enumerate().for_each(|(row, out)| view.decode_row(row, out));
    out
}

/// Bits of values. The reference kernels return sums, in which a minus zero turns into zero.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| (v + 0.0).to_bits()).collect()
}

/// Relative L2 distance.
fn distance(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let off = norm(&mut got.iter().zip(want).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    off / norm(&mut want.iter().map(|b| f64::from(*b))).max(f64::MIN_POSITIVE)
}

/// Every format of weights, with a group that divides 256.
fn weights() -> Vec<Format> {
    use super::BlockScale::{F32, Ue8m0};
    let fp8 = [F32, Ue8m0].map(|scale| Format::Fp8Block { scale });
    let groups = [32, 64].map(|group| Format::Int4Grouped { group });
    let rest = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::Int8Row,
        Format::Int4Row,
        Format::Int2Row,
        Format::Int3G64,
        Format::E8,
        Format::Mxfp4,
    ];
    rest.into_iter().chain(fp8).chain(groups).collect()
}
