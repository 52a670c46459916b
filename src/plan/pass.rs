//! The vocabulary of a compiled plan: passes, buffers, accesses.

use crate::graph::{StateId, WeightId};
use petgraph::graph::NodeIndex;
use std::ops::BitOr;

/// Formats of weights, or of caches, that kernels exist for; names are the shader variants' suffixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    F32,
    Bf16,
    F16,
    I8,
    I4,
    I4g,
    I2,
    I3,
    Mxfp4,
    Fp8,
    Fp8e,
    E8,
}

impl Variant {
    pub fn suffix(self) -> &'static str {
        match self {
            Variant::F32 => "f32",
            Variant::Bf16 => "bf16",
            Variant::F16 => "f16",
            Variant::I8 => "i8",
            Variant::I4 => "i4",
            Variant::I4g => "i4g",
            Variant::I2 => "i2",
            Variant::I3 => "i3",
            Variant::Mxfp4 => "mx",
            Variant::Fp8 => "fp8",
            Variant::Fp8e => "fp8e",
            Variant::E8 => "e8",
        }
    }
}

/// A buffer that passes share. Weights are not among them: they never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buf {
    /// Row records and indirect dispatch sizes of the step.
    Params,
    /// Rotations of the step's rows; one table per set of frequencies.
    Rope(u32),
    /// A value of the step, placed in the arena by lifetime.
    Transient(u32),
    /// A state, all slots.
    State(StateId),
    /// Host memory that the GPU copies from.
    Upload(u32),
    /// Cached host memory that the GPU copies to.
    Readback(u32),
    /// 256 bytes for bindings that a specialisation does not use; never written.
    Dummy,
}

/// How a pass uses a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind {
    pub buf: Buf,
    pub write: bool,
}

impl Bind {
    pub fn read(buf: Buf) -> Self {
        Self { buf, write: false }
    }

    pub fn write(buf: Buf) -> Self {
        Self { buf, write: true }
    }
}

/// A push constant: fixed when commands are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Push {
    U32(u32),
    F32(f32),
    /// Address of a weight's codes; of its scales.
    Codes(WeightId),
    Scales(WeightId),
    /// Address of a vector weight, converted to f32.
    Vector(WeightId),
    /// Address of a table of (codes, scales) addresses, one pair per expert.
    Experts(WeightId),
    /// A 64-bit zero.
    NoAddress,
}

/// A number of workgroups that depends on the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Count {
    Fixed(u32),
    /// Rows of the step, divided and rounded up.
    Rows(u32),
    /// Rows that want logits, likewise.
    Outputs(u32),
    /// Largest visible count of a row, likewise.
    Visible(u32),
    /// Tiles of up to `per` items of one expert each, as many as there can be: how many there are is known to the device
    /// alone. An item is a row and one of its `k` experts.
    Tiles {
        experts: u32,
        k: u32,
        per: u32,
    },
}

impl Count {
    /// Groups of a step of `rows` rows, of which `outputs` want logits, and that see up to `visible` positions.
    pub fn of(self, rows: u32, outputs: u32, visible: u32) -> u32 {
        match self {
            Count::Fixed(n) => n,
            Count::Rows(per) => rows.div_ceil(per),
            Count::Outputs(per) => outputs.div_ceil(per),
            Count::Visible(per) => visible.div_ceil(per),
            // The last tile of each expert that has items may have one only.
            Count::Tiles { experts, k, per } => (rows * k + (per - 1) * experts.min(rows * k)) / per,
        }
    }

    /// Groups of a step of `rows` rows, all of which want logits, in a context of `ctx`.
    pub fn most(self, rows: u32, ctx: u32) -> u32 {
        self.of(rows, rows, ctx)
    }

    /// So many times as many groups.
    pub fn times(self, n: u32) -> Count {
        match self {
            Count::Fixed(x) => Count::Fixed(x * n),
            other => other,
        }
    }
}

/// One compute dispatch (docs/kernels.md).
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    pub kernel: &'static str,
    pub variant: Option<Variant>,
    /// Values of the specialisation constants, from number 0 on.
    pub spec: Vec<u32>,
    pub push: Vec<Push>,
    /// Set 0 behind the parameter buffer; set 1.
    pub set0: Vec<Bind>,
    pub set1: Vec<Bind>,
    pub groups: (Count, Count),
    /// Bytes of weights and caches that a row of workgroups reads, for predictions; of tiles, all those of one expert.
    pub bytes: u64,
}

impl Pass {
    /// Its shader, `copy` or `CPU`.
    pub fn kind(&self) -> String {
        match &self.work {
            Work::Dispatch(d) => d.shader(),
            Work::Copy { .. } => "copy".into(),
            Work::Cpu { .. } => "CPU".into(),
        }
    }
}

impl Dispatch {
    /// Bytes of weights and caches read in a step of `rows` rows and a context of `ctx`: each row of workgroups reads them
    /// anew. Tiles of one expert follow each other and read memory once; as many experts as possible are taken to have some.
    pub fn traffic(&self, rows: u32, ctx: u32) -> u64 {
        let times = match self.groups {
            (_, Count::Tiles { experts, k, .. }) => experts.min(rows * k),
            // Workgroups of all rows for the same outputs follow each other; what rows share is not known before.
            (by_row @ Count::Rows(_), _) => by_row.most(rows, ctx),
            (_, other) => other.most(rows, ctx),
        };
        self.bytes * u64::from(times)
    }

    /// Name of the shader.
    pub fn shader(&self) -> String {
        match self.variant {
            Some(v) => format!("{}.{}", self.kernel, v.suffix()),
            None => self.kernel.into(),
        }
    }
}

/// What a step gives the host. All passes that make logits serve both; the last ones differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The logits.
    Logits,
    /// Per output, the id of the highest logit, and whether all logits are finite.
    Tokens,
}

impl Ending {
    pub const ALL: [Ending; 2] = [Ending::Logits, Ending::Tokens];

    /// What stands for it in the text of a plan.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Logits => "logits",
            Ending::Tokens => "tokens",
        }
    }
}

/// What a pass does.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    Dispatch(Dispatch),
    /// All rows' bytes from one buffer to another.
    Copy {
        from: Buf,
        to: Buf,
        bytes: u64,
    },
    /// A graph node on the CPU. `reads` are the transfers whose values it takes from the device.
    Cpu {
        node: NodeIndex,
        reads: Vec<Buf>,
        writes: Vec<Buf>,
    },
}

/// One step of a plan before it is ordered.
#[derive(Debug, Clone, PartialEq)]
pub struct Pass {
    /// Path of the node whose result it makes, with the nodes fused into it.
    pub name: String,
    pub layer: Option<u32>,
    pub nodes: Vec<NodeIndex>,
    pub work: Work,
    /// Run only by steps that end like this; None: by all.
    pub ending: Option<Ending>,
}

/// Pipeline stages, as a set: who executes an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stages(u8);

impl Stages {
    pub const COMPUTE: Stages = Stages(1);
    pub const TRANSFER: Stages = Stages(2);
    pub const HOST: Stages = Stages(4);
    pub const INDIRECT: Stages = Stages(8);

    pub const fn empty() -> Stages {
        Stages(0)
    }

    pub fn has(self, other: Stages) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn meets(self, other: Stages) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Stages {
    type Output = Stages;
    fn bitor(self, other: Stages) -> Stages {
        Stages(self.0 | other.0)
    }
}

impl std::fmt::Display for Stages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            (Self::COMPUTE, "compute"),
            (Self::TRANSFER, "transfer"),
            (Self::HOST, "host"),
            (Self::INDIRECT, "indirect"),
        ];
        let set: Vec<&str> = names.iter().filter(|(s, _)| self.has(*s)).map(|(_, n)| *n).collect();
        f.write_str(&set.join("+"))
    }
}

impl Pass {
    /// The stage that all its accesses belong to.
    pub fn stage(&self) -> Stages {
        match self.work {
            Work::Dispatch(_) => Stages::COMPUTE,
            Work::Copy { .. } => Stages::TRANSFER,
            Work::Cpu { .. } => Stages::HOST,
        }
    }

    pub fn on_gpu(&self) -> bool {
        !matches!(self.work, Work::Cpu { .. })
    }

    /// Every buffer the pass touches, and whether it writes it. States that CPU nodes keep on the host are
    /// not device buffers and do not appear.
    pub fn accesses(&self) -> Vec<Bind> {
        match &self.work {
            Work::Dispatch(d) => {
                let params = std::iter::once(Bind::read(Buf::Params));
                params.chain(d.set0.iter().copied()).chain(d.set1.iter().copied()).collect()
            }
            Work::Copy { from, to, .. } => vec![Bind::read(*from), Bind::write(*to)],
            Work::Cpu { reads, writes, .. } => {
                let reads = reads.iter().map(|b| Bind::read(*b));
                reads.chain(writes.iter().map(|b| Bind::write(*b))).collect()
            }
        }
    }
}
