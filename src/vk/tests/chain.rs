//! The canary: a missing barrier must be reported, and a barrier must be enough.

use super::*;

const COUNT: u32 = 256;

/// Runs A -> B -> C, each `3 x + 1`, and returns C.
fn chain(bench: &Bench, barrier: bool) -> Vec<f32> {
    let bytes = u64::from(COUNT) * 4;
    let a = bench.buffer("A", bytes, Kind::Upload);
    let (b, c) = (bench.buffer("B", bytes, Kind::DeviceLocal), bench.buffer("C", bytes, Kind::DeviceLocal));
    let host = bench.buffer("host", bytes, Kind::Readback);
    a.write(0, &(0..COUNT).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let pipeline = bench.pipeline("test_chain", &[(0, 64)]);
    let sets = bench.sets(&pipeline, &[[&a, &b], [&b, &c]]);
    let mut recorder = bench.compute().recorder("chain", Replay::Once).unwrap();
    recorder.begin_label("chain").bind(&pipeline).push(&COUNT.to_le_bytes());
    recorder.set(0, &sets[0]).dispatch([COUNT / 64, 1, 1]);
    if barrier {
        recorder.barrier(Scope::SHADER_WRITE, Scope::SHADER_READ);
    }
    recorder.set(0, &sets[1]).dispatch([COUNT / 64, 1, 1]).end_label();
    recorder.barrier(Scope::SHADER_WRITE, Scope::TRANSFER_READ).copy(&c, 0, &host, 0, bytes);
    recorder.barrier(Scope::TRANSFER_WRITE, Scope::HOST_READ);
    bench.run(&[&recorder.finish().unwrap()]);
    host.read(0, COUNT as usize).unwrap()
}

#[test]
fn a_barrier_is_enough() {
    let Some(bench) = bench() else { return };
    let want: Vec<f32> = (0..COUNT).map(|i| 9.0 * i as f32 + 4.0).collect();
    assert_eq!(chain(&bench, true), want);
    bench.finish();
}

#[test]
fn a_missing_barrier_is_reported() {
    let Some(bench) = bench() else { return };
    chain(&bench, false);
    let said = bench.messages.take();
    if bench.validated {
        assert!(!said.is_empty(), "the layer sees no hazards, so no other test under it means anything");
        for message in &said {
            // Old layers prefix their name or leave the id to the text.
            assert!(message.id.contains("SYNC-HAZARD-READ-AFTER-WRITE"), "{message}");
        }
    }
    bench.finish();
}
