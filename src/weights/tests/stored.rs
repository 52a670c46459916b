//! Tensors without a graph, and readings by the user's word.

use super::{file_with, open, want};
use crate::formats::{BlockScale, Format};
use crate::weights::{Error, Index};

fn sample() -> Index {
    let bytes = vec![0u8; 4 * 80];
    let scales = vec![0u8; 32];
    let entries: Vec<super::Entry> = vec![
        ("a.weight", "U8", &[4, 80], bytes.clone()),
        ("a.weight.qs", "F32", &[8], scales.clone()),
        ("b.weight", "F8_E4M3", &[2, 4], vec![0; 8]),
        ("b.scale", "F8_E8M0", &[1, 1], vec![127]),
        ("c.weight_packed", "U8", &[2, 16], vec![0; 32]),
        ("c.weight_scale", "U8", &[2, 1], vec![127; 2]),
        ("n", "BF16", &[3], vec![0; 6]),
        ("s", "U8", &[98], vec![0; 98]),
        ("s.qs", "F32", &[1], vec![0; 4]),
    ];
    open(file_with(&entries, &[("colibri.fmt", r#"{"s": "e8-iq3-lattice"}"#)])).unwrap()
}

#[test]
fn summaries_say_what_is_certain() {
    let index = sample();
    let summary = |name: &str| {
        let s = index.summary(name).unwrap();
        (s.format, s.parameters, s.bytes)
    };
    assert_eq!(summary("a.weight"), ("unstamped codes".into(), None, 352));
    assert_eq!(summary("b.weight"), ("fp8-b128-ue8m0".into(), Some(8), 9));
    assert_eq!(summary("c.weight"), ("mxfp4".into(), Some(64), 34));
    assert_eq!(summary("n"), ("bf16".into(), Some(3), 6));
    assert_eq!(summary("s"), ("e8-iq3-lattice".into(), Some(256), 102));
    assert_eq!(index.summary("a.weight.qs"), None);
    assert_eq!((index.has_sidecar("s"), index.stamp("s")), (true, Some("e8-iq3-lattice")));
    assert_eq!((index.has_sidecar("n"), index.stamp("n")), (false, None));
}

#[test]
fn stored_tensors_come_codes_first() {
    let index = sample();
    let names = |name: &str| index.stored(name).iter().map(|s| s.name.to_owned()).collect::<Vec<_>>();
    assert_eq!(names("a.weight"), ["a.weight", "a.weight.qs"]);
    assert_eq!(names("c.weight"), ["c.weight_packed", "c.weight_scale"]);
    assert_eq!(names("n"), ["n"]);
    assert!(names("x").is_empty());
    let c = index.stored("c.weight");
    assert_eq!((c[0].dtype.as_str(), c[0].shape, c[0].bytes.len()), ("U8", &[2, 16][..], 32));
}

#[test]
fn readings_by_word() {
    let index = sample();
    let format = |index: &Index| index.bind(&[want("a.weight", &[4, 160])], &["*".into()]).map(|b| b.one(0).format());
    assert!(format(&index).is_err());
    for group in [96, 128] {
        let reading = Format::Int4Grouped { group };
        let read = index.read_as(&[("*.weight".into(), Format::Int8Row), ("a*".into(), reading)]).unwrap();
        assert_eq!(format(&read), Ok(reading));
    }
    let fp8 = Format::Fp8Block { scale: BlockScale::F32 };
    for (name, format, part) in
        [("b.weight", fp8, "its type"), ("z", fp8, "no tensor"), ("a.weight", Format::F32, "no scales")]
    {
        let Err(Error::ReadAs { why, .. }) = index.read_as(&[(name.into(), format)]) else { panic!("{name}") };
        assert!(why.contains(part), "{why}");
    }
}
