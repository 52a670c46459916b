//! Damaged files must be refused or read, never panic or hang. `COLI_FUZZ_SECONDS=600` for longer.

use std::time::{Duration, Instant};

use crate::formats::tests::{Random, fuzz_time};

use super::{Entry, file_with, floats, open, want};
use crate::weights::Request;

/// A file with every kind of pair.
fn valid() -> Vec<u8> {
    let entries: [Entry; 20] = [
        ("plain.weight", "BF16", &[2, 3], vec![0; 12]),
        ("half.weight", "F16", &[1, 3], vec![0; 6]),
        ("ids", "I64", &[2], vec![1; 16]),
        ("q.weight", "U8", &[2, 16], vec![0x99; 32]),
        ("q.weight.qs", "F32", &[2, 2], floats(&[1.0; 4])),
        ("k.0.weight_packed", "U8", &[1, 16], vec![0x21; 16]),
        ("k.0.weight_scale", "U8", &[1, 1], vec![127]),
        ("k.1.weight", "I8", &[1, 16], vec![0x21; 16]),
        ("k.1.scale", "F8_E8M0", &[1, 1], vec![127]),
        ("f.weight", "F8_E4M3", &[2, 130], vec![0x38; 260]),
        ("f.scale", "F8_E8M0", &[1, 2], vec![127; 2]),
        ("pad", "F32", &[4], floats(&[0.0; 4])),
        ("two.weight", "U8", &[10], vec![0x1B; 10]),
        ("two.weight.qs", "F32", &[2], floats(&[1.0; 2])),
        ("three.weight", "U8", &[2, 48], vec![0x35; 96]),
        ("three.weight.qs", "F32", &[2, 2], floats(&[1.0; 4])),
        ("e.0.weight", "U8", &[98], vec![0x3C; 98]),
        ("e.0.weight.qs", "F32", &[1], floats(&[6.0])),
        ("t.weight", "U8", &[704], vec![0x11; 704]),
        ("u.weight", "U8", &[4160], vec![0x22; 4160]),
    ];
    let tiles = r#"{"t.weight": {"format": "int4-row", "layout": "tile16-v1", "shape": [16, 64]},
        "u.weight": {"format": "fp8-b128", "layout": "tile16-v1", "shape": [17, 66]}}"#;
    file_with(&entries, &[("colibri.fmt", r#"{"q.weight": "int4-grouped"}"#), ("coli.tiles", tiles)])
}

fn requests() -> Vec<Request> {
    vec![
        want("plain", &[2, 3]),
        want("half", &[3]),
        want("ids", &[2]),
        want("q", &[2, 32]),
        Request { experts: Some(2), ..want("k.{e}", &[1, 32]) },
        want("f", &[2, 130]),
        Request { at_least: true, ..want("pad", &[2]) },
        want("two", &[2, 18]),
        want("three", &[2, 70]),
        Request { experts: Some(1), ..want("e.{e}", &[1, 256]) },
        want("t", &[16, 64]),
        want("u", &[17, 66]),
    ]
}

/// Opens, binds and decodes what can be.
fn exercise(bytes: Vec<u8>) -> bool {
    let Ok(index) = open(bytes) else { return false };
    for request in requests() {
        if let Ok(bound) = index.bind(std::slice::from_ref(&request), &["*".to_owned()]) {
            for tensor in 0..bound.count(0) {
                bound.expert(0, tensor).find_nan();
                drop(bound.expert(0, tensor).retiled());
            }
        }
    }
    index.names().for_each(|name| drop(index.summary(name)));
    index.bind(&requests(), &[]).is_ok()
}

fn damage(bytes: &mut Vec<u8>, header: usize, random: &mut Random) {
    // Most of the interest is in the header, whose numbers and names carry all the claims.
    let header = header.min(bytes.len());
    let reach = if random.below(8) == 0 { bytes.len() } else { header };
    let at = random.below(reach);
    match random.below(6) {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at] = b'0' + random.below(10) as u8,
        3 => bytes.insert(at, b"0123456789\",:{}[]"[random.below(17)]),
        4 => drop(bytes.remove(at)),
        _ => {
            let from = random.below(header);
            let length = random.below(40).min(bytes.len() - from.max(at));
            bytes.copy_within(from..from + length, at);
        }
    }
    if random.below(2) == 0 && bytes.len() > 8 {
        // Insertions and removals shift the header; follow with the length so the text is parsed.
        let text = bytes[8..].iter().rposition(|byte| *byte == b'}').map_or(0, |end| end + 1);
        bytes[..8].copy_from_slice(&(text as u64).to_le_bytes());
    }
}

#[test]
fn mutated_files_never_panic_or_hang() {
    let valid = valid();
    assert!(exercise(valid.clone()));
    let header = valid.iter().rposition(|byte| *byte == b'}').map_or(8, |end| end + 1);
    let (start, time, mut rounds, mut opened) = (Instant::now(), fuzz_time(2.0), 0u64, 0u64);
    while start.elapsed() < time {
        let mut random = Random(rounds);
        let mut bytes = valid.clone();
        for _ in 0..=random.below(3) {
            if !bytes.is_empty() {
                damage(&mut bytes, header, &mut random);
            }
        }
        let before = Instant::now();
        opened += u64::from(exercise(bytes));
        assert!(before.elapsed() < Duration::from_secs(1), "round {rounds} took too long");
        rounds += 1;
    }
    println!("{opened} of {rounds} damaged files opened");
    assert!(rounds > 100 && opened > 0, "{opened} of {rounds} rounds opened");
}
