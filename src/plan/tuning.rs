//! How products with stored matrices are shared out on kinds of devices: a table by vendor and subgroup size.
//!
//! A line is what was fastest on the device that is named above it: llvmpipe's comes from `coli bench kernels --device vulkan:0
//! --sweep`, the H200's from runs before there was that command (docs/performance.md). What has no line goes by the first one,
//! the device that most was measured on.

/// What [`super::lower`] asks for when it lays workgroups over a matrix (docs/kernels.md, QUADS and DEPTH).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Threads of a workgroup at most, of formats of codes.
    pub threads: u32,
    /// The same of formats of two bytes and more and of those whose inputs are taken in digits, which have enough loads under way with fewer.
    pub wide_threads: u32,
    /// Threads that a workgroup has at least, while there are chunks of columns for them.
    pub busy: u32,
    /// Chunks of a stripe whose loads are under way together, where a stripe of codes has many.
    pub ahead: u32,
    /// From how many tiles of 16 rows on a workgroup has two quads, and four: with fewer, small matrices have more workgroups.
    pub tiles: [u32; 2],
}

/// A kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// As PCI numbers it.
    pub vendor: u32,
    /// Invocations of a subgroup.
    pub subgroup: u32,
    pub tuning: Tuning,
}

pub const TABLE: &[Line] = &[
    // NVIDIA H200, driver 580.159.04.
    Line {
        vendor: 0x10de,
        subgroup: 32,
        tuning: Tuning { threads: 512, wide_threads: 256, busy: 256, ahead: 2, tiles: [32, 96] },
    },
    // llvmpipe of Mesa 26.0 with 256 bits, on one thread. One thread of the processor runs a whole workgroup: its other threads only cost barriers.
    Line {
        vendor: 0x10005,
        subgroup: 8,
        tuning: Tuning { threads: 64, wide_threads: 64, busy: 64, ahead: 4, tiles: [0, 0] },
    },
];

impl Tuning {
    /// For a device of this vendor and subgroup size.
    pub fn of(vendor: u32, subgroup: u32) -> Tuning {
        let line = TABLE.iter().find(|l| (l.vendor, l.subgroup) == (vendor, subgroup));
        line.map_or_else(Tuning::default, |l| l.tuning)
    }
}

impl Default for Tuning {
    fn default() -> Self {
        TABLE[0].tuning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sound_and_alone() {
        for (i, line) in TABLE.iter().enumerate() {
            let Tuning { threads, wide_threads, busy, ahead, tiles } = line.tuning;
            assert!(
                [threads, wide_threads, busy].iter().all(|n| n.is_power_of_two() && (64..=1024).contains(n)),
                "{line:?}"
            );
            assert!(busy <= threads && (1..=4).contains(&ahead) && tiles[0] <= tiles[1], "{line:?}");
            let same = TABLE.iter().filter(|l| (l.vendor, l.subgroup) == (line.vendor, line.subgroup));
            assert_eq!(same.count(), 1, "line {i}");
            assert_eq!(Tuning::of(line.vendor, line.subgroup), line.tuning);
        }
        assert_eq!(Tuning::of(0, 0), Tuning::default());
    }
}
