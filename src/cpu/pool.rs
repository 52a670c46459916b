//! Softmax pooling over a window, channel by channel.

use rayon::prelude::*;

/// Channels per task.
const BLOCK: usize = 64;

/// `y[c] = sum_j softmax_j(z_j[c]) v_j[c]` over the entries `(v, z)` of one window (models.md C.6
/// window_pool, deepseek-v4.md 1.4 compressor). All entries and `out` are of one length.
pub fn window_pool(entries: &[(&[f32], &[f32])], out: &mut [f32]) {
    out.par_chunks_mut(BLOCK).enumerate().for_each(|(b, out)| {
        for (i, y) in out.iter_mut().enumerate() {
            let c = b * BLOCK + i;
            let top = entries.iter().fold(f32::NEG_INFINITY, |top, (_, z)| top.max(z[c]));
            let (mut sum, mut weight) = (0.0f64, 0.0f64);
            for (v, z) in entries {
                let w = f64::from((z[c] - top).exp());
                weight += w;
                sum += w * f64::from(v[c]);
            }
            *y = (sum / weight) as f32;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{close, noise, on_threads};

    #[test]
    fn means_by_softmax() {
        let d = BLOCK + 1;
        let (v, z) = (noise(1, 7 * d), noise(2, 7 * d));
        let z: Vec<f32> = z.iter().map(|z| z * 90.0).collect();
        let entries: Vec<(&[f32], &[f32])> = v.chunks(d).zip(z.chunks(d)).collect();
        let got = on_threads(|| {
            let mut out = vec![0.0; d];
            window_pool(&entries, &mut out);
            out
        });
        let want = |c: usize| {
            let weights: Vec<f64> = entries.iter().map(|(_, z)| f64::from(z[c]).exp()).collect();
            let sum: f64 = entries.iter().zip(&weights).map(|((v, _), w)| w * f64::from(v[c])).sum();
            (sum / weights.iter().sum::<f64>()) as f32
        };
        close(&got, &(0..d).map(want).collect::<Vec<f32>>(), 1e-5);
    }

    #[test]
    fn nan_is_not_hidden() {
        let mut out = [0.0; 1];
        window_pool(&[(&[1.0], &[f32::NAN]), (&[2.0], &[0.0])], &mut out);
        assert!(out[0].is_nan());
    }
}
