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
pub(super) const SUB: usize = 32;
/// Codes of a sub-scale.
const CODES: usize = 16;

/// Magnitudes `G / 2`, exact.
const HALVES_OF: [[f32; 4]; ENTRIES] = halves();
static HALVES: [[f32; 4]; ENTRIES] = HALVES_OF;

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

/// Sign bits of the eight columns of a lane by its seven stored bits: the eighth has their parity.
static SIGNS: [[u32; 8]; 128] = sign_bits();

const fn sign_bits() -> [[u32; 8]; 128] {
    let mut table = [[0; 8]; 128];
    let mut stored = 0u32;
    while stored < 128 {
        let bits = stored | (stored.count_ones() & 1) << 7;
        let mut at = 0;
        while at < 8 {
            table[stored as usize][at] = (bits >> at & 1) << 31;
            at += 1;
        }
        stored += 1;
    }
    table
}

/// Decodes a row, in rotated space. The last block may hold more columns than the row has.
pub(super) fn row(data: &[u8], out: &mut [f32]) {
    for (values, bytes) in out.chunks_mut(E8_BLOCK).zip(data.as_chunks::<E8_BYTES>().0) {
        match values.as_chunks_mut::<E8_BLOCK>() {
            ([values], _) => block(bytes, values),
            (_, part) => {
                let mut whole = [0.0; E8_BLOCK];
                block(bytes, &mut whole);
                part.copy_from_slice(&whole[..part.len()]);
            }
        }
    }
}

fn block(bytes: &[u8; E8_BYTES], out: &mut [f32; E8_BLOCK]) {
    let d = f16::from_le_bytes([bytes[96], bytes[97]]).to_f32();
    let (indices, words) = (bytes[..64].as_chunks::<2>().0, bytes[64..].as_chunks::<4>().0);
    for (lane, (values, pair)) in out.as_chunks_mut::<8>().0.iter_mut().zip(indices).enumerate() {
        let word = u32::from_le_bytes(words[lane / 4]);
        let scale = sub_scale(d, word >> 28);
        let signs = &SIGNS[(word >> (7 * (lane % 4)) & 127) as usize];
        let [low, high] = pair.map(|index| &HALVES[usize::from(index)]);
        for k in 0..4 {
            // The sign bit itself, so a zero may be negative, as after a multiplication by -1.
            values[k] = f32::from_bits((scale * low[k]).to_bits() ^ signs[k]);
            values[k + 4] = f32::from_bits((scale * high[k]).to_bits() ^ signs[k + 4]);
        }
    }
}

/// Takes the scales out of a row, so that it decodes to `±G`, and returns what each 32 columns are multiplied with
/// then: `(2 code + 1) (d / 8)`, exact in f32.
pub(super) fn strip_scales(data: &mut [u8]) -> Vec<f32> {
    let mut scales = vec![];
    for block in data.as_chunks_mut::<E8_BYTES>().0 {
        let d = f16::from_le_bytes([block[96], block[97]]).to_f32() * 0.125;
        for word in block[64..96].as_chunks_mut::<4>().0 {
            scales.push((2 * (word[3] >> 4) + 1) as f32 * d);
            word[3] &= 0x0f;
        }
        // With code 0 the value is d G / 8.
        block[96..].copy_from_slice(&f16::from_f32(8.0).to_le_bytes());
    }
    scales
}

/// The codebook for the search: entries of one squared length stand together, in the order of their numbers.
struct Search {
    /// Numbers of the entries.
    entries: [u8; ENTRIES],
    /// Half of their magnitudes.
    halves: [[f32; 4]; ENTRIES],
    /// The squared lengths, ascending.
    lengths: [f32; LENGTHS],
    /// Where the entries of each length end.
    ends: [usize; LENGTHS],
}

/// Squared lengths that occur. Building the table fails if there are more, a test if there are fewer.
const LENGTHS: usize = 64;

static SEARCH: Search = search();

const fn square(entry: usize) -> f32 {
    let [a, b, c, d] = HALVES_OF[entry];
    a * a + b * b + c * c + d * d
}

const fn search() -> Search {
    let mut s = Search {
        entries: [0; ENTRIES],
        halves: [[0.0; 4]; ENTRIES],
        lengths: [f32::INFINITY; LENGTHS],
        ends: [ENTRIES; LENGTHS],
    };
    let (mut at, mut bucket, mut last) = (0, 0, -1.0);
    while at < ENTRIES {
        // The smallest length that has not had its turn.
        let (mut length, mut entry) = (f32::INFINITY, 0);
        while entry < ENTRIES {
            if square(entry) > last && square(entry) < length {
                length = square(entry);
            }
            entry += 1;
        }
        let mut entry = 0;
        while entry < ENTRIES {
            if square(entry) == length {
                s.entries[at] = entry as u8;
                s.halves[at] = HALVES_OF[entry];
                at += 1;
            }
            entry += 1;
        }
        s.lengths[bucket] = length;
        s.ends[bucket] = at;
        bucket += 1;
        last = length;
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

/// A number for each of the eight groups of four columns in a sub-block: side by side, so that they are computed in
/// vectors.
type Groups = [f32; SUB / 4];

/// The sub-scale code and the eight entries that come nearest to 32 magnitudes; the lowest on ties.
///
/// With `g` an entry and `m` four magnitudes, `|m / db - g|^2` is `(db |g|^2 - 2 m.g) / db` and a part that no entry
/// changes. Of the entries of one length only the largest product can win, so the codes need not look at others.
fn nearest(magnitudes: &[f32; SUB], d: f32) -> (u32, [u8; SUB / 4]) {
    let scale = |code: u32| sub_scale(d, code).max(1e-20);
    let m: [Groups; 4] = std::array::from_fn(|k| std::array::from_fn(|group| magnitudes[4 * group + k]));
    let largest = largest(&m);
    let mut best = (f32::INFINITY, 0, [0.0; SUB / 4]);
    for code in 0..CODES as u32 {
        let db = scale(code);
        let least = least(&largest, db);
        let error = db * least.iter().sum::<f32>();
        if error < best.0 {
            best = (error, code, least);
        }
    }
    let (_, code, least) = best;
    let entry = |group: usize| lowest(m.map(|m| m[group]), largest.map(|l| l[group]), scale(code), least[group]);
    (code, std::array::from_fn(entry))
}

/// `2 m . g`.
#[inline(always)]
fn product(m: [f32; 4], g: &[f32; 4]) -> f32 {
    2.0 * (m[0] * g[0] + m[1] * g[1] + m[2] * g[2] + m[3] * g[3])
}

/// The distance that decides: `db |g|^2 - 2 m.g`.
#[inline(always)]
fn distance(product: f32, length: f32, db: f32) -> f32 {
    db * length - product
}

/// The largest product of each length.
fn largest(m: &[Groups; 4]) -> [Groups; LENGTHS] {
    let mut from = 0;
    SEARCH.ends.map(|end| {
        let mut most = [f32::NEG_INFINITY; SUB / 4];
        for g in &SEARCH.halves[std::mem::replace(&mut from, end)..end] {
            for (k, most) in most.iter_mut().enumerate() {
                let product = product([m[0][k], m[1][k], m[2][k], m[3][k]], g);
                *most = if product > *most { product } else { *most };
            }
        }
        most
    })
}

/// The smallest distance of each group.
fn least(largest: &[Groups; LENGTHS], db: f32) -> Groups {
    let mut least = [f32::INFINITY; SUB / 4];
    for (products, length) in largest.iter().zip(SEARCH.lengths) {
        for (least, product) in least.iter_mut().zip(products) {
            let distance = distance(*product, length, db);
            *least = if distance < *least { distance } else { *least };
        }
    }
    least
}

/// The lowest number among the entries at this distance.
fn lowest(m: [f32; 4], largest: [f32; LENGTHS], db: f32, least: f32) -> u8 {
    let mut found = u8::MAX;
    let mut from = 0;
    for ((length, end), largest) in SEARCH.lengths.iter().zip(SEARCH.ends).zip(largest) {
        let entries = std::mem::replace(&mut from, end)..end;
        if distance(largest, *length, db) != least {
            continue;
        }
        for at in entries {
            if distance(product(m, &SEARCH.halves[at]), *length, db) == least {
                found = found.min(SEARCH.entries[at]);
            }
        }
    }
    found
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
    fn the_search_knows_every_entry_once() {
        let mut numbers = SEARCH.entries;
        numbers.sort_unstable();
        assert!(numbers.iter().enumerate().all(|(at, number)| at == usize::from(*number)));
        assert!(SEARCH.lengths.is_sorted_by(|a, b| a < b) && SEARCH.ends.is_sorted_by(|a, b| a < b));
        assert_eq!(SEARCH.ends[LENGTHS - 1], ENTRIES);
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
