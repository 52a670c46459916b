//! Buffers: their memory, their bounds, and what is left.

use super::*;

#[test]
fn memory_is_what_was_asked_for() {
    let Some(bench) = bench() else { return };
    let local = bench.buffer("local", 1 << 16, Kind::DeviceLocal);
    assert!(local.is_device_local());
    let error = local.read::<u32>(0, 1).err().unwrap().to_string();
    assert_eq!(error, "mapping of `local` is not available: it is in device memory");
    for kind in [Kind::Upload, Kind::Readback] {
        let buffer = bench.buffer("host", 64, kind);
        buffer.write(4, &[1u32, 2, 3]).unwrap();
        assert_eq!(buffer.read::<u32>(8, 2).unwrap(), [2, 3]);
        // SAFETY: nothing else uses the buffer.
        unsafe { buffer.mapped(0, 64) }.unwrap()[12] = 9;
        assert_eq!(buffer.read::<u8>(12, 1).unwrap(), [9]);
        let error = buffer.write(60, &[0u64]).err().unwrap().to_string();
        assert_eq!(error, "access by the host for `host`: 60 + 8 bytes of 64");
        let whole = matches!(bench.device.capabilities().memory.bar, Bar::Whole | Bar::Unified);
        assert!(kind == Kind::Readback || buffer.is_device_local() == whole);
    }
    bench.finish();
}

#[test]
fn addresses_are_aligned_and_asked_for() {
    let Some(bench) = bench() else { return };
    let desc = BufferDesc { label: "weights", size: 100, usage: Usage::ADDRESS, kind: Kind::DeviceLocal };
    let buffers: Vec<_> = (0..5).map(|_| Buffer::new(&bench.device, &desc).unwrap()).collect();
    for buffer in &buffers {
        assert_eq!(buffer.address().unwrap() % 16, 0);
    }
    let plain = Buffer::new(&bench.device, &BufferDesc { usage: Usage::STORAGE, ..desc }).unwrap();
    assert!(plain.address().is_err());
    drop((buffers, plain));
    bench.finish();
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let Some(bench) = bench() else { return };
    let desc = |size| BufferDesc { label: "odd", size, usage: Usage::STORAGE, kind: Kind::DeviceLocal };
    assert!(Buffer::new(&bench.device, &desc(0)).is_err());
    assert!(Buffer::new(&bench.device, &desc(u64::MAX)).is_err());
    bench.finish();
}

#[test]
fn a_plan_is_held_against_the_budget() {
    let Some(bench) = bench() else { return };
    let heaps = bench.device.heaps();
    assert!(heaps.iter().any(|h| h.device_local && h.available(0) > 0), "{heaps:?}");
    let need = |bytes| [Need { kind: Kind::DeviceLocal, bytes }, Need { kind: Kind::Upload, bytes: 1 }];
    bench.device.check_budget(&need(1 << 20), 0).unwrap();
    let error = bench.device.check_budget(&need(1 << 60), 1 << 30).err().unwrap();
    assert!(matches!(error, Error::OverBudget { needed, .. } if needed >= 1 << 60), "{error}");
    bench.finish();
}

#[test]
fn sets_are_checked_against_their_layout() {
    let Some(bench) = bench() else { return };
    let buffer = bench.buffer("buffer", 1024, Kind::DeviceLocal);
    let pipeline = bench.pipeline("test_chain", &[(0, 64)]);
    let layout = pipeline.set_layout(0).unwrap();
    assert_eq!(layout.bindings(), [0, 1]);
    let range = |offset, size| BufferRange { buffer: buffer.clone(), offset, size };
    let cases = [
        (vec![range(0, 64)], "1 ranges for 2 bindings"),
        (vec![range(0, 64), range(1, 64)], "binding 1: offset 1 is not aligned"),
        (vec![range(0, 64), range(512, 1024)], "512 + 1024 bytes of 1024"),
        (vec![range(0, 64), range(0, 0)], "binding 1: 0 bytes"),
    ];
    for (ranges, want) in cases {
        let made = SetPool::exact(&bench.device, "sets", &[SetDesc { label: "wrong", layout, ranges: &ranges }]);
        let error = made.err().unwrap().to_string();
        assert!(error.contains(want), "`{error}` does not say `{want}`");
    }
    assert!(SetPool::exact(&bench.device, "none", &[]).unwrap().is_empty());
    drop((buffer, pipeline));
    bench.finish();
}
