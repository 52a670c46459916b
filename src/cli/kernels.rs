//! The kernels as plans use them: what `coli shaders --stats` compiles.

/// A kernel as plans use it.
pub struct Kernel {
    pub name: &'static str,
    /// Threads per workgroup: constant number 0.
    pub local: u32,
    /// What its loops over weights load.
    pub loads: Loads,
    /// Its specialisation constants, from number 1 on; number 0 is always the workgroup size.
    pub constants: &'static [&'static str],
    /// Their values, one list per pipeline.
    pub used: &'static [&'static [u32]],
}

/// The loops over weights of a kernel.
pub enum Loads {
    /// It has none.
    Nothing,
    /// `dots.glsl`: so many matrices, and (outputs, input rows) of each of its loops.
    Dots(u64, &'static [(u32, u32)]),
    /// `absorb.comp`: four matrix rows, and a query value for each.
    Absorb,
    /// `linear_tile.comp`: four outputs into shared memory, for 16 rows.
    Tile,
}

pub const LOCAL: u32 = 64;
const LARGE: u32 = 512;
pub const RPW: u32 = 4;

/// What the plans of GLM-5.2, Qwen3, Kimi K3 and DeepSeek V4 Flash dispatch (a test compares).
pub const KERNELS: [Kernel; 16] = [
    Kernel { name: "absorb", local: LARGE, loads: Loads::Absorb, constants: &[], used: &[&[]] },
    Kernel { name: "attn", local: LARGE, loads: Loads::Nothing, constants: &[], used: &[&[]] },
    Kernel { name: "attn_latent", local: LARGE, loads: Loads::Nothing, constants: &["SELECT"], used: &[&[0], &[1]] },
    Kernel {
        name: "binary",
        local: LOCAL,
        loads: Loads::Nothing,
        constants: &["KIND"],
        used: &[&[0], &[1], &[2], &[4], &[5], &[6], &[7]],
    },
    // One row per token: it decodes outside of any loop.
    Kernel { name: "embed", local: LOCAL, loads: Loads::Nothing, constants: &[], used: &[&[]] },
    Kernel {
        name: "expand",
        local: LOCAL,
        loads: Loads::Dots(1, &[(4, 1), (2, 8)]),
        constants: &["RPW"],
        used: &[&[8]],
    },
    Kernel {
        name: "experts_down",
        local: LOCAL,
        loads: Loads::Dots(1, &[(4, 1)]),
        constants: &["ADD0", "ADD1", "RPW"],
        used: &[&[0, 0, RPW], &[1, 0, RPW], &[1, 1, RPW]],
    },
    Kernel {
        name: "experts_up",
        local: LOCAL,
        loads: Loads::Dots(2, &[(2, 1)]),
        constants: &["NORM", "KIND", "RPW"],
        used: &[&[0, 0, RPW], &[0, 2, RPW], &[0, 3, RPW], &[2, 0, RPW], &[2, 3, RPW]],
    },
    Kernel {
        name: "glu_linear",
        local: LOCAL,
        loads: Loads::Dots(2, &[(2, 1), (1, 8)]),
        constants: &["NORM", "KIND", "RPW"],
        used: &[&[2, 0, RPW], &[2, 2, RPW], &[2, 3, RPW]],
    },
    Kernel { name: "index_score", local: LOCAL, loads: Loads::Nothing, constants: &[], used: &[&[]] },
    Kernel {
        name: "linear",
        local: LOCAL,
        loads: Loads::Dots(1, &[(4, 1), (2, 8)]),
        constants: &["NORM", "BIAS", "ADD", "GATHER", "RPW"],
        used: &[&[0, 0, 0, 0, RPW], &[0, 0, 1, 0, RPW], &[0, 1, 0, 0, RPW], &[2, 0, 0, 0, RPW], &[2, 0, 0, 1, RPW]],
    },
    Kernel {
        name: "linear_tile",
        local: LOCAL,
        loads: Loads::Tile,
        constants: &["NORM", "BIAS", "ADD", "GATHER"],
        used: &[&[0, 0, 0, 0], &[0, 0, 0, 1], &[0, 0, 1, 0], &[0, 1, 0, 0]],
    },
    // For experts in E8.
    Kernel { name: "rotate", local: LOCAL, loads: Loads::Nothing, constants: &[], used: &[&[]] },
    Kernel {
        name: "route",
        local: LOCAL,
        loads: Loads::Nothing,
        constants: &["SCORE", "BIAS", "RENORM", "GROUP_MAX"],
        used: &[&[0, 1, 1, 0], &[1, 0, 1, 0], &[2, 1, 1, 0]],
    },
    Kernel { name: "topk", local: LARGE, loads: Loads::Nothing, constants: &[], used: &[&[]] },
    Kernel {
        name: "vec",
        local: LOCAL,
        loads: Loads::Nothing,
        constants: &["NORM", "ROPE", "IN_HALF", "OUT_HALF", "INVERSE", "TO_STATE"],
        used: &[
            &[0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 1],
            &[0, 1, 0, 0, 0, 0],
            &[0, 1, 0, 0, 1, 0],
            &[0, 1, 0, 1, 0, 0],
            &[1, 1, 0, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0, 0, 1],
            &[2, 1, 0, 0, 0, 0],
            &[2, 1, 0, 1, 0, 1],
            &[2, 1, 1, 1, 0, 0],
            &[2, 1, 1, 1, 0, 1],
            &[3, 1, 0, 1, 0, 1],
            &[4, 0, 0, 0, 0, 0],
        ],
    },
];
