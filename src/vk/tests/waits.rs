//! Timelines: order, and waits that would not end.

use super::*;
use std::time::{Duration, Instant};

/// A command buffer that leaves a breadcrumb.
fn crumb(bench: &Bench, name: &str, replay: Replay) -> Executable {
    let mut recorder = bench.compute().recorder(name, replay).unwrap();
    recorder.breadcrumb(name);
    recorder.finish().unwrap()
}

#[test]
fn values_come_in_order() {
    let Some(bench) = bench() else { return };
    let queue = bench.compute();
    let work = crumb(&bench, "step", Replay::Many);
    for value in [1, 2, 10] {
        queue.submit(&[&work], &[], value).unwrap();
        assert_eq!(queue.submitted(), value);
    }
    queue.wait(2, bench.device.deadline()).unwrap();
    assert!(queue.reached().unwrap() >= 2);
    queue.wait(10, bench.device.deadline()).unwrap();
    assert_eq!(queue.reached().unwrap(), 10);
    // A wait for the past, and for a value between two submits, which the later one covers.
    queue.wait(7, bench.device.deadline()).unwrap();
    drop(work);
    bench.finish();
}

#[test]
fn what_cannot_be_right_is_refused() {
    let Some(bench) = bench() else { return };
    let queue = bench.compute();
    let once = crumb(&bench, "once", Replay::Once);
    let started = Instant::now();
    let error = queue.wait(1, bench.device.deadline()).err().unwrap();
    assert!(matches!(error, Error::Unsubmitted { value: 1, submitted: 0, .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(1));
    let error = queue.submit(&[&once], &[queue.at(5)], 1).err().unwrap();
    assert!(matches!(error, Error::Unsubmitted { value: 5, .. }), "{error}");
    let gate = HostTimeline::new(&bench.device, "gate").unwrap();
    let error = queue.submit(&[&once], &[gate.at(1)], 1).err().unwrap();
    assert!(matches!(error, Error::Unsubmitted { value: 1, .. }), "{error}");
    let refused = |error: Result<()>, want: &str| {
        let error = error.err().unwrap().to_string();
        assert!(error.contains(want), "`{error}` does not say `{want}`");
    };
    refused(queue.submit(&[], &[], 1), "nothing to run");
    let twice = crumb(&bench, "twice", Replay::Once);
    refused(queue.submit(&[&twice, &twice], &[], 1), "stands twice");
    bench.run(&[&once]);
    refused(queue.submit(&[&once], &[], 2), "once");
    refused(queue.submit(&[&crumb(&bench, "late", Replay::Once)], &[], 1), "value 1 after 1");
    gate.signal(3).unwrap();
    refused(gate.signal(3), "3 after 3");
    drop((once, twice, gate));
    bench.finish();
}

#[test]
fn a_device_that_stands_still_is_reported_by_name() {
    let Some(bench) = bench() else { return };
    let queue = bench.compute();
    bench.run(&[&crumb(&bench, "layer 17", Replay::Once)]);
    let gate = HostTimeline::new(&bench.device, "gate").unwrap();
    gate.promise(1);
    let late = crumb(&bench, "layer 18", Replay::Once);
    queue.submit(&[&late], &[gate.at(1)], 2).unwrap();
    for deadline in [Deadline::still(Duration::from_millis(250)), Deadline::within(Duration::from_millis(50))] {
        let started = Instant::now();
        let error = queue.wait(2, deadline).err().unwrap();
        let Error::Stuck { value: 2, reached: 1, breadcrumb, .. } = &error else { panic!("{error}") };
        assert_eq!(breadcrumb.as_deref(), Some("layer 17"));
        assert!(started.elapsed() >= deadline.still && started.elapsed() < Duration::from_secs(20));
    }
    // Being stuck is not for good: the work is still there.
    gate.signal(1).unwrap();
    queue.wait(2, bench.device.deadline()).unwrap();
    assert_eq!(queue.breadcrumb().as_deref(), Some("layer 18"));
    drop((late, gate));
    bench.finish();
}

#[test]
fn one_queue_waits_for_another() {
    let Some(bench) = bench() else { return };
    let transfer = match bench.device.transfer() {
        Ok(queue) => queue,
        Err(missing) => return eprintln!("skipped: {missing}"),
    };
    let from = bench.buffer("from", 1024, Kind::Upload);
    let (there, host) = (bench.buffer("there", 1024, Kind::DeviceLocal), bench.buffer("host", 1024, Kind::Readback));
    from.write(0, &[7u32; 256]).unwrap();
    let mut r = transfer.recorder("upload", Replay::Once).unwrap();
    r.copy(&from, 0, &there, 0, 1024).breadcrumb("uploaded");
    let upload = r.finish().unwrap();
    let mut r = bench.compute().recorder("download", Replay::Once).unwrap();
    r.copy(&there, 0, &host, 0, 1024).barrier(Scope::TRANSFER_WRITE, Scope::HOST_READ);
    let download = r.finish().unwrap();
    assert!(transfer.submit(&[&download], &[], 1).is_err(), "recorded for the other queue");
    transfer.submit(&[&upload], &[], 1).unwrap();
    bench.compute().submit(&[&download], &[transfer.at(1)], 1).unwrap();
    bench.compute().wait(1, bench.device.deadline()).unwrap();
    assert_eq!(host.read::<u32>(0, 256).unwrap(), [7; 256]);
    assert_eq!(transfer.breadcrumb().as_deref(), Some("uploaded"));
    let pipeline = bench.pipeline("test_chain", &[(0, 64)]);
    let mut r = transfer.recorder("wrong", Replay::Once).unwrap();
    r.bind(&pipeline);
    assert!(r.finish().is_err());
    drop((from, there, host, upload, download, pipeline));
    bench.finish();
}

/// The clock of stillness starts anew with every movement, so a slow device is given its time.
#[test]
fn a_device_that_moves_is_waited_for() {
    let Some(bench) = bench() else { return };
    let queue = bench.compute();
    let (gate, work) = (HostTimeline::new(&bench.device, "gate").unwrap(), crumb(&bench, "step", Replay::Many));
    let steps = 6;
    for i in 1..=steps {
        gate.promise(i);
        queue.submit(&[&work], &[gate.at(i)], i).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 1..=steps {
                std::thread::sleep(Duration::from_millis(200));
                gate.signal(i).unwrap();
            }
        });
        queue.wait(steps, Deadline::still(Duration::from_millis(900))).unwrap();
    });
    drop((gate, work));
    bench.finish();
}
