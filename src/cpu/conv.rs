//! Causal depthwise convolution.

use super::elementwise::silu;
use rayon::prelude::*;

/// Channels per task.
const BLOCK: usize = 512;

/// `y_n[c] = act(sum_j w[c,j] u_(n-K+1+j)[c])` (models.md C.3 causal_conv1d, B.4).
///
/// `inputs` is `[rows][taps]`: what each tap of each row meets, the newest last, None before position 0.
/// `w` is `[channels][taps]`, `out` is `[rows][channels]`.
pub fn causal_conv1d(inputs: &[Option<&[f32]>], w: &[f32], taps: usize, act: bool, out: &mut [f32]) {
    let channels = w.len() / taps;
    out.par_chunks_mut(channels).zip(inputs.par_chunks(taps)).for_each(|(out, inputs)| {
        out.par_chunks_mut(BLOCK).enumerate().for_each(|(b, out)| {
            let first = b * BLOCK;
            out.fill(0.0);
            for (j, u) in inputs.iter().enumerate() {
                let Some(u) = u else { continue };
                let u = &u[first..first + out.len()];
                out.iter_mut().zip(u).enumerate().for_each(|(c, (y, u))| *y += w[(first + c) * taps + j] * u);
            }
            if act {
                out.iter_mut().for_each(|y| *y = silu(*y));
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{close, noise, on_threads};

    #[test]
    fn slides_over_the_rows() {
        let (rows, channels, taps) = (5, BLOCK + 65, 4);
        let (x, w) = (noise(1, rows * channels), noise(2, channels * taps));
        let row = |n: usize| &x[n * channels..][..channels];
        let inputs: Vec<Option<&[f32]>> =
            (0..rows).flat_map(|n| (0..taps).map(move |j| (n + 1 + j).checked_sub(taps))).map(|n| n.map(row)).collect();
        for act in [false, true] {
            let got = on_threads(|| {
                let mut out = vec![0.0; rows * channels];
                causal_conv1d(&inputs, &w, taps, act, &mut out);
                out
            });
            let want = |n: usize, c: usize| {
                let taps = (0..taps).filter(|j| n + j + 1 >= taps);
                let y: f64 = taps.map(|j| f64::from(w[c * 4 + j]) * f64::from(row(n + j - 3)[c])).sum();
                (if act { y / (1.0 + (-y).exp()) } else { y }) as f32
            };
            let want: Vec<f32> = (0..rows * channels).map(|i| want(i / channels, i % channels)).collect();
            close(&got, &want, 1e-6);
        }
    }
}
