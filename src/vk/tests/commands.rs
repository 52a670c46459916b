//! Recording, replaying, and what a recorder refuses.

use super::*;

const COUNT: usize = 128;

/// The parts of a step that scales by a parameter: source by address, parameters, target.
struct Step {
    params: Buffer,
    source: Buffer,
    target: Buffer,
    pipeline: Pipeline,
    set: Set,
}

fn step(bench: &Bench, negate: bool) -> Step {
    let bytes = COUNT as u64 * 4;
    let params = bench.buffer("params", 64, Kind::DeviceLocal);
    let (source, target) =
        (bench.buffer("source", bytes, Kind::Upload), bench.buffer("target", bytes, Kind::DeviceLocal));
    source.write(0, &(0..COUNT).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let pipeline = bench.pipeline("test_address", &[(0, 32), (1, negate.into())]);
    let set = bench.sets(&pipeline, &[[&params, &target]]).remove(0);
    Step { params, source, target, pipeline, set }
}

impl Step {
    fn push(&self) -> Vec<u8> {
        let mut push = self.source.address().unwrap().to_le_bytes().to_vec();
        push.extend((COUNT as u32).to_le_bytes());
        push
    }

    /// The command buffer that is replayed: groups come from the parameters too.
    fn record(&self, bench: &Bench) -> Executable {
        let mut r = bench.compute().recorder("step", Replay::Many).unwrap();
        // The copy of the step before has to be done with the target.
        r.barrier(Scope::TRANSFER_READ, Scope::SHADER_WRITE);
        r.keep(&self.source).bind(&self.pipeline).set(0, &self.set).push(&self.push());
        r.dispatch_indirect(&self.params, 16).breadcrumb("step");
        r.barrier(Scope::SHADER_WRITE, Scope::TRANSFER_READ);
        r.finish().unwrap()
    }

    /// The small command buffer ahead of it.
    fn parameters(&self, bench: &Bench, factor: u32) -> Executable {
        let mut r = bench.compute().recorder("parameters", Replay::Once).unwrap();
        let words = [factor, 0, 0, 0, COUNT as u32 / 32, 1, 1, 0];
        let reads = Scope::SHADER_READ.and(Scope::INDIRECT);
        r.barrier(reads, Scope::TRANSFER_WRITE).update(&self.params, 0, bytemuck::cast_slice(&words));
        r.barrier(Scope::TRANSFER_WRITE, reads);
        r.finish().unwrap()
    }

    fn result(&self, bench: &Bench, host: &Buffer, at: u64) -> Executable {
        let mut r = bench.compute().recorder("result", Replay::Once).unwrap();
        r.copy(&self.target, 0, host, at, self.target.size());
        r.barrier(Scope::TRANSFER_WRITE, Scope::HOST_READ);
        r.finish().unwrap()
    }
}

#[test]
fn weights_are_read_by_address() {
    let Some(bench) = bench() else { return };
    let step = step(&bench, true);
    let host = bench.buffer("host", COUNT as u64 * 4, Kind::Readback);
    bench.run(&[&step.parameters(&bench, 5), &step.record(&bench), &step.result(&bench, &host, 0)]);
    let want: Vec<f32> = (0..COUNT).map(|i| -5.0 * i as f32).collect();
    assert_eq!(host.read::<f32>(0, COUNT).unwrap(), want);
    assert_eq!(bench.compute().breadcrumb().as_deref(), Some("step"));
    bench.finish();
}

/// Fifty steps on their way at once, from one recording.
#[test]
fn a_recording_is_replayed_with_new_parameters() {
    let Some(bench) = bench() else { return };
    let (step, steps) = (step(&bench, false), 50u32);
    let bytes = step.target.size();
    let host = bench.buffer("host", bytes * u64::from(steps), Kind::Readback);
    let replayed = step.record(&bench);
    let queue = bench.compute();
    for i in 0..steps {
        let (parameters, result) = (step.parameters(&bench, i), step.result(&bench, &host, bytes * u64::from(i)));
        queue.submit(&[&parameters, &replayed, &result], &[], u64::from(i) + 1).unwrap();
    }
    queue.wait(steps.into(), bench.device.deadline()).unwrap();
    let got = host.read::<f32>(0, COUNT * steps as usize).unwrap();
    for (i, value) in got.iter().enumerate() {
        assert_eq!(*value, ((i / COUNT) * (i % COUNT)) as f32, "value {} of step {}", i % COUNT, i / COUNT);
    }
    drop((step, replayed, host));
    bench.finish();
}

#[test]
fn updates_are_split_and_fills_fill() {
    let Some(bench) = bench() else { return };
    let words: Vec<u32> = (0..50_000).collect();
    let size = words.len() as u64 * 4;
    let host = bench.buffer("host", size + 8, Kind::Readback);
    let mut r = bench.compute().recorder("update", Replay::Once).unwrap();
    r.update(&host, 4, bytemuck::cast_slice(&words)).fill(&host, 0, 4, 7).fill(&host, size + 4, 4, 9);
    r.buffer_barrier(&host, 0, size, Scope::TRANSFER_WRITE, Scope::HOST_READ);
    bench.run(&[&r.finish().unwrap()]);
    let got = host.read::<u32>(0, words.len() + 2).unwrap();
    assert_eq!((got[0], &got[1..=words.len()], got[words.len() + 1]), (7, words.as_slice(), 9));
    drop(host);
    bench.finish();
}

/// Records something wrong and checks what the recorder says of it.
fn refused(bench: &Bench, want: &str, mistake: impl FnOnce(&mut Recorder<'_>)) {
    let mut recorder = bench.compute().recorder("wrong", Replay::Once).unwrap();
    mistake(&mut recorder);
    let error = recorder.finish().err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains(want), "`{error}` does not say `{want}`");
}

#[test]
fn a_dispatch_needs_all_that_its_pipeline_needs() {
    let Some(bench) = bench() else { return };
    let step = step(&bench, false);
    let other = bench.pipeline("test_chain", &[(0, 1)]);
    refused(&bench, "no pipeline is bound", |r| {
        r.dispatch([1; 3]);
    });
    refused(&bench, "set 0 of `test_address` is not bound", |r| {
        r.bind(&step.pipeline).dispatch([1; 3]);
    });
    refused(&bench, "lacks its push constants", |r| {
        r.bind(&step.pipeline).set(0, &step.set).dispatch([1; 3]);
    });
    refused(&bench, "3 bytes, `test_address` takes 12", |r| {
        r.bind(&step.pipeline).push(&[0; 3]);
    });
    refused(&bench, "set 0 of `test_chain` is not bound", |r| {
        r.bind(&step.pipeline).set(0, &step.set).push(&step.push()).bind(&other).dispatch([1; 3]);
    });
    // Where any number of workgroups is allowed that mistake cannot be made.
    if let Some(n) = bench.device.capabilities().limits.group_count[0].checked_add(1) {
        refused(&bench, "workgroups, the limits are", |r| {
            r.bind(&step.pipeline).set(0, &step.set).push(&step.push()).dispatch([n, 1, 1]);
        });
    }
    drop((step, other));
    bench.finish();
}

#[test]
fn transfers_stay_in_their_buffers() {
    let Some(bench) = bench() else { return };
    let step = step(&bench, false);
    let desc = BufferDesc { label: "small", size: 64, usage: Usage::STORAGE, kind: Kind::DeviceLocal };
    let small = Buffer::new(&bench.device, &desc).unwrap();
    refused(&bench, "for `small`: it was made for Usage(STORAGE), not for Usage(TRANSFER_DST)", |r| {
        r.fill(&small, 0, 4, 0);
    });
    refused(&bench, "60 + 8 bytes of 64", |r| {
        r.fill(&step.params, 60, 8, 0);
    });
    for (at, bytes) in [(2, &[0u8; 4][..]), (0, &[0; 3]), (0, &[])] {
        refused(&bench, "must be multiples of 4", |r| {
            r.update(&step.params, at, bytes);
        });
    }
    refused(&bench, "no bytes to copy", |r| {
        r.copy(&step.source, 0, &step.target, 0, 0);
    });
    refused(&bench, "no label is open", |r| {
        r.end_label();
    });
    drop((step, small));
    bench.finish();
}

#[test]
fn times_are_taken() {
    let Some(bench) = bench() else { return };
    let places = match Timestamps::new(&bench.device, "times", 3) {
        Ok(places) => places,
        Err(Error::Missing(missing)) => return eprintln!("skipped: {missing}"),
        Err(error) => panic!("{error}"),
    };
    let step = step(&bench, false);
    let mut r = bench.compute().recorder("timed", Replay::Once).unwrap();
    r.reset_timestamps(&places).timestamp(&places, 0, Stages::COMPUTE);
    r.bind(&step.pipeline).set(0, &step.set).push(&step.push()).dispatch([4, 1, 1]);
    r.timestamp(&places, 1, Stages::COMPUTE);
    bench.run(&[&r.finish().unwrap()]);
    let times = places.read().unwrap();
    assert!(times[0].is_some() && times[1].is_some() && times[2].is_none(), "{times:?}");
    assert!(places.elapsed(0, 1).unwrap().unwrap() >= 0.0);
    assert_eq!(places.elapsed(0, 2).unwrap(), None);
    let mut r = bench.compute().recorder("timed", Replay::Once).unwrap();
    r.timestamp(&places, 3, Stages::COMPUTE);
    let error = r.finish().err().unwrap();
    assert!(error.to_string().contains("`times` has 3 places"), "{error}");
    let mut r = bench.compute().recorder("timed", Replay::Once).unwrap();
    r.timestamp(&places, 0, Stages::COMPUTE | Stages::TRANSFER);
    let error = r.finish().err().unwrap();
    assert!(error.to_string().contains("a time is of one stage"), "{error}");
    drop((step, places));
    bench.finish();
}
