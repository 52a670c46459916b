//! The rotation behind [`Format::E8`](super::Format::E8): signs, then a Hadamard transform, per block.
//!
//! A container holds `W' = W Q` with an orthogonal `Q` that depends on the row length alone, and a product is
//! `W x = W' (Q^T x)`. Rows of `W` and inputs `x` go through the same map ([`Rotation::forward`]), because the
//! rows of `W Q` are `Q^T` times the rows of `W`. It spreads single large values over a whole block, which is
//! what a codebook for Gaussian values needs.
//!
//! A dimension is cut into blocks whose lengths are powers of two ([`blocks`]). In a block of length `n`:
//!
//! 1. element `i` is negated when bit `i mod 8` of byte `i / 8` of [`signs`]`(n)` is set;
//! 2. butterflies `(a, b) -> (a + b, a - b)` at distance 1, 2, 4 .. n/2;
//! 3. a multiplication by `1 / sqrt(n)`, the reciprocal rounded to the type first.
//!
//! The inverse runs 2, 3, 1. Each value of the result comes from one fixed sequence of operations, so a row
//! has the same bits on every machine. Source: formats.md 6.4 and 6.5.

use std::ops::{Add, Mul, Sub};

/// Longest block.
const LONGEST: usize = 32768;

/// The map for rows of one length, with its signs at hand.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Lengths of the blocks.
    blocks: Vec<usize>,
    /// 1 or -1 for every element.
    signs: Vec<f32>,
}

/// Lengths of the blocks of a row of `dim` elements, in their order: the binary digits of `dim` from the
/// lowest up, with at most 32768 elements in a block. 6144 gives 2048, 4096.
pub fn blocks(dim: usize) -> impl Iterator<Item = usize> {
    let mut rest = dim;
    std::iter::from_fn(move || {
        let block = (1 << rest.checked_ilog2().map(|_| rest.trailing_zeros())?).min(LONGEST);
        rest -= block;
        Some(block)
    })
}

/// Sign bits of a block of `n` elements, eight a byte, lowest first; a set bit negates.
///
/// They are the top bytes of the xorshift64* sequence that starts at `417 + n`.
pub fn signs(n: usize) -> Vec<u8> {
    let mut state = 417 + n as u64;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(2_685_821_657_736_338_717) >> 56) as u8
    };
    (0..n.div_ceil(8)).map(|_| next()).collect()
}

impl Rotation {
    /// The rotation of rows of `dim` elements. Costs about as much as rotating one row.
    pub fn new(dim: usize) -> Rotation {
        let blocks: Vec<usize> = blocks(dim).collect();
        let of = |n: usize| {
            let bits = signs(n);
            (0..n).map(move |i| if bits[i / 8] >> (i % 8) & 1 == 1 { -1.0 } else { 1.0 })
        };
        Rotation { signs: blocks.iter().flat_map(|n| of(*n)).collect(), blocks }
    }

    /// Elements of a row.
    pub fn dim(&self) -> usize {
        self.signs.len()
    }

    /// Rotates a row in place: a row of a matrix before it is encoded, or an input before a product.
    ///
    /// # Panics
    /// When the row has another length than [`Rotation::dim`].
    pub fn forward(&self, row: &mut [f32]) {
        self.turn(row, |x| x);
        self.mix(row, |n| 1.0 / n.sqrt());
    }

    /// As [`Rotation::forward`] in double precision, for a reference that rounds once at the end.
    ///
    /// # Panics
    /// When the row has another length than [`Rotation::dim`].
    pub fn forward_f64(&self, row: &mut [f64]) {
        self.turn(row, f64::from);
        self.mix(row, |n| 1.0 / f64::from(n).sqrt());
    }

    /// Undoes [`Rotation::forward`], to a rounding error.
    ///
    /// # Panics
    /// When the row has another length than [`Rotation::dim`].
    pub fn inverse(&self, row: &mut [f32]) {
        self.mix(row, |n| 1.0 / n.sqrt());
        self.turn(row, |x| x);
    }

    fn turn<T: Copy + Mul<Output = T>>(&self, row: &mut [T], sign: impl Fn(f32) -> T) {
        assert_eq!(row.len(), self.dim(), "a row of another length than the rotation's");
        row.iter_mut().zip(&self.signs).for_each(|(x, s)| *x = *x * sign(*s));
    }

    fn mix<T>(&self, row: &mut [T], factor: impl Fn(f32) -> T)
    where
        T: Copy + Add<Output = T> + Sub<Output = T> + Mul<Output = T>,
    {
        assert_eq!(row.len(), self.dim(), "a row of another length than the rotation's");
        let mut rest = row;
        for n in &self.blocks {
            let (block, behind) = rest.split_at_mut(*n);
            rest = behind;
            hadamard(block);
            // A power of two up to 32768 is exact in f32.
            let factor = factor(*n as f32);
            block.iter_mut().for_each(|x| *x = *x * factor);
        }
    }
}

/// Unnormalised, in natural order; the length is a power of two.
fn hadamard<T: Copy + Add<Output = T> + Sub<Output = T>>(block: &mut [T]) {
    // The first two distances in one pass: a loop over two or four elements would not be vectorised.
    if let (quads, []) = block.as_chunks_mut::<4>() {
        for q in quads {
            let [a, b, c, d] = *q;
            let (a, b, c, d) = (a + b, a - b, c + d, c - d);
            *q = [a + c, b + d, a - c, b - d];
        }
    } else if let [a, b] = block {
        (*a, *b) = (*a + *b, *a - *b);
    }
    let mut distance = 4;
    while distance < block.len() {
        for pair in block.chunks_exact_mut(2 * distance) {
            let (low, high) = pair.split_at_mut(distance);
            low.iter_mut().zip(high).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
        }
        distance *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(dim: usize) -> Vec<usize> {
        blocks(dim).collect()
    }

    #[test]
    fn dimensions_are_cut_from_the_lowest_digit_up() {
        assert_eq!(cut(256), [256]);
        assert_eq!(cut(768), [256, 512]);
        assert_eq!(cut(1536), [512, 1024]);
        assert_eq!(cut(6144), [2048, 4096]);
        assert_eq!(cut(7), [1, 2, 4]);
        assert_eq!(cut(0), [0usize; 0]);
        assert_eq!(cut(3 * 32768), [32768; 3]);
        assert_eq!(cut(65536 + 256), [256, 32768, 32768]);
    }

    #[test]
    fn a_block_of_four_by_hand() {
        let rotation = Rotation::new(4);
        let sign = |i: usize| if signs(4)[0] >> i & 1 == 1 { -1.0f32 } else { 1.0 };
        let (a, b, c, d) = (sign(0), 10.0 * sign(1), 100.0 * sign(2), 1000.0 * sign(3));
        let mut row = [1.0, 10.0, 100.0, 1000.0];
        rotation.forward(&mut row);
        assert_eq!(row, [a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d].map(|x| x / 2.0));
        rotation.inverse(&mut row);
        assert_eq!(row, [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn double_precision_agrees() {
        let rotation = Rotation::new(256 + 3);
        let mut row: Vec<f32> = (0..259).map(|i| ((i * i) % 83) as f32 - 40.0).collect();
        let mut wide: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        rotation.forward(&mut row);
        rotation.forward_f64(&mut wide);
        let size = wide.iter().map(|x| x * x).sum::<f64>().sqrt();
        let off = row.iter().zip(&wide).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
        assert!(off < 1e-6 * size, "{off} of {size}");
    }

    #[test]
    #[should_panic(expected = "another length")]
    fn other_lengths_are_refused() {
        Rotation::new(8).forward(&mut [0.0; 4]);
    }
}
