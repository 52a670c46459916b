//! Stored parts become the weights they belong to, with the right values.

use super::{decode, file, file_with, floats, open, want};
use crate::formats::{BlockScale, Format};
use crate::weights::{Index, Problem};

fn format(index: &Index, name: &str, shape: &[u64]) -> Format {
    index.bind(&[want(name, shape)], &[]).unwrap().one(0).format()
}

fn refusal(index: &Index, name: &str, shape: &[u64]) -> String {
    let problems = index.bind(&[want(name, shape)], &["*".to_owned()]).unwrap_err();
    match problems.as_slice() {
        [Problem::Format { name: found, why, .. }] if found.starts_with(name) => why.clone(),
        other => panic!("expected one format problem about {name}, got {other:?}"),
    }
}

#[test]
fn kimi_packed_weights_are_mxfp4() {
    let index = open(file(&[
        ("x.w1.weight_packed", "U8", &[2, 16], vec![0x22; 32]),
        ("x.w1.weight_scale", "U8", &[2, 1], vec![127, 128]),
    ]))
    .unwrap();
    assert_eq!(index.names().collect::<Vec<_>>(), ["x.w1.weight"]);
    assert_eq!(format(&index, "x.w1", &[2, 32]), Format::Mxfp4);
    let values = decode(&index, want("x.w1", &[2, 32]));
    assert!(values[..32].iter().all(|&v| v == 1.0) && values[32..].iter().all(|&v| v == 2.0));
}

#[test]
fn deepseek_expert_and_dense_weights() {
    let index = open(file(&[
        ("e.weight", "I8", &[2, 16], vec![0x22; 32]),
        ("e.scale", "F8_E8M0", &[2, 1], vec![127, 128]),
        ("d.weight", "F8_E4M3", &[2, 130], vec![0x38; 260]),
        ("d.scale", "F8_E8M0", &[1, 2], vec![128, 126]),
    ]))
    .unwrap();
    let bound = index.bind(&[want("e", &[2, 32]), want("d", &[2, 130])], &[]).unwrap();
    assert_eq!(bound.one(0).format(), Format::Mxfp4);
    assert_eq!(bound.one(1).format(), Format::Fp8Block { scale: BlockScale::Ue8m0 });
    assert_eq!((bound.one(1).bytes(), bound.bytes()), (262, 262 + 34));
    let values = decode(&index, want("d", &[2, 130]));
    assert_eq!((values[0], values[127], values[128], values[130]), (2.0, 2.0, 0.5, 2.0));
}

#[test]
fn glm_fp8_exports_have_f32_block_scales() {
    let index = open(file(&[
        ("d.weight", "F8_E4M3", &[1, 3], vec![0x38; 3]),
        ("d.weight_scale_inv", "F32", &[1, 1], floats(&[3.0])),
    ]))
    .unwrap();
    assert_eq!(format(&index, "d", &[1, 3]), Format::Fp8Block { scale: BlockScale::F32 });
    assert_eq!(decode(&index, want("d", &[1, 3])), [3.0; 3]);
}

#[test]
fn sidecars_follow_from_byte_counts_flat_or_not() {
    let index = open(file(&[
        ("a.weight", "U8", &[2, 3], vec![1, 2, 3, 0xFF, 0, 5]),
        ("a.weight.qs", "F32", &[2], floats(&[1.0, 2.0])),
        ("b.weight", "I8", &[32], vec![0x99; 32]),
        ("b.weight.qs", "F32", &[2, 2], floats(&[1.0, 2.0, 3.0, 4.0])),
        ("c", "U8", &[2, 16], vec![0x99; 32]),
        ("c.qs", "F32", &[2], floats(&[1.0, 2.0])),
    ]))
    .unwrap();
    let ignore = ["*".to_owned()];
    let requests = [want("a", &[2, 3]), want("b", &[2, 32]), want("c", &[2, 32])];
    let bound = index.bind(&requests, &ignore).unwrap();
    assert_eq!(bound.one(0).format(), Format::Int8Row);
    assert_eq!(bound.one(1).format(), Format::Int4Grouped { group: 16 });
    assert_eq!(bound.one(2).format(), Format::Int4Row);
    assert_eq!(decode(&index, want("a", &[2, 3])), [1.0, 2.0, 3.0, -2.0, 0.0, 10.0]);
    let b = decode(&index, want("b", &[2, 32]));
    assert_eq!((b[0], b[16], b[32], b[48]), (1.0, 2.0, 3.0, 4.0));
}

#[test]
fn sidecars_of_formats_below_four_bits() {
    let e8 = |rows: usize| [vec![0; 96], vec![0x00, 0x40]].concat().repeat(rows);
    let index = open(file(&[
        ("a.weight", "U8", &[2, 2], vec![0b1110_0100, 0b11, 0, 0]),
        ("a.weight.qs", "F32", &[2], floats(&[2.0, 1.0])),
        ("b.weight", "U8", &[48], vec![0xFF; 48]),
        ("b.weight.qs", "F32", &[2], floats(&[1.0, 2.0])),
        ("c.weight", "U8", &[2 * 98], e8(2)),
        // The size of the tag is what counts, not its value.
        ("c.weight.qs", "F32", &[1], floats(&[0.0])),
    ]))
    .unwrap();
    let ignore = ["*".to_owned()];
    let bound = index.bind(&[want("a", &[2, 5]), want("b", &[1, 66]), want("c", &[2, 256])], &ignore).unwrap();
    let formats = [0, 1, 2].map(|request| bound.one(request).format());
    assert_eq!(formats, [Format::Int2Row, Format::Int3G64, Format::E8]);
    assert_eq!(decode(&index, want("a", &[2, 5]))[..5], [-4.0, -2.0, 0.0, 2.0, 2.0]);
    assert_eq!(decode(&index, want("b", &[1, 66]))[63..], [3.0, 6.0, 6.0]);
    // The first entry of the codebook is 4, 4, 4, 4: d (0.5 + 0) 0.5 times a half of it.
    assert_eq!(decode(&index, want("c", &[2, 256])), [1.0; 512]);
}

#[test]
fn stamps_decide_and_contradictions_are_refused() {
    // [8, 24] with 192 + 32 bytes is int8-row or int3-g64.
    let entries: [super::Entry; 2] =
        [("t.weight", "U8", &[192], vec![0; 192]), ("t.weight.qs", "F32", &[8], floats(&[1.0; 8]))];
    let stamped = |stamp: &str| {
        let text = format!(r#"{{"t.weight": "{stamp}"}}"#);
        open(file_with(&entries, &[("colibri.fmt", &text)])).unwrap()
    };
    let why = refusal(&open(file(&entries)).unwrap(), "t", &[8, 24]);
    assert!(why.contains("int8-row or int3-g64"), "{why}");
    assert_eq!(format(&stamped("int8-row"), "t", &[8, 24]), Format::Int8Row);
    assert_eq!(format(&stamped("int3-g64"), "t", &[8, 24]), Format::Int3G64);
    let why = refusal(&stamped("int4-grouped"), "t", &[8, 24]);
    assert!(why.contains("stamped `int4-grouped`") && why.contains("int8-row"), "{why}");
    let why = refusal(&stamped("int9"), "t", &[8, 24]);
    assert!(why.contains("`int9`"), "{why}");
}

#[test]
fn incomplete_pairs_are_refused_by_name() {
    let index = open(file(&[
        ("k.weight_packed", "U8", &[1, 16], vec![0; 16]),
        ("q.weight", "U8", &[4], vec![0; 4]),
        ("f.weight", "F8_E4M3", &[4], vec![0; 4]),
        ("n.weight_packed", "U8", &[1, 16], vec![0; 16]),
        ("n.weight_scale", "F8_E4M3", &[1, 2], vec![0; 2]),
        ("s.weight", "F8_E4M3", &[4, 4], vec![0; 16]),
        ("s.weight_scale_inv", "BF16", &[1, 1], vec![0; 2]),
        ("g.weight", "F8_E4M3", &[4, 4], vec![0; 16]),
        ("g.scale", "F32", &[4, 1], vec![0; 16]),
        ("b.weight", "BF16", &[2], vec![0; 4]),
        ("b.weight.qs", "F32", &[1], vec![0; 4]),
        ("h.weight", "U8", &[2], vec![0; 2]),
        ("h.weight.qs", "F16", &[1], vec![0; 2]),
        ("w.weight", "F64", &[1], vec![0; 8]),
    ]))
    .unwrap();
    for (name, shape, why) in [
        ("k", &[1, 32][..], "`k.weight_packed` has no scales"),
        ("q", &[4], "`q.weight.qs`"),
        ("f", &[4], "block scales"),
        ("n", &[1, 32], "U8 with F8_E4M3 scales"),
        ("s", &[4, 4], "BF16 scales in `s.weight_scale_inv`"),
        ("g", &[4, 4], "[4, 1], but 128x128 blocks need [1, 1]"),
        ("b", &[2], "U8 or I8, not BF16"),
        ("h", &[2], "F32, not F16"),
        ("w", &[1], "does not read F64"),
    ] {
        let found = refusal(&index, name, shape);
        assert!(found.contains(why), "{name}: {found}");
    }
}

#[test]
fn scales_without_codes_are_unused_not_lost() {
    let index = open(file(&[
        ("a.qs", "F32", &[1], floats(&[1.0])),
        ("b.weight", "F32", &[1], floats(&[1.0])),
        ("b.scale", "F32", &[1], floats(&[1.0])),
        ("c.weight", "F32", &[1], floats(&[1.0])),
        ("c.weight_packed", "U8", &[1], vec![0]),
    ]))
    .unwrap();
    let problems = index.bind(&[want("b", &[1]), want("c", &[1])], &[]).unwrap_err();
    let names = ["a.qs", "b.scale", "c.weight_packed"].map(str::to_owned).to_vec();
    assert_eq!(problems, [Problem::Unused { names }]);
}
