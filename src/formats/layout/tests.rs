use super::*;
use crate::formats::BlockScale;

fn all() -> Vec<Format> {
    let scales = [BlockScale::F32, BlockScale::Ue8m0].map(|scale| Format::Fp8Block { scale });
    let groups = [16, 32, 48, 64, 128].map(|group| Format::Int4Grouped { group });
    let plain = [Format::F32, Format::F16, Format::Bf16, Format::Int8Row, Format::Int4Row, Format::Int2Row];
    [&plain[..], &groups, &scales, &[Format::Int3G64, Format::E8, Format::Mxfp4]].concat()
}

/// Bytes of any kind in file order; the tag of E8 as the converter writes it.
fn file(format: Format, rows: usize, cols: usize) -> (Vec<u8>, Vec<u8>) {
    let mut state = 1u32;
    let mut noise = |n: u64| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..n).map(|_| next()).collect()
    };
    let data = noise(format.data_bytes(rows as u64, cols as u64));
    let scales = match format {
        Format::E8 => E8_TAG.to_vec(),
        _ => noise(format.scale_bytes(rows as u64, cols as u64)),
    };
    (data, scales)
}

const SHAPES: [(usize, usize); 8] = [(1, 1), (3, 7), (16, 64), (17, 65), (33, 200), (130, 300), (16, 256), (40, 513)];

#[test]
fn files_come_back_byte_by_byte() {
    for format in all() {
        for (rows, cols) in SHAPES {
            let (data, scales) = file(format, rows, cols);
            let view = View::new(format, rows, cols, &data, &scales).unwrap();
            let bytes = tile(&view).unwrap();
            let tiled = Tiled::new(format, rows, cols, &bytes).unwrap();
            assert!(tiled.untile() == (data.clone(), scales.clone()), "{format} {rows}x{cols}");
            let (mut want, mut got) = (vec![0.0; cols], vec![0.0; cols]);
            for row in 0..rows {
                view.decode_row(row, &mut want);
                tiled.decode_row(row, &mut got);
                assert!(want.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits()), "{format} row {row}");
            }
        }
    }
}

#[test]
fn what_is_filled_up_decodes_to_zero() {
    for format in all() {
        let (rows, cols) = (17, 128);
        let (data, scales) = file(format, rows, cols);
        let bytes = tile(&View::new(format, rows, cols, &data, &scales).unwrap()).unwrap();
        // The same bytes, read as the matrix with whole tiles. Block scales are shared with rows that exist.
        let whole = Tiled::new(format, 32, cols, &bytes).unwrap();
        let mut values = vec![1.0; cols];
        for row in rows..32 {
            whole.decode_row(row, &mut values);
            assert!(values.iter().all(|v| *v == 0.0 || v.is_nan() && matches!(format, Format::Fp8Block { .. })));
        }
    }
}

#[test]
fn a_word_of_sixteen_rows_lies_together() {
    // int8, 32 x 64: word 3 of tile 1 starts behind 16 words of tile 0 and three of its own.
    let data: Vec<u8> = (0..32 * 64).map(|i| (i / 64 * 4 + i % 64 / 4) as u8).collect();
    let scales = vec![0; 32 * 4];
    let bytes = tile(&View::new(Format::Int8Row, 32, 64, &data, &scales).unwrap()).unwrap();
    let words = &bytes[(16 + 3) * 64..][..64];
    let want: Vec<u8> = (16..32).flat_map(|row| [(row * 4 + 3) as u8; 4]).collect();
    assert_eq!(words, want);
}

#[test]
fn sizes_of_published_experts() {
    // Real shapes have nothing to fill up: the layout takes the bytes of the file (E8 without its tag).
    for (format, more) in
        [(Format::Int4Grouped { group: 64 }, 0), (Format::Mxfp4, 0), (Format::E8, 4), (Format::Int3G64, 0)]
    {
        let file = format.bytes(2048, 6144) as usize;
        assert_eq!(bytes(format, 2048, 6144), Some(file - more), "{format}");
    }
    assert_eq!(bytes(Format::I64, 4, 4), None);
    assert_eq!(bytes(Format::F32, usize::MAX, usize::MAX), None);
    assert_eq!(bytes(Format::Mxfp4, 0, 0), Some(0));
}

#[test]
fn planes_start_aligned() {
    for format in all() {
        for (rows, cols) in SHAPES {
            let planes = planes::of(format, rows, cols).unwrap();
            assert!(planes.iter().all(|p| p.at % ALIGN == 0), "{format}");
            assert!(planes.windows(2).all(|p| p[0].at + p[0].bytes <= p[1].at), "{format}");
        }
    }
}

#[test]
fn other_lengths_are_refused() {
    assert!(Tiled::new(Format::Int8Row, 16, 64, &[0; 1087]).is_err());
    assert!(Tiled::new(Format::Int8Row, 16, 64, &[0; 1088]).is_ok());
    assert!(Tiled::new(Format::I32, 0, 0, &[]).is_err());
}
