//! Which memory type a buffer gets, and what the host can map. Pure functions over recorded tables.

use super::capabilities::{Bar, DeviceKind, Heap, MemoryLayout, MemoryType};
use serde::Serialize;
use std::cmp::Reverse;

/// What a buffer's memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Kind {
    /// Only the device touches it.
    DeviceLocal,
    /// The host writes it: device memory where the host can map all of that, else host memory.
    Upload,
    /// The host reads it: cached host memory. (Reading other mapped memory runs at 30 to 40 MB/s.)
    Readback,
}

impl Kind {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeviceLocal => "device memory",
            Self::Upload => "upload memory",
            Self::Readback => "read-back memory",
        }
    }

    /// What memory must be to serve.
    pub(crate) fn accepts(self, ty: &MemoryType) -> bool {
        let mapped = ty.host_visible && ty.host_coherent;
        !ty.special
            && match self {
                Self::DeviceLocal => ty.device_local,
                Self::Upload => mapped,
                Self::Readback => mapped && ty.host_cached,
            }
    }
}

/// The memory type for a kind, out of those that `allowed` has a bit for.
pub(crate) fn choose(layout: &MemoryLayout, kind: Kind, allowed: u32) -> Option<usize> {
    let possible = layout.types.iter().enumerate().filter(|(i, ty)| allowed >> i & 1 == 1 && kind.accepts(ty));
    let size = |ty: &MemoryType| layout.heaps.get(ty.heap).map_or(0, |h| h.size);
    // The window is small, and the driver needs it.
    let mapped_device = matches!(layout.bar, Bar::Unified | Bar::Whole);
    possible
        .max_by_key(|(i, ty)| {
            let first = match kind {
                Kind::DeviceLocal => (true, true),
                Kind::Upload => (ty.device_local == mapped_device, !ty.host_cached),
                Kind::Readback => (!ty.device_local, true),
            };
            // Types come in the driver's order of preference.
            (first, size(ty), kind != Kind::DeviceLocal || !ty.host_visible, Reverse(*i))
        })
        .map(|(i, _)| i)
}

/// How much of the device's memory the host can map.
pub(crate) fn bar(heaps: &[Heap], types: &[MemoryType], device: DeviceKind) -> Bar {
    if matches!(device, DeviceKind::Integrated | DeviceKind::Cpu) {
        return Bar::Unified;
    }
    let window = types
        .iter()
        .filter(|t| t.device_local && t.host_visible && !t.special)
        .filter_map(|t| Some((t.heap, heaps.get(t.heap)?.size)))
        .max_by_key(|&(_, size)| size);
    match window {
        None => Bar::None,
        Some((heap, _)) if Some(heap) == largest_local(heaps) => Bar::Whole,
        Some((_, size)) => Bar::Window(size),
    }
}

fn largest_local(heaps: &[Heap]) -> Option<usize> {
    heaps.iter().enumerate().filter(|(_, h)| h.device_local).max_by_key(|(_, h)| h.size).map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// d: device-local, v: host-visible, c: coherent, k: cached, s: special.
    fn layout(device: DeviceKind, heaps: &[(u64, bool)], types: &[(usize, &str)]) -> MemoryLayout {
        let heaps: Vec<Heap> =
            heaps.iter().map(|&(mib, device_local)| Heap { size: mib << 20, device_local }).collect();
        let types: Vec<MemoryType> = types
            .iter()
            .map(|&(heap, f)| MemoryType {
                heap,
                device_local: f.contains('d'),
                host_visible: f.contains('v'),
                host_coherent: f.contains('c'),
                host_cached: f.contains('k'),
                special: f.contains('s'),
            })
            .collect();
        let bar = bar(&heaps, &types, device);
        MemoryLayout { heaps, types, bar }
    }

    fn chosen(layout: &MemoryLayout) -> [Option<usize>; 3] {
        [Kind::DeviceLocal, Kind::Upload, Kind::Readback].map(|kind| choose(layout, kind, !0))
    }

    #[test]
    fn nvidia_with_resizable_bar() {
        let l = layout(
            DeviceKind::Discrete,
            &[(143_360, true), (1_000_000, false)],
            &[(1, ""), (0, "d"), (1, "vc"), (1, "vck"), (0, "dvc")],
        );
        assert_eq!((l.bar, chosen(&l)), (Bar::Whole, [Some(1), Some(4), Some(3)]));
    }

    #[test]
    fn nvidia_with_a_window() {
        let l = layout(
            DeviceKind::Discrete,
            &[(8192, true), (16_000, false), (246, true)],
            &[(1, ""), (0, "d"), (1, "vc"), (1, "vck"), (2, "dvc")],
        );
        assert_eq!((l.bar, chosen(&l)), (Bar::Window(246 << 20), [Some(1), Some(2), Some(3)]));
    }

    #[test]
    fn amd_with_resizable_bar_and_coherence_extension() {
        let types = &[(0, "d"), (0, "d"), (1, "vc"), (0, "dvc"), (1, "vck"), (0, "ds"), (1, "vcs"), (0, "dvcs")];
        let l = layout(DeviceKind::Discrete, &[(16_000, true), (32_000, false)], types);
        assert_eq!((l.bar, chosen(&l)), (Bar::Whole, [Some(0), Some(3), Some(4)]));
    }

    #[test]
    fn amd_with_a_window() {
        let types = &[(0, "d"), (1, "vc"), (2, "dvc"), (1, "vck")];
        let l = layout(DeviceKind::Discrete, &[(7936, true), (32_000, false), (256, true)], types);
        assert_eq!((l.bar, chosen(&l)), (Bar::Window(256 << 20), [Some(0), Some(1), Some(3)]));
    }

    #[test]
    fn old_card_without_any_window() {
        let l = layout(DeviceKind::Discrete, &[(2048, true), (8000, false)], &[(0, "d"), (1, "vc"), (1, "vck")]);
        assert_eq!((l.bar, chosen(&l)), (Bar::None, [Some(0), Some(1), Some(2)]));
    }

    #[test]
    fn shared_memory() {
        let cpu = layout(DeviceKind::Cpu, &[(2048, true)], &[(0, "dvck")]);
        assert_eq!((cpu.bar, chosen(&cpu)), (Bar::Unified, [Some(0); 3]));
        let amd = layout(
            DeviceKind::Integrated,
            &[(9000, false), (18_000, true)],
            &[(1, "d"), (1, "dvc"), (0, "vc"), (1, "dvck"), (0, "vck")],
        );
        assert_eq!((amd.bar, chosen(&amd)), (Bar::Unified, [Some(0), Some(1), Some(4)]));
    }

    #[test]
    fn no_cached_memory_is_nothing_not_something_slow() {
        let l = layout(DeviceKind::Discrete, &[(2048, true), (8000, false)], &[(0, "d"), (1, "vc"), (1, "vk")]);
        assert_eq!(choose(&l, Kind::Readback, !0), None);
        assert_eq!(choose(&l, Kind::DeviceLocal, 0b110), None, "a buffer may rule types out");
    }
}
