//! Rounding to f16 in `vec.f16`, bit by bit: what no model's values can be made to be.

use super::*;
use half::f16;

/// Bits around every f16, around the middle between every two, at the ends of the range, and some at random.
fn values() -> Vec<u32> {
    let mut bits = vec![];
    let mut around = |at: u32| (at.saturating_sub(2)..=at + 2).for_each(|b| bits.extend([b, b | 1 << 31]));
    for h in 0..=0x7bffu16 {
        let (here, next) = (f16::from_bits(h).to_f32(), f16::from_bits(h + 1).to_f32());
        // Behind the last is what would be, were it finite.
        let next = if next.is_finite() { next } else { 65536.0 };
        around(here.to_bits());
        around(((here + next) / 2.0).to_bits());
    }
    for at in [0, 1, 0x7f_ffff, 0x80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7fc0_0000, 0x7fff_fff0] {
        around(at);
    }
    let mut x = 0x9e37_79b9_u32;
    for _ in 0..50_000 {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        bits.push(x);
    }
    bits
}

/// What the cache must hold: NaN for what is too large or no number.
fn rounded(bits: u32) -> u16 {
    let half = f16::from_f32(f32::from_bits(bits));
    if half.is_finite() { half.to_bits() } else { 0x7e00 }
}

const WIDTH: u32 = 1024;

#[test]
fn values_round_to_the_nearest_half() {
    let Some(bench) = bench() else { return };
    let mut x = values();
    x.resize(x.len().next_multiple_of(WIDTH as usize), 0);
    let rows = x.len() as u32 / WIDTH;
    // A row a head: all go to the first row of the cache, in the first slot.
    let params = bench.buffer("parameters", 8192, Kind::Upload);
    params.write(0, &[0u32; 2048]).unwrap();
    let from = bench.buffer("x", 4 * u64::from(rows * WIDTH), Kind::Upload);
    from.write(0, &x).unwrap();
    let cache = bench.buffer("cache", 2 * u64::from(rows * WIDTH), Kind::DeviceLocal);
    let host = bench.buffer("host", 2 * u64::from(rows * WIDTH), Kind::Readback);
    let unused = bench.buffer("unused", 256, Kind::DeviceLocal);
    let pipeline = bench.pipeline("vec.f16", &[(0, 64), (6, 1)]);
    let inputs = [&params, &from, &unused, &unused].map(BufferRange::whole);
    let descs = [
        SetDesc { label: "inputs", layout: pipeline.set_layout(0).unwrap(), ranges: &inputs },
        SetDesc { label: "cache", layout: pipeline.set_layout(1).unwrap(), ranges: &[BufferRange::whole(&cache)] },
    ];
    let sets = SetPool::exact(&bench.device, "halves", &descs).unwrap();
    // Addresses, heads, d, x_stride, x_off, x_head, y_stride, y_off, norm_at, norm_n, rope_at, rope_dims, cap, width, eps, scale.
    let numbers = [0, 0, 0, 0, rows, WIDTH, 0, 0, WIDTH, 0, 0, 0, 0, 0, 0, 1, rows * WIDTH, 0, 0];
    let mut push: Vec<u8> = numbers.iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
    push.resize(pipeline.shader().push_size as usize, 0);
    let mut r = bench.compute().recorder("halves", Replay::Once).unwrap();
    r.bind(&pipeline).set(0, &sets[0]).set(1, &sets[1]).push(&push).dispatch([rows, 1, 1]);
    r.barrier(Scope::SHADER_WRITE, Scope::TRANSFER_READ);
    r.copy(&cache, 0, &host, 0, 2 * u64::from(rows * WIDTH)).barrier(Scope::TRANSFER_WRITE, Scope::HOST_READ);
    bench.run(&[&r.finish().unwrap()]);
    let got = host.read::<u16>(0, x.len()).unwrap();
    for (got, x) in got.into_iter().zip(x) {
        assert_eq!(got, rounded(x), "{:e}, {x:#010x}", f32::from_bits(x));
    }
    bench.finish();
}
