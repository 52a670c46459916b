//! Random bytes decode to something, and random numbers encode to what decodes near them, without a panic.
//! `COLI_FUZZ_SECONDS=600` for longer.

use std::time::{Duration, Instant};

use super::super::{BlockScale, EncodeError, encode};
use super::{Format, Random, View, decode, fuzz_time, weights};

fn format(random: &mut Random) -> Format {
    match random.below(16) {
        0 => Format::I32,
        1 => Format::I64,
        // Sizes that no writer uses must not break a reader.
        2 | 3 => Format::Int4Grouped { group: random.below(300) as u32 },
        4 => Format::Fp8Block { scale: BlockScale::Ue8m0 },
        _ => weights()[random.below(weights().len())],
    }
}

fn decode_noise(random: &mut Random) {
    let (format, rows, cols) = (format(random), random.below(4), random.below(700));
    let mut noise = |n: u64| (0..n).map(|_| random.next() as u8).collect::<Vec<u8>>();
    let data = noise(format.data_bytes(rows as u64, cols as u64));
    let scales = noise(format.scale_bytes(rows as u64, cols as u64));
    let view = View::new(format, rows, cols, &data, &scales).unwrap();
    let values = decode(view);
    assert_eq!(values.len(), rows * cols);
    // A byte too few or too many is refused, not read past.
    if let [_, rest @ ..] = &data[..] {
        assert!(View::new(format, rows, cols, rest, &scales).is_err());
    }
}

/// Any bits as f32, mostly finite.
fn number(random: &mut Random) -> f32 {
    match random.below(40) {
        0 => f32::from_bits(random.next() as u32),
        1 => 0.0,
        _ => random.normal() * 2f32.powi(random.below(60) as i32 - 40),
    }
}

fn encode_noise(random: &mut Random) {
    let (format, rows) = (format(random), random.below(3) + 1);
    let cols = random.below(3) * 256 + if random.below(2) == 0 { 0 } else { random.below(256) };
    let values: Vec<f32> = (0..rows * cols).map(|_| number(random)).collect();
    match encode(format, cols, &values) {
        Ok(encoded) => {
            // Without columns there are no values to say how many rows.
            let view = encoded.view(format, if cols == 0 { 0 } else { rows }, cols).unwrap();
            assert!(decode(view).iter().all(|v| v.is_finite()), "{format}");
        }
        Err(EncodeError::NotFinite { row, column, value }) => {
            assert_eq!(values[row * cols + column].to_bits(), value.to_bits());
        }
        Err(EncodeError::Range { row, column, .. }) => assert!(row < rows && column < cols),
        Err(EncodeError::Ragged { .. } | EncodeError::Block { .. }) => panic!("{format} of {rows} x {cols}"),
        Err(EncodeError::Table { .. } | EncodeError::Cols { .. } | EncodeError::Group { .. }) => {}
    }
}

#[test]
fn noise_never_panics() {
    let (start, time, mut rounds) = (Instant::now(), fuzz_time(3.0), 0u64);
    while start.elapsed() < time {
        let mut random = Random(rounds);
        let before = Instant::now();
        decode_noise(&mut random);
        encode_noise(&mut random);
        assert!(before.elapsed() < Duration::from_secs(1), "round {rounds} took too long");
        rounds += 1;
    }
    println!("{rounds} rounds of random bytes and numbers");
    assert!(rounds > 20, "{rounds} rounds");
}
