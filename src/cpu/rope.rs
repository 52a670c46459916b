//! Rotary position embedding.

use super::GRAIN;
use rayon::prelude::*;

/// Which channels form a pair, and where it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairs {
    /// First rotated channel of a group.
    pub at: usize,
    /// Rotated channels, twice the number of pairs.
    pub dims: usize,
    /// Pairs are read from (2j, 2j+1); else from (j, j + dims/2).
    pub interleaved: bool,
    /// Pairs are written to (j, j + dims/2); else where they were read.
    pub halves: bool,
    /// Rotate by the negative angle.
    pub inverse: bool,
}

/// Cosine and sine of `f32(position) * inv_freq[j]`, `[positions][pairs]`. The angle is rounded to f32, its
/// cosine and sine are taken in f64 and rounded (DESIGN 6).
pub fn rotations(positions: &[u32], inv_freq: &[f32]) -> Vec<[f32; 2]> {
    let of = |position: u32| {
        inv_freq.iter().map(move |f| {
            let (sin, cos) = libm::sincos(f64::from(position as f32 * f));
            [cos as f32, sin as f32]
        })
    };
    positions.iter().flat_map(|p| of(*p)).collect()
}

/// `(a, b) -> (a cos - b sin, b cos + a sin)` on the pairs of each group of `width` channels; the other
/// channels pass (models.md A.4, C.2). `x`, `out`: `[rows][groups][width]`, `rotations`: `[rows][dims/2]`.
pub fn rope(x: &[f32], width: usize, pairs: &Pairs, rotations: &[[f32; 2]], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    let half = pairs.dims / 2;
    let rows = rotations.len() / half;
    if rows == 0 {
        return;
    }
    let groups = x.len() / width / rows;
    let each = x.par_chunks(width).zip(out.par_chunks_mut(width)).with_min_len((GRAIN / width).max(1));
    each.enumerate().for_each(|(i, (x, out))| {
        out.copy_from_slice(x);
        let (x, out) = (&x[pairs.at..][..pairs.dims], &mut out[pairs.at..][..pairs.dims]);
        for (j, [cos, sin]) in rotations[i / groups * half..][..half].iter().enumerate() {
            let sin = if pairs.inverse { -sin } else { *sin };
            let (low, high) = if pairs.interleaved { (2 * j, 2 * j + 1) } else { (j, j + half) };
            let (to_low, to_high) = if pairs.halves { (j, j + half) } else { (low, high) };
            out[to_low] = x[low] * cos - x[high] * sin;
            out[to_high] = x[high] * cos + x[low] * sin;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{bits, close, noise, on_threads};

    const PLAIN: Pairs = Pairs { at: 1, dims: 4, interleaved: true, halves: false, inverse: false };

    /// One group of 6 channels at an angle of a quarter turn for pair 0 and none for pair 1.
    fn quarter(pairs: Pairs) -> Vec<f32> {
        let x = [9.0, 1.0, 2.0, 3.0, 4.0, 8.0];
        let mut out = [0.0; 6];
        rope(&x, 6, &pairs, &[[0.0, 1.0], [1.0, 0.0]], &mut out);
        out.to_vec()
    }

    #[test]
    fn layouts() {
        assert_eq!(quarter(PLAIN), [9.0, -2.0, 1.0, 3.0, 4.0, 8.0]);
        assert_eq!(quarter(Pairs { inverse: true, ..PLAIN }), [9.0, 2.0, -1.0, 3.0, 4.0, 8.0]);
        assert_eq!(quarter(Pairs { halves: true, ..PLAIN }), [9.0, -2.0, 3.0, 1.0, 4.0, 8.0]);
        let half = Pairs { interleaved: false, halves: true, ..PLAIN };
        assert_eq!(quarter(half), [9.0, -3.0, 2.0, 1.0, 4.0, 8.0]);
        assert_eq!(quarter(Pairs { halves: false, ..half }), quarter(half));
    }

    #[test]
    fn angles_are_rounded_before_the_sine() {
        let f = 0.123_456_79f32;
        let [cos, sin] = rotations(&[1_000_003], &[f])[0];
        let angle = f64::from(1_000_003f32 * f);
        assert_eq!((cos, sin), (angle.cos() as f32, angle.sin() as f32));
        assert_eq!(rotations(&[0], &[f]), [[1.0, 0.0]]);
    }

    #[test]
    fn every_head_of_a_row_turns_alike_and_back() {
        let x = noise(1, 3 * 2 * 7);
        let angles = rotations(&[5, 6, 900], &[1.0, 0.01]);
        let turn = |x: &[f32], angles: &[[f32; 2]], inverse| {
            let mut out = vec![0.0; x.len()];
            rope(x, 7, &Pairs { inverse, ..PLAIN }, angles, &mut out);
            out
        };
        let there = on_threads(|| turn(&x, &angles, false));
        close(&turn(&there, &angles, true), &x, 1e-6);
        assert_eq!(bits(&there[28..]), bits(&turn(&x[28..], &angles[4..], false)));
        assert!(turn(&[], &[], false).is_empty());
    }
}
