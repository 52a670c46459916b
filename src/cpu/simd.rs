//! Inner products and scaled sums: one definition, compiled for each instruction set, chosen once.
//!
//! A sum runs in [`LANES`] lanes (element `i` goes to lane `i mod LANES`, by fused multiply-add) that are
//! added pairwise at the end. AVX2 and NEON follow the same definition, so they give the same bits;
//! only a processor without fused multiply-add rounds differently. A product of two f32 is exact in f64,
//! so [`Simd::dot64`] gives the same bits everywhere. AVX-512 was measured and left out: at most 15 % over
//! AVX2 in the first-level cache, nothing outside of it.

use half::f16;
use std::sync::OnceLock;

/// Partial sums of an inner product.
pub const LANES: usize = 16;

/// Kernels of one instruction set.
#[derive(Clone, Copy)]
pub struct Simd {
    /// For reports.
    pub name: &'static str,
    /// `sum_i a[i] b[i]` in f32; both of one length.
    pub dot: fn(&[f32], &[f32]) -> f32,
    /// `dot` of one vector with four others, each with the bits that `dot` would give.
    pub dot4: fn(&[f32], [&[f32]; 4]) -> [f32; 4],
    /// `y += a x` by fused multiply-add; both of one length.
    pub axpy: fn(f32, &[f32], &mut [f32]),
    /// `sum_i a[i] b[i]` in f64; both of one length.
    pub dot64: fn(&[f32], &[f32]) -> f64,
    /// The same three with what a cache holds in f16: the bits that the widened values give.
    pub dot4_f16: fn(&[f32], [&[f16]; 4]) -> [f32; 4],
    pub axpy_f16: fn(f32, &[f16], &mut [f32]),
    pub dot64_f16: fn(&[f32], &[f16]) -> f64,
}

/// What a cache holds.
pub trait Element: Copy + Send + Sync + 'static {
    fn widened(self) -> f32;

    /// As [`Simd::dot4`].
    fn dot4(a: &[f32], b: [&[Self]; 4]) -> [f32; 4];

    /// As [`Simd::axpy`].
    fn axpy(a: f32, x: &[Self], y: &mut [f32]);

    /// As [`Simd::dot64`].
    fn dot64(a: &[f32], b: &[Self]) -> f64;
}

impl Element for f32 {
    #[inline(always)]
    fn widened(self) -> f32 {
        self
    }

    fn dot4(a: &[f32], b: [&[f32]; 4]) -> [f32; 4] {
        (simd().dot4)(a, b)
    }

    fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
        (simd().axpy)(a, x, y);
    }

    fn dot64(a: &[f32], b: &[f32]) -> f64 {
        (simd().dot64)(a, b)
    }
}

impl Element for f16 {
    /// Of a number that is finite, as all in caches are (appending one that is not fails, and so does saving one): then a few plain operations do, which are vectorised everywhere.
    /// The exponent begins 112 lower in the bits of an f32, whatever it is, also that of subnormals.
    #[inline(always)]
    fn widened(self) -> f32 {
        const BIAS: f32 = f32::from_bits((127 + 112) << 23);
        let bits = u32::from(self.to_bits());
        let size = f32::from_bits((bits & 0x7fff) << 13) * BIAS;
        f32::from_bits(size.to_bits() | (bits & 0x8000) << 16)
    }

    fn dot4(a: &[f32], b: [&[f16]; 4]) -> [f32; 4] {
        (simd().dot4_f16)(a, b)
    }

    fn axpy(a: f32, x: &[f16], y: &mut [f32]) {
        (simd().axpy_f16)(a, x, y);
    }

    fn dot64(a: &[f32], b: &[f16]) -> f64 {
        (simd().dot64_f16)(a, b)
    }
}

/// The best kernels that this processor can run.
pub fn simd() -> &'static Simd {
    static CHOSEN: OnceLock<Simd> = OnceLock::new();
    CHOSEN.get_or_init(|| available().pop().unwrap_or(PORTABLE))
}

/// Kernels that this processor can run, the best last.
pub fn available() -> Vec<Simd> {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
    let mut found = vec![PORTABLE];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            found.push(avx2::SIMD);
        }
    }
    found
}

/// Whether the portable kernels may use a fused multiply-add: where the processor has none it is a slow call.
const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

const PORTABLE: Simd = Simd {
    name: "portable",
    dot: |a, b| body::dot::<FUSED>(a, b),
    dot4: |a, b| body::dot4::<FUSED, f32>(a, b),
    axpy: |a, x, y| body::axpy::<FUSED, f32>(a, x, y),
    dot64: |a, b| body::dot64(a, b),
    dot4_f16: |a, b| body::dot4::<FUSED, f16>(a, b),
    axpy_f16: |a, x, y| body::axpy::<FUSED, f16>(a, x, y),
    dot64_f16: |a, b| body::dot64(a, b),
};

/// The definition. Inlined into a function per instruction set, where the compiler vectorises it.
mod body {
    use super::{Element, LANES};

    #[inline(always)]
    fn fma<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
        if FUSED { a.mul_add(b, c) } else { a * b + c }
    }

    #[inline(always)]
    fn lanes<const FUSED: bool, T: Element>(a: &[f32; LANES], b: &[T; LANES], acc: &mut [f32; LANES]) {
        for l in 0..LANES {
            acc[l] = fma::<FUSED>(a[l], b[l].widened(), acc[l]);
        }
    }

    /// The elements behind the last full set of lanes.
    #[inline(always)]
    fn ends<const FUSED: bool, T: Element>(a: &[f32], b: &[T], acc: &mut [f32; LANES]) {
        for (acc, (a, b)) in acc.iter_mut().zip(a.iter().zip(b)) {
            *acc = fma::<FUSED>(*a, b.widened(), *acc);
        }
    }

    #[inline(always)]
    fn tree(mut lanes: [f32; LANES]) -> f32 {
        let mut half = LANES / 2;
        while half > 0 {
            for l in 0..half {
                lanes[l] += lanes[l + half];
            }
            half /= 2;
        }
        lanes[0]
    }

    #[inline(always)]
    pub fn dot<const FUSED: bool>(a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len());
        let mut acc = [0.0; LANES];
        let ((a, a_end), (b, b_end)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
        for (a, b) in a.iter().zip(b) {
            lanes::<FUSED, _>(a, b, &mut acc);
        }
        if !a_end.is_empty() {
            ends::<FUSED, _>(a_end, b_end, &mut acc);
        }
        tree(acc)
    }

    #[inline(always)]
    pub fn dot4<const FUSED: bool, T: Element>(a: &[f32], b: [&[T]; 4]) -> [f32; 4] {
        let n = a.len();
        assert!(b.iter().all(|b| b.len() == n));
        let (a, a_end) = a.as_chunks::<LANES>();
        let parts = b.map(|b| b.as_chunks::<LANES>());
        let [b0, b1, b2, b3] = parts.map(|p| p.0);
        let [mut c0, mut c1, mut c2, mut c3] = [[0.0; LANES]; 4];
        for ((((a, b0), b1), b2), b3) in a.iter().zip(b0).zip(b1).zip(b2).zip(b3) {
            lanes::<FUSED, _>(a, b0, &mut c0);
            lanes::<FUSED, _>(a, b1, &mut c1);
            lanes::<FUSED, _>(a, b2, &mut c2);
            lanes::<FUSED, _>(a, b3, &mut c3);
        }
        let [e0, e1, e2, e3] = parts.map(|p| p.1);
        if !a_end.is_empty() {
            ends::<FUSED, _>(a_end, e0, &mut c0);
            ends::<FUSED, _>(a_end, e1, &mut c1);
            ends::<FUSED, _>(a_end, e2, &mut c2);
            ends::<FUSED, _>(a_end, e3, &mut c3);
        }
        [tree(c0), tree(c1), tree(c2), tree(c3)]
    }

    #[inline(always)]
    pub fn axpy<const FUSED: bool, T: Element>(a: f32, x: &[T], y: &mut [f32]) {
        assert_eq!(x.len(), y.len());
        for (y, x) in y.iter_mut().zip(x) {
            *y = fma::<FUSED>(a, x.widened(), *y);
        }
    }

    #[inline(always)]
    pub fn dot64<T: Element>(a: &[f32], b: &[T]) -> f64 {
        assert_eq!(a.len(), b.len());
        let mut acc = [0.0f64; LANES];
        let ((a, a_end), (b, b_end)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
        for (a, b) in a.iter().zip(b) {
            for l in 0..LANES {
                acc[l] += f64::from(a[l]) * f64::from(b[l].widened());
            }
        }
        for (acc, (a, b)) in acc.iter_mut().zip(a_end.iter().zip(b_end)) {
            *acc += f64::from(*a) * f64::from(b.widened());
        }
        let mut half = LANES / 2;
        while half > 0 {
            for l in 0..half {
                acc[l] += acc[l + half];
            }
            half /= 2;
        }
        acc[0]
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Simd, body};
    use half::f16;

    /// In `available` only after the features were found.
    pub const SIMD: Simd = Simd { name: "AVX2 + FMA", dot, dot4, axpy, dot64, dot4_f16, axpy_f16, dot64_f16 };

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        #[target_feature(enable = "avx2,fma")]
        fn kernel(a: &[f32], b: &[f32]) -> f32 {
            body::dot::<true>(a, b)
        }
        // SAFETY: reached through `SIMD` only, which `available` offers when the processor has AVX2 and FMA.
        unsafe { kernel(a, b) }
    }

    fn dot4(a: &[f32], b: [&[f32]; 4]) -> [f32; 4] {
        #[target_feature(enable = "avx2,fma")]
        fn kernel(a: &[f32], b: [&[f32]; 4]) -> [f32; 4] {
            body::dot4::<true, f32>(a, b)
        }
        // SAFETY: as for `dot`.
        unsafe { kernel(a, b) }
    }

    fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
        #[target_feature(enable = "avx2,fma")]
        fn kernel(a: f32, x: &[f32], y: &mut [f32]) {
            body::axpy::<true, f32>(a, x, y);
        }
        // SAFETY: as for `dot`.
        unsafe { kernel(a, x, y) }
    }

    fn dot64(a: &[f32], b: &[f32]) -> f64 {
        #[target_feature(enable = "avx2,fma")]
        fn kernel(a: &[f32], b: &[f32]) -> f64 {
            body::dot64(a, b)
        }
        // SAFETY: as for `dot`.
        unsafe { kernel(a, b) }
    }

    fn dot4_f16(a: &[f32], b: [&[f16]; 4]) -> [f32; 4] {
        #[target_feature(enable = "avx2,fma")]
        fn kernel(a: &[f32], b: [&[f16]; 4]) -> [f32; 4] {
            body::dot4::<true, f16>(a, b)
        }
        // SAFETY: as for `dot`.
        unsafe { kernel(a, b) }
    }

    fn axpy_f16(a: f32, x: &[f16], y: &mut [f32]) {
        #[target_feature(enable = "avx2,fma")]
        fn kernel(a: f32, x: &[f16], y: &mut [f32]) {
            body::axpy::<true, f16>(a, x, y);
        }
        // SAFETY: as for `dot`.
        unsafe { kernel(a, x, y) }
    }

    fn dot64_f16(a: &[f32], b: &[f16]) -> f64 {
        #[target_feature(enable = "avx2,fma")]
        fn kernel(a: &[f32], b: &[f16]) -> f64 {
            body::dot64(a, b)
        }
        // SAFETY: as for `dot`.
        unsafe { kernel(a, b) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{close, noise};

    #[test]
    fn every_set_computes_the_sums() {
        for s in available() {
            for n in [0, 1, 7, 15, 16, 17, 63, 65, 1000] {
                let (a, b) = (noise(1, n), noise(2, n));
                let terms = || a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b));
                let (exact, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                assert!((f64::from((s.dot)(&a, &b)) - exact).abs() <= 1e-6 * size, "{} {n}", s.name);
                assert!(((s.dot64)(&a, &b) - exact).abs() <= 1e-14 * size, "{} {n}", s.name);
                let mut y = b.clone();
                (s.axpy)(0.5, &a, &mut y);
                let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a * 0.5 + b).collect();
                close(&y, &want, 1e-6);
            }
        }
    }

    #[test]
    fn four_at_once_give_the_bits_of_one() {
        for s in available() {
            for n in [1, 16, 31, 200] {
                let a = noise(1, n);
                let b = [2, 3, 4, 5].map(|seed| noise(seed, n));
                let four = (s.dot4)(&a, [&b[0], &b[1], &b[2], &b[3]]);
                for (four, b) in four.iter().zip(&b) {
                    assert_eq!(four.to_bits(), (s.dot)(&a, b).to_bits(), "{} {n}", s.name);
                }
            }
        }
    }

    #[test]
    fn fused_sets_give_the_same_bits() {
        let (a, b) = (noise(1, 777), noise(2, 777));
        let fused: Vec<Simd> = available().into_iter().filter(|s| FUSED || s.name != "portable").collect();
        for s in &fused {
            // The definition with a true fused multiply-add, one step at a time.
            let mut lanes = [0.0f32; LANES];
            for (i, (a, b)) in a.iter().zip(&b).enumerate() {
                lanes[i % LANES] = a.mul_add(*b, lanes[i % LANES]);
            }
            for half in [8, 4, 2, 1] {
                for l in 0..half {
                    lanes[l] += lanes[l + half];
                }
            }
            assert_eq!((s.dot)(&a, &b).to_bits(), lanes[0].to_bits(), "{}", s.name);
        }
    }

    #[test]
    fn every_finite_half_is_widened_exactly() {
        let finite = (0..=u16::MAX).map(f16::from_bits).filter(|h| h.is_finite());
        for h in finite {
            assert_eq!(h.widened().to_bits(), h.to_f32().to_bits(), "{:#06x}", h.to_bits());
        }
    }

    #[test]
    fn halves_give_the_bits_of_their_widened_values() {
        for s in available() {
            for n in [1, 15, 16, 31, 200] {
                let a = noise(1, n);
                let b = [2, 3, 4, 5].map(|seed| noise(seed, n).into_iter().map(f16::from_f32).collect::<Vec<_>>());
                let wide = b.clone().map(|b| b.into_iter().map(f16::to_f32).collect::<Vec<_>>());
                let bits = |four: [f32; 4]| four.map(f32::to_bits);
                let got = (s.dot4_f16)(&a, [&b[0], &b[1], &b[2], &b[3]]);
                assert_eq!(bits(got), bits((s.dot4)(&a, [&wide[0], &wide[1], &wide[2], &wide[3]])), "{} {n}", s.name);
                let (got, want) = ((s.dot64_f16)(&a, &b[0]), (s.dot64)(&a, &wide[0]));
                assert_eq!(got.to_bits(), want.to_bits(), "{} {n}", s.name);
                let (mut got, mut want) = (a.clone(), a.clone());
                (s.axpy_f16)(0.3, &b[1], &mut got);
                (s.axpy)(0.3, &wide[1], &mut want);
                assert!(got == want, "{} {n}", s.name);
            }
        }
    }

    #[test]
    #[should_panic]
    fn unequal_lengths_are_refused() {
        (simd().dot)(&[1.0], &[1.0, 2.0]);
    }
}
