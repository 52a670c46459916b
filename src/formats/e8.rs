//! E8/IQ3 rows: 256 columns in 98 bytes, four columns a codebook entry.
//!
//! | bytes of a block | content |
//! |---|---|
//! | 0..64 | index of the codebook entry of columns `4j..4j + 4` |
//! | 64..96 | eight u32, one per 32 columns: seven sign bits for each lane of eight columns, from bit 0, 7, 14, 21; in bits 28..32 the sub-scale code |
//! | 96..98 | super-scale, an f16 |
//!
//! A set bit negates. The eighth column of a lane has the parity of the seven bits, so an even number of the
//! eight is negative. `value = ± (d (0.5 + code) 0.5) (G 0.5)`, in f32 and in that order, with `G` a number of
//! [`CODEBOOK`]. Rows are stored rotated ([`rotation`](super::rotation)).
//!
//! The super-scale is an IEEE half, subnormals too. The engine that the format comes from reads subnormals
//! 2^-14 too large, and its native encoder halves them; bytes that it wrote for blocks with a mean square below
//! (1.2e-3)^2 therefore decode to other values here than there. Source: formats.md section 6.

use super::codebook::{CODEBOOK, ENTRIES};
use super::format::{E8_BLOCK, E8_BYTES};
use half::f16;

/// Columns that share a sub-scale.
const SUB: usize = 32;
/// Codes of a sub-scale.
const CODES: usize = 16;

/// Magnitudes `G / 2`, exact.
static HALVES: [[f32; 4]; ENTRIES] = halves();

const fn halves() -> [[f32; 4]; ENTRIES] {
    let mut table = [[0.0; 4]; ENTRIES];
    let mut entry = 0;
    while entry < ENTRIES {
        let mut k = 0;
        while k < 4 {
            table[entry][k] = CODEBOOK[entry][k] as f32 * 0.5;
            k += 1;
        }
        entry += 1;
    }
    table
}

/// `d (0.5 + code) 0.5`.
fn sub_scale(d: f32, code: u32) -> f32 {
    d * (0.5 + code as f32) * 0.5
}

/// The seven stored sign bits of a lane with the eighth, their parity, behind them.
fn with_parity(bits: u32) -> u32 {
    bits | (bits.count_ones() & 1) << 7
}

/// Decodes a row, in rotated space. The last block may hold more columns than the row has.
pub(super) fn row(data: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_mut(E8_BLOCK).zip(data.as_chunks::<E8_BYTES>().0) {
        let (indices, rest) = block.split_at(64);
        let (words, d) = rest.split_at(32);
        let d = f16::from_le_bytes([d[0], d[1]]).to_f32();
        let lanes = words.as_chunks::<4>().0.iter().flat_map(|word| {
            let word = u32::from_le_bytes(*word);
            let scale = sub_scale(d, word >> 28);
            (0..4).map(move |lane| (scale, with_parity(word >> (7 * lane) & 127)))
        });
        for ((values, pair), (scale, signs)) in values.chunks_mut(8).zip(indices.as_chunks::<2>().0).zip(lanes) {
            let [low, high] = pair.map(|index| HALVES[usize::from(index)]);
            let magnitudes = low.into_iter().chain(high);
            for (at, (value, magnitude)) in values.iter_mut().zip(magnitudes).enumerate() {
                // The sign bit itself: minus zero where the scale is zero, as a multiplication by -1 gives.
                *value = f32::from_bits((scale * magnitude).to_bits() ^ (signs >> at & 1) << 31);
            }
        }
    }
}

/// Half of the magnitudes by place and the squared length of every entry, for the search.
struct Search {
    places: [[f32; ENTRIES]; 4],
    lengths: [f32; ENTRIES],
}

static SEARCH: Search = search();

const fn search() -> Search {
    let mut s = Search { places: [[0.0; ENTRIES]; 4], lengths: [0.0; ENTRIES] };
    let mut entry = 0;
    while entry < ENTRIES {
        let mut k = 0;
        while k < 4 {
            let half = CODEBOOK[entry][k] as f32 * 0.5;
            s.places[k][entry] = half;
            s.lengths[entry] += half * half;
            k += 1;
        }
        entry += 1;
    }
    s
}

/// A block to store that overflows the super-scale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Overflow {
    /// Its first column.
    pub column: usize,
}

/// Encodes a rotated row whose length is a multiple of 256. Source: formats.md 6.6, with the true value of a
/// subnormal super-scale.
///
/// Signs first: where a lane has an odd number of negatives, the smallest magnitude changes sign. The
/// super-scale is the root mean square over 20, and for each of 16 sub-scales the nearest entries are looked up.
///
/// # Errors
/// [`Overflow`] when a super-scale rounds to infinity (a root mean square above 1.3e6).
pub(super) fn encode_row(rotated: &[f32], data: &mut Vec<u8>) -> Result<(), Overflow> {
    for (index, values) in rotated.as_chunks::<E8_BLOCK>().0.iter().enumerate() {
        let square: f64 = values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        let d = f16::from_f64((square / E8_BLOCK as f64).sqrt() / 20.0 + 1e-12);
        if !d.is_finite() {
            return Err(Overflow { column: index * E8_BLOCK });
        }
        let mut indices = [0u8; E8_BLOCK / 4];
        let mut words = [0u32; E8_BLOCK / SUB];
        for ((sub, indices), word) in
            values.as_chunks::<SUB>().0.iter().zip(indices.as_chunks_mut::<8>().0).zip(&mut words)
        {
            let (code, found) = nearest(&sub.map(f32::abs), d.to_f32());
            *indices = found;
            *word = signs(sub) | code << 28;
        }
        data.extend(indices);
        data.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        data.extend(d.to_le_bytes());
    }
    Ok(())
}

/// Sign bits of 32 columns, seven a lane.
fn signs(sub: &[f32; SUB]) -> u32 {
    let mut word = 0;
    for (lane, values) in sub.as_chunks::<8>().0.iter().enumerate() {
        // Minus zero counts as positive.
        let mut bits = values.iter().enumerate().fold(0u32, |bits, (at, v)| bits | u32::from(*v < 0.0) << at);
        if bits.count_ones() % 2 == 1 {
            let smaller = |least: usize, at: usize| if values[at].abs() < values[least].abs() { at } else { least };
            bits ^= 1 << (1..8).fold(0, smaller);
        }
        word |= (bits & 127) << (7 * lane);
    }
    word
}

/// The sub-scale code and the eight entries that come nearest to 32 magnitudes; the lowest on ties.
fn nearest(magnitudes: &[f32; SUB], d: f32) -> (u32, [u8; 8]) {
    let scale = |code: u32| sub_scale(d, code).max(1e-20);
    let products: [[f32; ENTRIES]; 8] = std::array::from_fn(|group| doubled_products(&magnitudes[4 * group..]));
    let mut best = (f32::INFINITY, 0);
    for code in 0..CODES as u32 {
        let db = scale(code);
        let error = db * products.iter().map(|p| least(p, db)).sum::<f32>();
        if error < best.0 {
            best = (error, code);
        }
    }
    let db = scale(best.1);
    let entry = |p: &[f32; ENTRIES]| {
        let least = least(p, db);
        let of = |(product, length): (&f32, &f32)| distance(*product, *length, db) == least;
        p.iter().zip(&SEARCH.lengths).position(of).unwrap_or(0) as u8
    };
    (best.1, products.each_ref().map(entry))
}

/// `2 m . g` for every entry `g` and four magnitudes `m`.
fn doubled_products(m: &[f32]) -> [f32; ENTRIES] {
    let [a, b, c, d] = &SEARCH.places;
    std::array::from_fn(|e| 2.0 * (m[0] * a[e] + m[1] * b[e] + m[2] * c[e] + m[3] * d[e]))
}

/// Squared distance of `m / db` from an entry, over `1 / db` and without the part that no entry changes.
fn distance(product: f32, length: f32, db: f32) -> f32 {
    db * length - product
}

/// The smallest distance over all entries. Lanes, so that the search is vectorised.
fn least(products: &[f32; ENTRIES], db: f32) -> f32 {
    const LANES: usize = 16;
    let mut least = [f32::INFINITY; LANES];
    for (p, l) in products.as_chunks::<LANES>().0.iter().zip(SEARCH.lengths.as_chunks::<LANES>().0) {
        for k in 0..LANES {
            let distance = distance(p[k], l[k], db);
            least[k] = if distance < least[k] { distance } else { least[k] };
        }
    }
    least.iter().fold(f32::INFINITY, |a, b| if *b < a { *b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{Format, View};

    #[test]
    fn a_block_by_hand() {
        let mut block = [0u8; E8_BYTES];
        // Columns 0..4 are entry 1, the rest entry 0. Signs of lane 0: columns 0 and 2 of the stored seven
        // and 1 (three in all), so column 7 is negative too. Sub-scale code 3 of word 0.
        block[0] = 1;
        block[64..68].copy_from_slice(&(0b0000111u32 | 3 << 28).to_le_bytes());
        block[96..].copy_from_slice(&f16::from_f32(2.0).to_le_bytes());
        let tag = 6f32.to_le_bytes();
        let view = View::new(Format::E8, 1, 256, &block, &tag).unwrap();
        let mut out = [0.0; 256];
        view.decode_row(0, &mut out);
        let entry = CODEBOOK[1].map(|g| f32::from(g) * 0.5 * 3.5);
        assert_eq!(out[..4], [-entry[0], -entry[1], -entry[2], entry[3]]);
        assert_eq!(out[4..9], [7.0, 7.0, 7.0, -7.0, 7.0]);
        // Code 0 of the other words: 2 * 0.5 * 0.5 * 2.
        assert!(out[32..].iter().all(|v| *v == 1.0));
    }

    #[test]
    fn subnormal_super_scales_are_ieee_halves() {
        let mut block = [0u8; E8_BYTES];
        block[96] = 1;
        let mut out = [0.0; 256];
        row(&block, &mut out);
        assert!(out.iter().all(|v| *v == 2f32.powi(-24) * 0.5));
    }

    #[test]
    fn rows_may_end_inside_a_block() {
        let mut block = [0u8; 2 * E8_BYTES];
        block[E8_BYTES..][96..].copy_from_slice(&f16::ONE.to_le_bytes());
        let mut out = [9.0; 259];
        row(&block, &mut out);
        assert_eq!((out[255], out[256], out[258]), (0.0, 0.5, 0.5));
    }

    #[test]
    fn an_odd_number_of_negatives_flips_the_smallest() {
        let mut sub = [1.0f32; SUB];
        sub[0] = -5.0;
        sub[3] = 0.25;
        sub[6] = 0.25;
        // Lane 1: two negatives stay; the eighth is one of them and is not stored.
        sub[9] = -1.0;
        sub[15] = -1.0;
        assert_eq!(signs(&sub), 0b1001 | 0b10 << 7);
        // Minus zero is positive.
        assert_eq!(signs(&[-0.0; SUB]), 0);
    }

    #[test]
    fn zeros_and_overflow() {
        let mut data = vec![];
        encode_row(&[0.0; 256], &mut data).unwrap();
        let mut out = [9.0; 256];
        row(&data, &mut out);
        assert_eq!(out, [0.0; 256]);
        let mut far = [0.0; 512];
        far[256..].fill(2e6);
        assert_eq!(encode_row(&far, &mut vec![]), Err(Overflow { column: 256 }));
    }
}
