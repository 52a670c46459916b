//! What holds for all values: error bounds, stability, errors.

use proptest::prelude::*;

use super::super::{BlockScale, EncodeError, Encoded, Encoder, encode, rotation::Rotation};
use super::{Format, Random, decode, distance, weights};

/// Finite values of very different sizes, zeros among them.
fn values(n: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<f32>> {
    let value = prop_oneof![
        4 => -1.0f32..1.0,
        1 => (-30i32..16, -1.0f32..1.0).prop_map(|(e, v)| v * 2f32.powi(e)),
        1 => Just(0.0f32),
        1 => Just(-0.0f32),
    ];
    prop::collection::vec(value, n)
}

/// Largest error of one value, given its run (the values that share its scale).
fn bound(format: Format, v: f32, run: &[f32]) -> f64 {
    let most = run.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let (v, most) = (f64::from(v.abs()), f64::from(most));
    // Half a step, and what f32 arithmetic adds: code and product are rounded.
    let steps = |largest: f64| (most / largest).max(1e-8) * 0.5 * (1.0 + 1e-6) + most * 1e-6;
    match format {
        Format::F16 => (v / 2048.0).max(2f64.powi(-25)),
        Format::Bf16 => v / 256.0,
        Format::Int8Row => steps(127.0),
        Format::Int4Row | Format::Int4Grouped { .. } => steps(7.0),
        Format::Int3G64 => steps(3.0),
        Format::Int2Row => steps(1.0),
        // Above 6 and below 8 with the smaller exponent a quarter; else half of the largest step.
        Format::Mxfp4 => most / 4.0 + 2f64.powi(-127),
        // Three bits of mantissa; below 2^-6 of the scale half of a step of 2^-9.
        Format::Fp8Block { scale } => {
            let scale = match scale {
                BlockScale::F32 => most / 448.0,
                BlockScale::Ue8m0 => most / 224.0,
            };
            (v / 16.0 + scale / 1024.0) * (1.0 + 1e-6) + 1e-35
        }
        _ => 0.0,
    }
}

/// Columns that share a scale, None for all of a row.
fn run_of(format: Format) -> Option<usize> {
    match format {
        Format::Int4Grouped { group } => Some(group as usize),
        Format::Int3G64 => Some(64),
        Format::Mxfp4 => Some(32),
        Format::Fp8Block { .. } => Some(128),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn errors_are_bounded(source in values(256), ragged in 1..256usize) {
        for format in weights().into_iter().filter(|f| *f != Format::E8) {
            let cols = if Encoder::new(format, ragged).is_ok() { ragged } else { 256 };
            let source = &source[..cols];
            let out = decode(encode(format, cols, source).unwrap().view(format, 1, cols).unwrap());
            let run = run_of(format).unwrap_or(cols);
            for (at, (got, want)) in out.iter().zip(source).enumerate() {
                let bound = bound(format, *want, &source[at / run * run..cols.min((at / run + 1) * run)]);
                let off = (f64::from(*got) - f64::from(*want)).abs();
                prop_assert!(off <= bound, "{format}: {want} became {got}, allowed {bound:e}");
            }
        }
    }

    /// Values that a format can hold are held: codes of integer formats and f32-scaled fp8 come back (their scale
    /// is computed again, and may differ in its last bit), values of all others.
    #[test]
    fn encoding_again_changes_nothing(source in values(512)) {
        for format in weights().into_iter().filter(|f| *f != Format::E8) {
            let first = encode(format, 256, &source).unwrap();
            let values = decode(first.view(format, 2, 256).unwrap());
            let second = encode(format, 256, &values).unwrap();
            let powers = matches!(format, Format::Mxfp4 | Format::Fp8Block { scale: BlockScale::Ue8m0 });
            if powers {
                let again = decode(second.view(format, 2, 256).unwrap());
                prop_assert!(values.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()), "{format}");
            } else {
                prop_assert!(first.data == second.data, "{format}");
                let close = |(a, b): (&[u8; 4], &[u8; 4])| u32::from_le_bytes(*a).abs_diff(u32::from_le_bytes(*b)) <= 1;
                let (a, b) = (first.scales.as_chunks::<4>().0, second.scales.as_chunks::<4>().0);
                prop_assert!(a.iter().zip(b).all(close), "{format}");
            }
        }
    }

    #[test]
    fn rotations_keep_norms_and_can_be_undone(source in values(1..700)) {
        let rotation = Rotation::new(source.len());
        let mut row = source.clone();
        rotation.forward(&mut row);
        let norm = |v: &[f32]| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        prop_assert!((norm(&row) - norm(&source)).abs() <= 1e-6 * norm(&source));
        rotation.inverse(&mut row);
        prop_assert!(distance(&row, &source) < 1e-6);
    }

    /// Inner products survive when both sides are rotated: what the format rests on.
    #[test]
    fn rotations_keep_products(a in values(384), b in values(384)) {
        let rotation = Rotation::new(384);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let (mut x, mut y) = (a.clone(), b.clone());
        rotation.forward(&mut x);
        rotation.forward(&mut y);
        let size = (dot(&a, &a) * dot(&b, &b)).sqrt();
        prop_assert!((dot(&x, &y) - dot(&a, &b)).abs() <= 1e-6 * size);
    }

    /// Pieces of any number of rows (whole blocks for fp8) are the matrix in one.
    #[test]
    fn pieces_are_the_whole(cut in 0..5usize, seed in any::<u64>()) {
        let mut random = Random(seed);
        let source: Vec<f32> = (0..5 * 256).map(|_| random.normal()).collect();
        for format in weights() {
            let mut encoder = Encoder::new(format, 256).unwrap();
            let (head, tail) = source.split_at(cut / encoder.block() * encoder.block() * 256);
            let mut parts = Encoded::default();
            for piece in [head, tail] {
                encoder.push(piece, &mut parts.data, &mut parts.scales).unwrap();
            }
            prop_assert!(parts == encode(format, 256, &source).unwrap(), "{format}");
        }
    }
}

/// Relative L2 errors on normally distributed weights, as `docs/formats.md` lists them.
#[test]
fn errors_on_normal_weights() {
    let mut random = Random(7);
    let source: Vec<f32> = (0..64 * 1024).map(|_| 0.02 * random.normal()).collect();
    let listed = [
        (Format::F32, 0.0, 0.0),
        (Format::F16, 1.5e-4, 2.5e-4),
        (Format::Bf16, 1.4e-3, 2.0e-3),
        (Format::Int8Row, 0.006, 0.009),
        (Format::Int4Row, 0.12, 0.15),
        (Format::Int4Grouped { group: 64 }, 0.09, 0.11),
        (Format::Int4Grouped { group: 32 }, 0.08, 0.10),
        (Format::Int3G64, 0.24, 0.26),
        (Format::Int2Row, 0.8, 1.0),
        (Format::E8, 0.19, 0.205),
        (Format::Mxfp4, 0.10, 0.13),
        (Format::Fp8Block { scale: BlockScale::F32 }, 0.02, 0.03),
        (Format::Fp8Block { scale: BlockScale::Ue8m0 }, 0.02, 0.03),
    ];
    let mut bad = vec![];
    for (format, least, most) in listed {
        let mut got = decode(encode(format, 1024, &source).unwrap().view(format, 64, 1024).unwrap());
        if format.rotates() {
            got.chunks_mut(1024).for_each(|row| Rotation::new(1024).inverse(row));
        }
        let e = distance(&got, &source);
        println!("{format}: {e:.5}");
        if !(least..=most).contains(&e) {
            bad.push((format, e));
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

/// An outlier in every row: the rotation spreads it.
#[test]
fn e8_bears_outliers() {
    let mut random = Random(8);
    let mut source: Vec<f32> = (0..16 * 1024).map(|_| random.normal()).collect();
    source.chunks_mut(1024).for_each(|row| row[17] = 50.0);
    let mut got = decode(encode(Format::E8, 1024, &source).unwrap().view(Format::E8, 16, 1024).unwrap());
    got.chunks_mut(1024).for_each(|row| Rotation::new(1024).inverse(row));
    let e = distance(&got, &source);
    assert!(e < 0.21, "{e}");
}

#[test]
fn what_cannot_be_encoded_is_named() {
    let refused = |format, cols, values: &[f32]| encode(format, cols, values).unwrap_err();
    assert_eq!(refused(Format::I64, 2, &[]), EncodeError::Table { format: Format::I64 });
    for (format, cols, multiple) in
        [(Format::E8, 98, 256), (Format::Mxfp4, 48, 32), (Format::Int4Grouped { group: 64 }, 96, 64)]
    {
        assert_eq!(refused(format, cols, &[]), EncodeError::Cols { format, cols, multiple });
    }
    for group in [0, 3] {
        let format = Format::Int4Grouped { group };
        assert_eq!(refused(format, 6, &[]), EncodeError::Group { format });
    }
    assert_eq!(refused(Format::F32, 3, &[0.0; 4]), EncodeError::Ragged { values: 4, cols: 3 });
    assert_eq!(refused(Format::F32, 0, &[0.0; 4]), EncodeError::Ragged { values: 4, cols: 0 });
    for format in weights() {
        let mut values = [1.0; 512];
        values[256 + 9] = f32::NEG_INFINITY;
        let error = refused(format, 256, &values);
        assert_eq!(error, EncodeError::NotFinite { row: 1, column: 9, value: f32::NEG_INFINITY }, "{format}");
    }
    for (format, value) in [(Format::F16, 65520.0), (Format::Bf16, f32::MAX), (Format::Int8Row, 1.8e38)] {
        let error = refused(format, 2, &[1.0, 2.0, 1.0, value]);
        assert_eq!(error, EncodeError::Range { format, row: 1, column: 1, value });
    }
    let error = refused(Format::E8, 256, &[3e38; 256]);
    assert!(matches!(error, EncodeError::Range { row: 0, column: 0, .. }), "{error}");
}

#[test]
fn a_refused_block_leaves_no_bytes() {
    let mut encoder = Encoder::new(Format::E8, 256).unwrap();
    let (mut data, mut scales) = (vec![], vec![]);
    let mut far = [1.0; 512];
    far[256..].fill(3e38);
    let error = encoder.push(&far, &mut data, &mut scales).unwrap_err();
    assert!(matches!(error, EncodeError::Range { row: 1, .. }), "{error}");
    assert_eq!((data.len(), scales.len(), encoder.rows()), (0, 0, 0));
    encoder.push(&far[..256], &mut data, &mut scales).unwrap();
    far[0] = f32::NAN;
    assert!(matches!(
        encoder.push(&far, &mut data, &mut scales),
        Err(EncodeError::NotFinite { row: 1, column: 0, .. })
    ));
    assert_eq!((data.len(), scales.len(), encoder.rows()), (98, 4, 1));
}

#[test]
fn fp8_rows_come_in_blocks() {
    let format = Format::Fp8Block { scale: BlockScale::F32 };
    let (mut encoder, mut data, mut scales) = (Encoder::new(format, 2).unwrap(), vec![], vec![]);
    encoder.push(&[1.0; 2 * 130], &mut data, &mut scales).unwrap();
    assert_eq!((data.len(), scales.len()), (260, 8));
    let error = encoder.push(&[1.0; 2], &mut data, &mut scales).unwrap_err();
    assert_eq!(error, EncodeError::Block { format, block: 128, rows: 130 });
}

#[test]
fn nothing_is_encoded_to_nothing() {
    for format in weights() {
        let none = encode(format, 256, &[]).unwrap();
        assert!(none.view(format, 0, 256).is_ok(), "{format}");
        let flat = encode(format, 0, &[]).unwrap();
        assert!(flat.view(format, 0, 0).is_ok(), "{format}");
    }
}
