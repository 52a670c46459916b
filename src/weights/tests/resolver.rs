//! The format of a sidecar's codes against the reference's own resolver, on its byte counts.

use crate::formats::{BlockScale, Format};
use crate::weights::infer::{Evidence, infer};

/// The reference's number of a format.
fn number(format: Format) -> (&'static str, u32) {
    match format {
        Format::Int8Row => ("1", 0),
        Format::Int4Row => ("2", 0),
        Format::Int2Row => ("3", 0),
        Format::Int4Grouped { group } => ("4", group),
        Format::Int3G64 => ("5", 0),
        Format::E8 => ("6", 0),
        Format::Fp8Block { scale: BlockScale::F32 } => ("8", 0),
        other => panic!("{other} has no sidecar of f32"),
    }
}

/// Where the reference reads a tensor, this resolver reads the same or refuses: a stamp that contradicts the
/// bytes (the reference looks at stamps of resident tensors only after this step), or bytes with two readings
/// (the reference takes the first). It reads what the reference refuses only where the type of the scales, which
/// the reference does not look at, leaves one reading.
#[test]
fn readings_are_those_of_the_reference() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/formats/resolve_cases.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let (mut same, mut refused, mut typed, mut contradicted, mut ambiguous) = (0, 0, 0, 0, 0);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let [rows, cols, data, scales, stamp, format, group] = fields[..] else { panic!("{line}") };
        let [rows, cols, data, scales]: [u64; 4] = [rows, cols, data, scales].map(|n| n.parse().unwrap());
        let stamp = (stamp != "-").then_some(stamp);
        let got = infer(&Evidence { rows, cols, data, scales, byte_scales: false, stamp });
        match (got, format) {
            // As many bytes as one-byte scales of fp8 would take. Here their type is known: f32.
            (Ok(_), "refuse") if rows.div_ceil(128) * cols.div_ceil(128) == scales => typed += 1,
            (Ok(found), _) => {
                assert_eq!(number(found), (format, group.parse().unwrap()), "{line}");
                same += 1;
            }
            (Err(_), "refuse") => refused += 1,
            (Err(why), _) if why.contains("can be read as") => {
                assert!(why.contains(" or "), "{line}: {why}");
                ambiguous += 1;
            }
            (Err(why), _) => {
                assert!(why.contains("stamped"), "{line}: {why}");
                contradicted += 1;
            }
        }
    }
    let counts = [same, refused, typed, contradicted, ambiguous];
    assert_eq!(counts.iter().sum::<u32>(), 453);
    assert_eq!(counts, [222, 142, 4, 76, 9], "alike, refused alike, by the type, contradictions, two readings");
}
