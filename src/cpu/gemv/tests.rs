//! Kernels against products in f64, and among each other in bits.

use super::order::coding;
use super::*;
use crate::cpu::testing::{bits, close, noise, product};
use crate::formats::activation::{Activations, int8};
use crate::formats::layout::{TILE, Tiled, tile};
use crate::formats::{BlockScale, Encoded, Format, Matrix, View, encode};

fn all() -> Vec<Format> {
    let scales = [BlockScale::F32, BlockScale::Ue8m0].map(|scale| Format::Fp8Block { scale });
    let groups = [16, 32, 48, 64, 96, 128].map(|group| Format::Int4Grouped { group });
    let plain = [Format::F32, Format::F16, Format::Bf16, Format::Int8Row, Format::Int4Row, Format::Int2Row];
    [&plain[..], &groups, &scales, &[Format::Int3G64, Format::E8, Format::Mxfp4]].concat()
}

/// Rows, columns: ragged groups and tiles, one row, one column.
const SHAPES: [(usize, usize); 9] =
    [(1, 1), (1, 64), (5, 7), (16, 33), (17, 64), (33, 200), (40, 513), (150, 96), (20, 1000)];

struct Stored {
    format: Format,
    rows: usize,
    cols: usize,
    encoded: Encoded,
    tiles: Vec<u8>,
}

impl Stored {
    fn new(format: Format, rows: usize, cols: usize) -> Stored {
        // These encoders want whole blocks: the columns that are too many are cut off again (E8 rows keep the block).
        let wide = match format {
            Format::E8 => cols.next_multiple_of(256),
            Format::Int4Grouped { group } => cols.next_multiple_of(group as usize),
            Format::Mxfp4 => cols.next_multiple_of(32),
            _ => cols,
        };
        let values = noise(7, rows * wide);
        let mut encoded = encode(format, wide, &values).unwrap();
        if matches!(format, Format::Int4Grouped { .. } | Format::Mxfp4) {
            let cut = |bytes: &[u8], from: u64, to: u64| -> Vec<u8> {
                bytes.chunks_exact(from as usize).flat_map(|row| row[..to as usize].to_vec()).collect()
            };
            let (from, to) = (wide as u64, cols as u64);
            encoded.data = cut(&encoded.data, format.row_bytes(from), format.row_bytes(to));
            encoded.scales = cut(&encoded.scales, format.scale_bytes(1, from), format.scale_bytes(1, to));
        }
        let view = View::new(format, rows, cols, &encoded.data, &encoded.scales).unwrap();
        let tiles = tile(&view).unwrap();
        Stored { format, rows, cols, encoded, tiles }
    }

    fn view(&self) -> View<'_> {
        View::new(self.format, self.rows, self.cols, &self.encoded.data, &self.encoded.scales).unwrap()
    }

    fn both(&self) -> [Matrix<'_>; 2] {
        let tiles = Tiled::new(self.format, self.rows, self.cols, &self.tiles).unwrap();
        [Matrix::Rows(self.view()), Matrix::Tiles(tiles)]
    }
}

/// `[input row][output]`
fn multiply(k: &Kernels, w: &Matrix, x: &[f32], a: Activations) -> Vec<Vec<f32>> {
    let inputs: Vec<Input> = x.chunks(w.cols()).map(|x| k.input(x, w.format(), a).unwrap()).collect();
    let inputs: Vec<&Input> = inputs.iter().collect();
    let mut out = vec![vec![]; inputs.len()];
    for first in (0..w.rows()).step_by(TILE) {
        let mut part = vec![[0.0; TILE]; inputs.len()];
        k.tile(w, first, &inputs, &mut part);
        let width = TILE.min(w.rows() - first);
        out.iter_mut().zip(&part).for_each(|(out, part)| out.extend(&part[..width]));
    }
    out
}

#[test]
fn f32_inputs_against_f64() {
    for k in available() {
        for format in all() {
            for (rows, cols) in SHAPES {
                let (w, x) = (Stored::new(format, rows, cols), noise(3, cols));
                let want = product(&crate::cpu::decode(w.view()), &x);
                for matrix in w.both() {
                    let got = multiply(&k, &matrix, &x, Activations::F32);
                    let name = format!("{} {format} {rows}x{cols}", k.name);
                    assert!(got[0].iter().all(|v| v.is_finite()), "{name}");
                    close(&got[0], &want, 1e-6);
                }
            }
        }
    }
}

/// Rows of the same bits alone and among others, in either order of the weights.
#[test]
fn one_row_and_many() {
    for k in available() {
        for format in all() {
            let w = Stored::new(format, 37, 328);
            for a in [Activations::F32, Activations::Int8] {
                if input::form(format, 328, a).is_none() {
                    continue;
                }
                let x = noise(5, 11 * 328);
                let [rows, tiles] = w.both().map(|w| multiply(&k, &w, &x, a));
                assert_eq!(bits(&rows.concat()), bits(&tiles.concat()), "{} {format}", k.name);
                for (x, want) in x.chunks(328).zip(&rows) {
                    let alone = multiply(&k, &w.both()[1], x, a);
                    assert_eq!(bits(&alone[0]), bits(want), "{} {format}", k.name);
                }
                for n in [2, 8] {
                    let some = multiply(&k, &w.both()[0], &x[..n * 328], a);
                    assert_eq!(bits(&some.concat()), bits(&rows[..n].concat()), "{} {format}", k.name);
                }
            }
        }
    }
}

/// Integer codes have the same bits on every set; floats where sets fuse.
#[test]
fn sets_agree_in_bits() {
    // For tests/tools/neon.sh, which must know what has run.
    println!("kernels: {}", available().iter().map(|k| k.name).collect::<Vec<_>>().join(", "));
    for format in all() {
        let (w, x) = (Stored::new(format, 33, 520), noise(5, 520));
        for a in [Activations::F32, Activations::Int8] {
            if input::form(format, 520, a).is_none() {
                continue;
            }
            let sets: Vec<Kernels> =
                available().into_iter().filter(|k| coding(format).is_some() || k.name != "portable").collect();
            let of = |k: &Kernels| multiply(k, &w.both()[0], &x, a).concat();
            for pair in sets.windows(2) {
                assert_eq!(bits(&of(&pair[0])), bits(&of(&pair[1])), "{format} {a:?} {}", pair[1].name);
            }
        }
    }
}

/// The same bits on every machine, too: what AVX-512 computed, in one number.
#[test]
fn machines_agree_in_bits() {
    for k in available().iter().filter(|k| k.name != "portable") {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for format in all() {
            let (w, x) = (Stored::new(format, 33, 520), noise(5, 520));
            for a in [Activations::F32, Activations::Int8] {
                if input::form(format, 520, a).is_some() {
                    let y = multiply(k, &w.both()[0], &x, a).concat();
                    hash = bits(&y).iter().fold(hash, |h, v| (h ^ u64::from(*v)).wrapping_mul(0x100_0000_01b3));
                }
            }
        }
        assert_eq!(hash, 0xc198_6d5a_8995_5bfe, "{}", k.name);
    }
}

/// The weight's integers and the scale of each, so that the value is their product.
fn integers(w: &Stored, row: usize) -> (Vec<i32>, Vec<f32>) {
    let mut values = vec![0.0; w.cols];
    w.view().decode_row(row, &mut values);
    let float = |bytes: &[u8], i: usize| f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap());
    let (s, cols) = (&w.encoded.scales, w.cols);
    let scale = |c: usize| match w.format {
        Format::Int4Grouped { group } => float(s, row * cols.div_ceil(group as usize) + c / group as usize),
        Format::Int3G64 => float(s, row * cols.div_ceil(64) + c / 64),
        Format::Mxfp4 => f32::from_bits(u32::from(s[row * cols.div_ceil(32) + c / 32]) << 23) * 0.5,
        Format::E8 => {
            let block = &w.encoded.data[(row * cols.div_ceil(256) + c / 256) * 98..][..98];
            let word = u32::from_le_bytes(block[64 + c % 256 / 32 * 4..][..4].try_into().unwrap());
            let d = half::f16::from_le_bytes([block[96], block[97]]).to_f32();
            (2 * (word >> 28) + 1) as f32 * (d * 0.125)
        }
        _ => float(s, row),
    };
    let scales: Vec<f32> = (0..cols).map(scale).collect();
    let integer = |(v, s): (&f32, &f32)| if *s == 0.0 { 0 } else { (v / s).round() as i32 };
    (values.iter().zip(&scales).map(integer).collect(), scales)
}

/// The definition in `input`, in plain code.
fn defined(w: &Stored, row: usize, x: &[f32]) -> f32 {
    let (n, scales) = integers(w, row);
    let c = coding(w.format).unwrap();
    let share = if c.row_scale { x.len() } else { c.group };
    let mut y = 0.0;
    for ((x, n), scales) in x.chunks(share).zip(n.chunks(share)).zip(scales.chunks(share)) {
        let mut q = vec![0i8; x.len()];
        let s = int8(x, &mut q);
        let sum: i32 = q.iter().zip(n).map(|(q, n)| i32::from(*q) * n).sum();
        y = if c.row_scale { (sum as f32 * scales[0]) * s } else { y + sum as f32 * (scales[0] * s) };
    }
    y
}

#[test]
fn int8_inputs_are_as_defined() {
    for k in available() {
        for format in all().into_iter().filter(|f| coding(*f).is_some()) {
            for (rows, cols) in SHAPES {
                let (w, x) = (Stored::new(format, rows, cols), noise(3, cols));
                let want: Vec<f32> = (0..rows).map(|row| defined(&w, row, &x)).collect();
                for matrix in w.both() {
                    let got = multiply(&k, &matrix, &x, Activations::Int8).concat();
                    // Zeros may differ in their sign.
                    let plain = |v: &[f32]| v.iter().map(|v| (v + 0.0).to_bits()).collect::<Vec<_>>();
                    assert_eq!(plain(&got), plain(&want), "{} {format} {rows}x{cols}", k.name);
                }
            }
        }
    }
}

#[test]
fn extremes_of_integer_codes() {
    // The largest codes of either sign against the largest inputs: nothing saturates.
    let cols = 256;
    let ones = 1f32.to_le_bytes();
    for k in available() {
        for byte in [0x80, 0x7f, 0xff, 0x00] {
            let data = vec![byte; cols];
            let view = View::new(Format::Int8Row, 1, cols, &data, &ones).unwrap();
            for x in [1.0, -1.0] {
                let x = vec![x; cols];
                for a in [Activations::F32, Activations::Int8] {
                    let got = multiply(&k, &view.into(), &x, a)[0][0];
                    let want = x[0] * f32::from(byte as i8) * cols as f32;
                    assert!((got - want).abs() <= want.abs() * 1e-6, "{} {byte}: {got} for {want}", k.name);
                }
            }
        }
    }
}

/// What digits lose against what an f32 sum loses, for inputs with few large values.
#[test]
fn errors_beside_plain_f32() {
    let cols = 4096;
    let mut x = noise(9, cols);
    // Every 100th input is 300 times as large, as in the activations of language models.
    x.iter_mut().step_by(100).for_each(|v| *v *= 300.0);
    let w = Stored::new(Format::Int4Grouped { group: 64 }, 64, cols);
    let decoded = crate::cpu::decode(w.view());
    let error = |y: &[f32]| {
        let exact =
            decoded.chunks(cols).map(|w| w.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum::<f64>());
        exact.zip(y).map(|(e, y)| (e - f64::from(*y)).powi(2)).sum::<f64>().sqrt()
    };
    let digits = error(&multiply(kernels(), &w.both()[1], &x, Activations::F32)[0]);
    let plain: Vec<f32> = decoded.chunks(cols).map(|w| (crate::cpu::simd::simd().dot)(w, &x)).collect();
    assert!(digits <= error(&plain), "{digits} against {}", error(&plain));
}

#[test]
fn what_is_no_number_stays_none() {
    let bytes = [0x7f, 0x38, 0xff, 0x38];
    let format = Format::Fp8Block { scale: BlockScale::F32 };
    let view = View::new(format, 2, 2, &bytes, &[0, 0, 0x80, 0x3f]).unwrap();
    for k in available() {
        assert!(multiply(&k, &view.into(), &[0.0, 1.0], Activations::F32)[0].iter().all(|v| v.is_nan()));
        let w = Stored::new(Format::Mxfp4, 3, 64);
        for a in [Activations::F32, Activations::Int8] {
            for bad in [f32::NAN, f32::INFINITY] {
                let mut x = vec![1.0; 64];
                x[40] = bad;
                assert!(multiply(&k, &w.both()[0], &x, a)[0].iter().all(|v| v.is_nan()), "{} {a:?}", k.name);
            }
        }
    }
}

#[test]
fn inputs_of_any_size() {
    // From the smallest numbers to the largest.
    let w = Stored::new(Format::Int4Row, 3, 64);
    let decoded = crate::cpu::decode(w.view());
    for power in [-120, -100, -60, 0, 60, 100, 120] {
        let x: Vec<f32> = noise(1, 64).iter().map(|v| v * 2f32.powi(power)).collect();
        for k in available() {
            let got = multiply(&k, &w.both()[0], &x, Activations::F32);
            let want = product(&decoded, &x);
            let (size, error) = got[0].iter().zip(&want).fold((0.0, 0.0), |(s, e): (f64, f64), (g, w)| {
                (s + f64::from(*w).powi(2), e + (f64::from(*g) - f64::from(*w)).powi(2))
            });
            let bound = if power < -100 { 0.1 } else { 1e-6 };
            assert!(error.sqrt() <= bound * size.sqrt(), "{} 2^{power}: {got:?} for {want:?}", k.name);
        }
    }
}

#[test]
#[should_panic(expected = "another matrix")]
fn inputs_of_another_format_are_refused() {
    let w = Stored::new(Format::Int4Row, 3, 64);
    let x = kernels().input(&[1.0; 64], Format::Mxfp4, Activations::F32).unwrap();
    kernels().tile(&w.both()[0], 0, &[&x], &mut [[0.0; TILE]]);
}
