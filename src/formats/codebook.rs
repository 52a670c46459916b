//! The codebook of E8 weights, in a file of its own: the build makes the shaders' table from it too.

/// Entries of the codebook.
pub const ENTRIES: usize = 256;

/// Doubled magnitudes that an entry may hold.
const MAGNITUDES: [u8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];

/// The codebook, three hexadecimal digits an entry: the places of its four numbers in [`MAGNITUDES`], three bits
/// each, the first in the lowest. It is the grid of ggml's iq3_xxs.
const PACKED: &[u8; 3 * ENTRIES] = b"\
00000200400900b00f01001201902203b03d04104304804a05105505805a06106c07808008208408909009209909b09f0a90af0bd0c10c70\
c80ca0d50f810b11f12412f13b13d14114715a16a19d1b41c81cc1ce1e31f120120320820a21121321821a21c22722824024224925025228\
128328828a2912982ba2c02c22d02d92e62f63013053283503543663793853d23e040040240940b41041241641942244144344544844a451\
45847347747848048248948f49049249f4a04ad4c14c84cc4f84fc51d52b54355756157c5c15c35ce5e560160860a61161362863563a6406\
426506596646666816836886956aa6ba6c96db71872773a74074675276d78c79e7b37db7f080480f81d81f82b82f87c89089f8a08b08b68c\
78e59049299349559639789c59c89ca9d8a0aa21a38a40a46a56a6da8ca9aabaac2aebb08b13b17b3ab42b59ba8bd4be2c14c24c26c34c51\
c71c8fcb4cd8cded24d45d6ad9bdc3dd1e03e05e07e08e1ae2ae56e60e8aea5eaaec0ecdedbef0f11f21f40f42f54f98";

/// Doubled magnitudes of every entry: what the Rust and the shader tables are made from.
pub static CODEBOOK: [[u8; 4]; ENTRIES] = codebook();

const fn digit(hex: u8) -> usize {
    (if hex > b'9' { hex - b'a' + 10 } else { hex - b'0' }) as usize
}

const fn codebook() -> [[u8; 4]; ENTRIES] {
    let mut table = [[0; 4]; ENTRIES];
    let mut entry = 0;
    while entry < ENTRIES {
        let at = 3 * entry;
        let packed = digit(PACKED[at]) << 8 | digit(PACKED[at + 1]) << 4 | digit(PACKED[at + 2]);
        let mut k = 0;
        while k < 4 {
            table[entry][k] = MAGNITUDES[(packed >> (3 * k)) & 7];
            k += 1;
        }
        entry += 1;
    }
    table
}
