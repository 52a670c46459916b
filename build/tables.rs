//! Tables that Rust and shaders share, written as an include for the shaders.

#[path = "../src/formats/codebook.rs"]
mod codebook;
#[path = "../src/formats/rotation.rs"]
#[allow(dead_code, reason = "the build wants the signs alone")]
mod rotation;

use std::fmt::Write;

/// Name of the include.
pub const NAME: &str = "tables.glsl";

/// Longest block of a rotation that shaders do; `rotate.comp` has shared memory for it.
const LONGEST: usize = 4096;

/// `E8_CODEBOOK`: four doubled magnitudes a word. `E8_SIGNS`: the bits for length n from bit n on.
pub fn glsl() -> String {
    let book: Vec<u32> = codebook::CODEBOOK.iter().map(|entry| u32::from_le_bytes(*entry)).collect();
    let mut signs = vec![0u32; 2 * LONGEST / 32];
    let lengths = std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n <= LONGEST);
    for n in lengths {
        let bytes = rotation::signs(n);
        for i in (0..n).filter(|i| bytes[i / 8] >> (i % 8) & 1 == 1) {
            signs[(n + i) / 32] |= 1 << ((n + i) % 32);
        }
    }
    array("E8_CODEBOOK", &book) + &array("E8_SIGNS", &signs)
}

fn array(name: &str, words: &[u32]) -> String {
    let n = words.len();
    let mut out = format!("const uint {name}[{n}] = uint[{n}](");
    for (i, word) in words.iter().enumerate() {
        let _ = write!(out, "{}0x{word:08x}u", if i == 0 { "" } else { ", " });
    }
    out + ");\n"
}
