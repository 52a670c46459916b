//! Nothing is destroyed while the device may use it, and everything is destroyed in the end.

use super::*;

#[test]
fn things_in_use_outlive_their_owners() {
    let Some(bench) = bench() else { return };
    let queue = bench.compute();
    let gate = HostTimeline::new(&bench.device, "gate").unwrap();
    gate.promise(1);
    {
        let (a, b) = (bench.buffer("a", 1024, Kind::DeviceLocal), bench.buffer("b", 1024, Kind::DeviceLocal));
        let times = Timestamps::new(&bench.device, "times", 1).ok();
        let pipeline = bench.pipeline("test_chain", &[(0, 64)]);
        let set = bench.sets(&pipeline, &[[&a, &b]]).remove(0);
        let mut r = queue.recorder("work", Replay::Once).unwrap();
        r.fill(&a, 0, 1024, 0).barrier(Scope::TRANSFER_WRITE, Scope::SHADER_READ);
        r.bind(&pipeline).set(0, &set).push(&256u32.to_le_bytes()).dispatch([4, 1, 1]);
        if let Some(times) = &times {
            r.reset_timestamps(times).timestamp(times, 0, Stages::COMPUTE);
        }
        queue.submit(&[&r.finish().unwrap()], &[gate.at(1)], 1).unwrap();
    }
    // All of it is gone by name, and none of it may be gone in fact.
    gate.signal(1).unwrap();
    drop(gate);
    queue.wait(1, bench.device.deadline()).unwrap();
    bench.finish();
}

#[test]
fn a_device_ends_with_its_last_object() {
    let Some(bench) = bench() else { return };
    let messages = bench.messages.clone();
    let buffer = bench.buffer("last", 64, Kind::Upload);
    let pipeline = bench.pipeline("test_chain", &[(0, 64)]);
    let sets = bench.sets(&pipeline, &[[&buffer, &buffer]]);
    let executable = {
        let mut r = bench.compute().recorder("work", Replay::Many).unwrap();
        r.bind(&pipeline).set(0, &sets[0]).push(&0u32.to_le_bytes()).dispatch([1, 1, 1]);
        r.finish().unwrap()
    };
    bench.compute().submit(&[&executable], &[], 1).unwrap();
    drop((bench, pipeline));
    buffer.write(0, &[1u32]).unwrap();
    drop(buffer);
    drop(executable);
    drop(sets);
    silent(&messages);
}

#[test]
fn an_unfinished_recording_is_dropped_without_a_trace() {
    let Some(bench) = bench() else { return };
    let buffer = bench.buffer("buffer", 64, Kind::DeviceLocal);
    for _ in 0..3 {
        let mut r = bench.compute().recorder("unfinished", Replay::Once).unwrap();
        r.begin_label("open").fill(&buffer, 0, 64, 1);
        drop(r);
    }
    // The same command buffer again, this time to its end.
    let mut r = bench.compute().recorder("finished", Replay::Once).unwrap();
    r.begin_label("left open").fill(&buffer, 0, 64, 1);
    bench.run(&[&r.finish().unwrap()]);
    drop(buffer);
    bench.finish();
}
