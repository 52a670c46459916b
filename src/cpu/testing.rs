//! Helpers of the kernels' tests.

use crate::formats::{Format, View};

/// Reproducible values in -1..1.
pub fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Relative L2 distance below `bound`.
pub fn close(got: &[f32], want: &[f32], bound: f64) {
    assert_eq!(got.len(), want.len());
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let error = norm(&mut got.iter().zip(want).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let size = norm(&mut want.iter().map(|b| f64::from(*b)));
    assert!(error <= bound * size.max(1e-3), "relative L2 {} of {got:?} against {want:?}", error / size);
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// A stored f32 matrix, one byte off alignment if `odd`.
pub struct Stored {
    bytes: Vec<u8>,
    rows: usize,
    cols: usize,
    at: usize,
}

impl Stored {
    pub fn new(values: &[f32], cols: usize, odd: bool) -> Stored {
        let mut bytes = vec![0u8; 4];
        // An allocation of bytes may start anywhere; find an aligned place in it.
        bytes.reserve(values.len() * 4 + 4);
        let at = bytes.as_ptr().align_offset(4) + usize::from(odd);
        bytes.resize(at, 0);
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        Stored { rows: values.len() / cols, cols, bytes, at }
    }

    pub fn view(&self) -> View<'_> {
        View::new(Format::F32, self.rows, self.cols, &self.bytes[self.at..], &[]).unwrap()
    }
}

/// Runs `f` on one, two and five threads and checks that the bits agree.
pub fn on_threads(f: impl Fn() -> Vec<f32> + Sync + Send) -> Vec<f32> {
    let run = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(&f);
    let one = run(1);
    for n in [2, 5] {
        assert_eq!(bits(&one), bits(&run(n)), "{n} threads");
    }
    one
}

/// `w x` in f64, `x` of one row.
pub fn product(w: &[f32], x: &[f32]) -> Vec<f32> {
    let dot = |w: &[f32]| w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum::<f64>() as f32;
    w.chunks(x.len()).map(dot).collect()
}
