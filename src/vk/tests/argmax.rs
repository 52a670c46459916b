//! The kernel that picks tokens, bit by bit: what no model's logits can be made to be.

use super::*;

/// Threads, and the values that a workgroup looks through: few and many to a thread, and what plans use.
const SHARES: [(u32, u32); 3] = [(64, 40), (64, 1000), (256, 2048)];
const SIZES: [usize; 9] = [1, 2, 63, 97, 1000, 2047, 2049, 4099, 154_881];

/// Bits of a row of `n` values, by number of the pattern; None when there are no more.
fn pattern(number: usize, n: usize) -> Option<Vec<u32>> {
    let mut x = 0x9e37_79b9_u32 ^ (n as u32) << 5 ^ number as u32;
    let mut noise = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x
    };
    let float = |bits: u32| (bits as i32 as f32 / 1e8).to_bits();
    let random: Vec<u32> = (0..n).map(|_| float(noise())).collect();
    let put = |places: &[usize], bits: u32| {
        let mut row = random.clone();
        places.iter().for_each(|at| row[at % n] = bits);
        row
    };
    let made = |value: &dyn Fn(usize) -> f32| (0..n).map(|i| value(i).to_bits()).collect();
    Some(match number {
        0 => random,
        // Ties all over, and ties in different stretches.
        1 => made(&|i| (i * 7 % 5) as f32),
        2 => put(&[n / 3, n / 2, n - 1], f32::MAX.to_bits()),
        3 => made(&|_| -2.5),
        4 => made(&|i| i as f32),
        5 => made(&|i| -(i as f32) - 1.0),
        // Zeros of both signs are equal; below them denormals, which are not zero.
        6 => made(&|i| if i % 3 == 1 { 0.0 } else { -0.0 }),
        7 => made(&|i| if i == n / 2 { -0.0 } else { -f32::from_bits(1 + i as u32) }),
        8 => made(&|i| f32::from_bits(1 + (i as u32 ^ 5) % 1000)),
        9 => put(&[n / 2], f32::NAN.to_bits()),
        10 => put(&[n - 1], u32::MAX),
        11 => put(&[n - 1, 2 * n / 3], f32::INFINITY.to_bits()),
        12 => put(&[0], f32::NEG_INFINITY.to_bits()),
        13 => made(&|_| f32::NEG_INFINITY),
        14 => made(&|i| [f32::MIN, f32::MAX][i % 2]),
        _ => return None,
    })
}

/// (whether all are finite, the id of the first highest among those below `among`; else of the first that is not finite)
fn on_host(row: &[u32], among: usize) -> (bool, u32) {
    let value = |i: &usize| f32::from_bits(row[*i]);
    if let Some(bad) = (0..row.len()).find(|i| !value(i).is_finite()) {
        return (false, bad as u32);
    }
    let best = (0..among).reduce(|best, i| if value(&i) > value(&best) { i } else { best });
    (true, best.unwrap() as u32)
}

/// All rows in one dispatch, or two where a row has several stretches.
fn on_device(bench: &Bench, rows: &[Vec<u32>], among: usize, (local, stretch): (u32, u32)) -> Vec<(bool, u32)> {
    let (n, count) = (rows[0].len() as u32, rows.len() as u32);
    let parts = n.div_ceil(stretch);
    let bytes = |values: u32| u64::from(4 * values * count).max(256);
    let params = bench.buffer("parameters", 256, Kind::Upload);
    params.write(16, &[among as u32]).unwrap();
    let x = bench.buffer("x", bytes(n), Kind::Upload);
    x.write(0, &rows.concat()).unwrap();
    let found = bench.buffer("found", bytes(2 * parts), Kind::DeviceLocal);
    let best = bench.buffer("best", bytes(2), Kind::DeviceLocal);
    let host = bench.buffer("host", bytes(2), Kind::Readback);
    let mut r = bench.compute().recorder("argmax", Replay::Once).unwrap();
    let last = if parts > 1 { &best } else { &found };
    for (from, to, number, n, stretch) in [(&x, &found, 0, n, stretch), (&found, &best, 1, parts, parts)] {
        let pipeline = bench.pipeline("argmax", &[(0, local), (1, number)]);
        let ranges = [&params, from, to].map(BufferRange::whole);
        let desc = SetDesc { label: "rows", layout: pipeline.set_layout(0).unwrap(), ranges: &ranges };
        let sets = SetPool::exact(&bench.device, "rows", &[desc]).unwrap();
        let push: Vec<u8> = [n, stretch].iter().flat_map(|w| w.to_le_bytes()).collect();
        r.bind(&pipeline).set(0, &sets[0]).push(&push).dispatch([n.div_ceil(stretch), count, 1]);
        r.barrier(Scope::SHADER_WRITE, Scope::SHADER_READ.and(Scope::TRANSFER_READ));
        if parts == 1 {
            break;
        }
    }
    r.copy(last, 0, &host, 0, u64::from(8 * count)).barrier(Scope::TRANSFER_WRITE, Scope::HOST_READ);
    bench.run(&[&r.finish().unwrap()]);
    let found = host.read::<[u32; 2]>(0, count as usize).unwrap();
    found.into_iter().map(|[key, id]| (key != u32::MAX, id)).collect()
}

#[test]
fn the_first_highest_of_any_bits() {
    let Some(bench) = bench() else { return };
    for n in SIZES {
        let rows: Vec<Vec<u32>> = (0..).map_while(|number| pattern(number, n)).collect();
        for share in SHARES {
            for among in [n, n / 2 + 1, 1] {
                let want: Vec<_> = rows.iter().map(|row| on_host(row, among)).collect();
                assert_eq!(
                    on_device(&bench, &rows, among, share),
                    want,
                    "{n} values, {among} to choose from, {share:?}"
                );
            }
        }
    }
    bench.finish();
}
