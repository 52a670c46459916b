//! Tensors in the engine layout: what their stamps may say.

use super::{Entry, decode, file_with, open, want};
use crate::formats::layout::{bytes, tile};
use crate::formats::{Format, encode};
use crate::weights::{Error, HeaderError, Index, PADDING, Problem};

const SHAPE: [usize; 2] = [17, 66];

fn values() -> Vec<f32> {
    (0..SHAPE[0] * SHAPE[1]).map(|i| (i % 23) as f32 - 11.0).collect()
}

/// Tiles of int8 and so many zeros behind them.
fn tiles(padding: usize) -> Vec<u8> {
    let made = encode(Format::Int8Row, SHAPE[1], &values()).unwrap();
    let mut tiles = tile(&made.view(Format::Int8Row, SHAPE[0], SHAPE[1]).unwrap()).unwrap();
    assert_eq!(Some(tiles.len()), bytes(Format::Int8Row, SHAPE[0], SHAPE[1]));
    tiles.resize(tiles.len() + padding, 0);
    tiles
}

fn stamped(stamp: &str, dtype: &str, bytes: Vec<u8>) -> Result<Index, Error> {
    let entries: [Entry; 2] = [("w.weight", dtype, &[bytes.len() as u64], bytes), ("w.weight.qs", "F32", &[0], vec![])];
    open(file_with(&entries, &[("coli.tiles", &format!(r#"{{"w.weight": {stamp}}}"#))]))
}

const STAMP: &str = r#"{"format": "int8-row", "layout": "tile16-v1", "shape": [17, 66]}"#;

#[test]
fn padding_is_not_read() {
    for padding in [0, 1, PADDING as usize - 1] {
        let index = stamped(STAMP, "U8", tiles(padding)).unwrap();
        let want = want("w", &[17, 66]);
        assert!(decode(&index, want.clone()).iter().zip(values()).all(|(a, b)| (a - b).abs() < 0.05));
        let bound = index.bind(&[want], &["*".into()]).unwrap();
        assert_eq!((bound.one(0).is_tiled(), bound.one(0).bytes()), (true, tiles(0).len() as u64));
        assert!(bound.one(0).retiled().is_none());
        // A sidecar of tiles is nobody's.
        assert_eq!(index.names().collect::<Vec<_>>(), ["w.weight", "w.weight.qs"]);
        let summary = index.summary("w.weight").unwrap();
        assert_eq!((summary.format.as_str(), summary.parameters), ("int8-row", Some(17 * 66)));
        assert!(index.is_tiled("w.weight") && !index.is_tiled("w.weight.qs") && !index.has_sidecar("w.weight"));
    }
}

#[test]
fn bad_stamps_are_named() {
    let why = |stamp: &str, dtype: &str, bytes: Vec<u8>| {
        let problems = stamped(stamp, dtype, bytes).unwrap().bind(&[want("w", &[17, 66])], &["*".into()]).unwrap_err();
        let [Problem::Format { name, why, .. }] = problems.as_slice() else { panic!("{problems:?}") };
        assert_eq!(name, "w.weight");
        assert!(why.contains("convert the model again"), "{why}");
        why.clone()
    };
    for (from, to, part) in [
        ("tile16-v1", "tile32-v7", "the layout `tile32-v7`"),
        ("int8-row", "int5", "no format is called `int5`"),
        (r#""format": "int8-row", "#, "", "no format"),
        (r#", "layout": "tile16-v1""#, "", "no layout"),
        (r#", "shape": [17, 66]"#, "", "no shape"),
        ("[17, 66]", "[17, 66, 1]", "not rows and columns"),
        ("[17, 66]", "[18446744073709551615, 66]", "impossible shape"),
    ] {
        assert!(STAMP.contains(from));
        let found = why(&STAMP.replace(from, to), "U8", tiles(0));
        assert!(found.contains(part), "{found}");
    }
    let mut short = tiles(0);
    short.pop();
    assert!(why(STAMP, "U8", short).contains("takes 4224 in the layout tile16-v1"));
    assert!(why(STAMP, "U8", tiles(PADDING as usize)).contains("less than 4096 of padding"));
    assert!(why(STAMP, "I8", tiles(0)).contains("are U8"));
    let other = stamped(&STAMP.replace("66", "67"), "U8", tiles(0)).unwrap();
    let problems = other.bind(&[want("w", &[17, 66])], &["*".into()]).unwrap_err();
    assert!(matches!(&problems[..], [Problem::Shape { found, .. }] if found == &[17, 67]), "{problems:?}");
}

#[test]
fn stamps_without_tensors_and_other_text_are_refused() {
    let refusal = |text: &str| {
        let entries: [Entry; 1] = [("w.weight", "U8", &[1], vec![0])];
        let Err(Error::Header { source, .. }) = open(file_with(&entries, &[("coli.tiles", text)])) else {
            panic!("{text} was read")
        };
        source
    };
    let absent = refusal(&format!(r#"{{"v.weight": {STAMP}}}"#));
    assert!(matches!(&absent, HeaderError::Absent { tensor } if tensor == "v.weight"), "{absent}");
    assert!(matches!(refusal("[]"), HeaderError::Tiles(_)));
    assert!(matches!(refusal(r#"{"w.weight": {"shape": [-1, 2]}}"#), HeaderError::Tiles(_)));
    let twice = format!(r#"{{"w.weight": {STAMP}, "w.weight": {STAMP}}}"#);
    assert!(matches!(refusal(&twice), HeaderError::Repeated { .. }));
}
