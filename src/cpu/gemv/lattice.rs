//! E8 codes as bytes: tables made from the codebook, and the lookup in terms of plain lane operations.

use super::isa::Isa;
use crate::formats::CODEBOOK;

/// The four magnitudes of every codebook entry as one word.
static ENTRIES: [u32; 256] = entries();

const fn entries() -> [u32; 256] {
    let mut table = [0; 256];
    let mut entry = 0;
    while entry < 256 {
        table[entry] = u32::from_le_bytes(CODEBOOK[entry]);
        entry += 1;
    }
    table
}

/// `64 + G` by place in the entry: what a byte permutation looks up.
#[cfg(target_arch = "x86_64")]
pub(super) static PLANES_PLUS_64: [[u8; 256]; 4] = planes();

#[cfg(target_arch = "x86_64")]
const fn planes() -> [[u8; 256]; 4] {
    let mut table = [[0; 256]; 4];
    let mut at = 0;
    while at < 1024 {
        table[at / 256][at % 256] = 64 + CODEBOOK[at % 256][at / 256];
        at += 1;
    }
    table
}

/// Whether the number of bits is odd, as bit 7.
const ODD: [u8; 16] = {
    let mut table = [0; 16];
    let mut v = 0u8;
    while v < 16 {
        table[v as usize] = ((v.count_ones() & 1) << 7) as u8;
        v += 1;
    }
    table
};

// Small functions in place of closures from here on, because those would be compiled without the instruction set.

/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn keep<S: Isa>(v: S::I, mask: u32) -> S::I {
    // SAFETY: the caller's promise: operations on values.
    unsafe { S::and(v, S::splat(mask)) }
}

/// The parity of the low nibble of every byte, as bit 7.
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn odd<S: Isa>(bits: S::I) -> S::I {
    // SAFETY: the caller's promise; the mask leaves bytes below 16, as `lut` asks.
    unsafe { S::lut(&ODD, keep::<S>(bits, 0x0f0f_0f0f)) }
}

/// The word's four 7-bit fields as bytes in the order 0, 2, 1, 3, with their parity as bit 7.
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn sign_bytes<S: Isa>(word: S::I) -> S::I {
    // SAFETY: the caller's promise: operations on values.
    unsafe {
        let (first, second) = (keep::<S>(word, 0x7f), keep::<S>(S::shr::<6>(word), 0x7f00));
        let third = keep::<S>(S::shl::<9>(word), 0x7f_0000);
        let fourth = keep::<S>(S::shl::<3>(word), 0x7f00_0000);
        let bits = S::or(S::or(first, second), S::or(third, fourth));
        S::or(bits, S::xor(odd::<S>(bits), odd::<S>(S::shr::<4>(bits))))
    }
}

/// Bytes 0 and 2 of two words, alternating; and 1 and 3.
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn zip8<S: Isa>(x: S::I, y: S::I) -> [S::I; 2] {
    const LOW: u32 = 0x00ff_00ff;
    // SAFETY: the caller's promise: operations on values.
    unsafe {
        let even = S::or(keep::<S>(x, LOW), S::shl::<8>(keep::<S>(y, LOW)));
        [even, S::or(keep::<S>(S::shr::<8>(x), LOW), keep::<S>(y, !LOW))]
    }
}

/// The low halves of two words; and the high ones.
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn zip16<S: Isa>(x: S::I, y: S::I) -> [S::I; 2] {
    // SAFETY: the caller's promise: operations on values.
    unsafe {
        let low = S::or(keep::<S>(x, 0xffff), S::shl::<16>(y));
        [low, S::or(S::shr::<16>(x), keep::<S>(y, 0xffff_0000))]
    }
}

/// The four planes of the entries that the indices `H`, `4 + H`, `2 + H`, `6 + H` choose: the order of `sign_bytes`.
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn planes_of<S: Isa>(a: S::I, b: S::I, h: usize) -> [S::I; 4] {
    // SAFETY: the caller's promise: operations on values, and lookups that stay in the table whatever the index.
    unsafe {
        let (a, b) = if h == 0 { (a, b) } else { (S::shr::<8>(a), S::shr::<8>(b)) };
        let (e0, e1) = (S::gather(&ENTRIES, a), S::gather(&ENTRIES, b));
        let (e2, e3) = (S::gather(&ENTRIES, S::shr::<16>(a)), S::gather(&ENTRIES, S::shr::<16>(b)));
        let ([p, r], [q, s]) = (zip8::<S>(e0, e1), zip8::<S>(e2, e3));
        let ([p0, p2], [p1, p3]) = (zip16::<S>(p, q), zip16::<S>(r, s));
        [p0, p1, p2, p3]
    }
}

/// [`Isa::lattice`] without byte permutations: a codebook entry per lookup, 4 x 4 bytes transposed in each lane.
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
pub(super) unsafe fn general<S: Isa>(a: S::I, b: S::I, signs: S::I) -> [S::I; 8] {
    // SAFETY: the caller's promise: operations on values.
    unsafe {
        let signs = sign_bytes::<S>(signs);
        let mut out = [a; 8];
        for h in 0..2 {
            let planes = planes_of::<S>(a, b, h);
            for j in 0..4 {
                let bit = S::splat(0x0101_0101 << (4 * h + j));
                // All ones where negative: -G is the complement of G plus one, and 64 makes both positive.
                let negative = S::flag(signs, bit, S::splat(u32::MAX));
                let one = S::flag(signs, bit, S::splat(0x0101_0101));
                let plus = S::add8(S::xor(planes[j], negative), one);
                out[4 * h + j] = S::add8(plus, S::splat(0x4040_4040));
            }
        }
        out
    }
}
