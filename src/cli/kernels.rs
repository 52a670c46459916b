//! The kernels as plans use them: what `coli shaders --stats` compiles.

/// A kernel as plans use it.
pub struct Kernel {
    pub name: &'static str,
    /// Threads per workgroup, constant number 0: the first is compiled.
    pub local: &'static [u32],
    /// What its loops over weights load.
    pub loads: Loads,
    /// Its specialisation constants, from number 1 on; number 0 is always the workgroup size.
    pub constants: &'static [&'static str],
    /// Their values, one list per pipeline.
    pub used: &'static [&'static [u32]],
}

/// Constants that change how work is shared out and no code, but for that which repeats: one value of each is compiled.
pub const SHARING: [&str; 2] = ["QUADS", "DEPTH"];

/// The loops over weights of a kernel.
#[derive(Clone, Copy)]
pub enum Loads {
    /// It has none.
    Nothing,
    /// `dots.glsl`: a chunk of so many matrices in a step, and the input rows of each of its loops. Plans also use it with
    /// other workgroup sizes than the table's.
    Dots(u64, &'static [u32]),
    /// `absorb.comp`: a chunk, and a query value for each of its four rows.
    Absorb,
    /// `linear_tile.comp`: a chunk into shared memory, for 64 rows.
    Tile,
    /// `coop.glsl`: into shared memory, for cooperative matrices; not looked for in machine code.
    Matrices,
}

pub const LOCAL: u32 = 64;
const LARGE: u32 = 512;
const STRIPED: u32 = 256;
const TILE: u32 = 128;
const QUADS: u32 = 4;
const DEPTH: u32 = 1;

/// What the plans of GLM-5.2, Qwen3, Kimi K3 and DeepSeek V4 Flash dispatch (a test compares).
pub const KERNELS: &[Kernel] = &[
    Kernel { name: "absorb", local: &[LARGE], loads: Loads::Absorb, constants: &["RANK"], used: &[&[512]] },
    Kernel { name: "argmax", local: &[STRIPED], loads: Loads::Nothing, constants: &["FOUND"], used: &[&[0], &[1]] },
    Kernel {
        name: "attn_split",
        local: &[STRIPED],
        loads: Loads::Nothing,
        constants: &["HEADS", "V_DIM", "SELECT", "WINDOW", "EVERY", "KV_HEADS", "SHARED_BY"],
        used: &[
            &[4, 128, 0, 0, 1, 8, 4],
            &[8, 128, 0, 0, 1, 4, 8],
            // DeepSeek V4: its ring, and its compressed caches.
            &[8, 512, 0, 128, 1, 1, 64],
            &[8, 512, 1, 0, 4, 1, 64],
            &[8, 512, 0, 0, 128, 1, 64],
        ],
    },
    Kernel {
        name: "attn_tile",
        local: &[128, LARGE],
        loads: Loads::Nothing,
        constants: &[
            "HEADS", "V_DIM", "QUERIES", "SELECT_0", "WINDOW_0", "EVERY_0", "SELECT_1", "WINDOW_1", "EVERY_1", "SINK",
        ],
        used: &[
            &[4, 128, 32, 0, 0, 1, 0, 0, 0, 0],
            &[8, 128, 32, 0, 0, 1, 0, 0, 0, 0],
            &[32, 512, 32, 0, 128, 1, 0, 0, 0, 1],
            &[32, 512, 32, 0, 128, 1, 1, 0, 4, 1],
            &[32, 512, 32, 0, 128, 1, 0, 0, 128, 1],
        ],
    },
    Kernel {
        name: "binary",
        local: &[LOCAL],
        loads: Loads::Nothing,
        constants: &["KIND"],
        used: &[&[0], &[1], &[2], &[4], &[5], &[6], &[7]],
    },
    // One row per token: it decodes outside of any loop.
    Kernel { name: "embed", local: &[LOCAL], loads: Loads::Nothing, constants: &[], used: &[&[]] },
    Kernel {
        name: "expand",
        local: &[STRIPED],
        loads: Loads::Dots(1, &[1, 8]),
        constants: &["MERGE", "SELECT", "QUADS", "DEPTH", "MANY", "V_DIM"],
        used: &[
            &[0, 0, QUADS, DEPTH, 1, 128],
            &[0, 0, QUADS, DEPTH, 1, 256],
            &[1, 0, QUADS, DEPTH, 0, 128],
            &[1, 1, QUADS, DEPTH, 0, 256],
        ],
    },
    Kernel {
        name: "experts_down",
        local: &[STRIPED],
        loads: Loads::Dots(1, &[1]),
        constants: &["ADD0", "ADD1", "QUADS", "DEPTH", "FINE"],
        used: &[&[0, 0, QUADS, DEPTH, 0], &[1, 0, QUADS, DEPTH, 0], &[1, 1, QUADS, DEPTH, 0]],
    },
    Kernel { name: "experts_down_tile", local: &[TILE], loads: Loads::Tile, constants: &[], used: &[&[]] },
    Kernel {
        name: "experts_sum",
        local: &[STRIPED],
        loads: Loads::Nothing,
        constants: &["ADD0", "ADD1"],
        used: &[&[0, 0], &[1, 0], &[1, 1]],
    },
    Kernel {
        name: "experts_up",
        local: &[STRIPED],
        loads: Loads::Dots(2, &[1]),
        constants: &[
            "NORM",
            "KIND",
            "QUADS",
            "DEPTH",
            "K",
            "FOLD",
            "EXPERTS",
            "SCORE",
            "BIAS",
            "RENORM",
            "GROUPS",
            "TOP_GROUPS",
            "GROUP_MAX",
            "BY_OUTPUTS",
            "FINE",
        ],
        used: &[
            // GLM-5.2 and Qwen3: several rows, one row; Kimi K3; DeepSeek V4.
            &[2, 0, QUADS, DEPTH, 8, 0, 4, 0, 0, 0, 1, 1, 0, 1, 0],
            &[2, 0, QUADS, DEPTH, 8, 1, 256, 0, 1, 1, 1, 1, 0, 0, 0],
            &[2, 0, QUADS, DEPTH, 8, 1, 128, 1, 0, 1, 1, 1, 0, 0, 0],
            &[0, 2, QUADS, DEPTH, 16, 0, 4, 0, 0, 0, 1, 1, 0, 1, 0],
            &[0, 2, QUADS, DEPTH, 16, 1, 896, 0, 1, 1, 1, 1, 0, 0, 0],
            &[2, 3, QUADS, DEPTH, 6, 0, 4, 0, 0, 0, 1, 1, 0, 0, 0],
            &[2, 3, QUADS, DEPTH, 6, 0, 4, 0, 0, 0, 1, 1, 0, 1, 0],
            &[2, 3, QUADS, DEPTH, 6, 1, 256, 2, 1, 1, 1, 1, 0, 0, 0],
        ],
    },
    Kernel {
        name: "experts_up_coop",
        local: &[TILE],
        loads: Loads::Matrices,
        constants: &["KIND", "FRAGMENTS_M", "FRAGMENTS_N", "SUBGROUPS_M", "SUBGROUPS_N", "SIDE"],
        used: &[&[0, 2, 2, 4, 1, 16], &[2, 2, 2, 4, 1, 16], &[3, 2, 2, 4, 1, 16]],
    },
    Kernel {
        name: "experts_down_coop",
        local: &[TILE],
        loads: Loads::Matrices,
        constants: &["FRAGMENTS_M", "FRAGMENTS_N", "SUBGROUPS_M", "SUBGROUPS_N", "SIDE"],
        used: &[&[2, 2, 4, 1, 16]],
    },
    Kernel {
        name: "experts_up_tile",
        local: &[TILE],
        loads: Loads::Tile,
        constants: &["KIND"],
        used: &[&[0], &[2], &[3]],
    },
    Kernel {
        name: "glu_linear",
        local: &[STRIPED],
        loads: Loads::Dots(2, &[1, 8]),
        constants: &["NORM", "KIND", "QUADS", "DEPTH", "MANY", "FINE"],
        used: &[
            &[2, 0, QUADS, DEPTH, 0, 0],
            &[2, 0, QUADS, DEPTH, 1, 0],
            &[2, 2, QUADS, DEPTH, 0, 0],
            &[2, 2, QUADS, DEPTH, 1, 0],
            &[2, 3, QUADS, DEPTH, 0, 0],
            &[2, 3, QUADS, DEPTH, 1, 0],
        ],
    },
    Kernel { name: "halves", local: &[STRIPED], loads: Loads::Nothing, constants: &[], used: &[&[]] },
    Kernel { name: "group", local: &[STRIPED], loads: Loads::Nothing, constants: &[], used: &[&[]] },
    Kernel {
        name: "index_score",
        local: &[STRIPED],
        loads: Loads::Nothing,
        constants: &["D", "ROPE", "EVERY"],
        used: &[&[128, 1, 1], &[128, 0, 4]],
    },
    Kernel {
        name: "linear",
        local: &[STRIPED],
        loads: Loads::Dots(1, &[1, 8]),
        constants: &["NORM", "BIAS", "ADD", "GATHER", "QUADS", "DEPTH", "MANY", "FINE"],
        used: &[
            &[0, 0, 0, 0, QUADS, DEPTH, 0, 0],
            &[0, 0, 0, 0, QUADS, DEPTH, 1, 0],
            &[0, 0, 1, 0, QUADS, DEPTH, 0, 0],
            &[0, 0, 1, 0, QUADS, DEPTH, 1, 0],
            &[0, 1, 0, 0, QUADS, DEPTH, 0, 0],
            &[0, 1, 0, 0, QUADS, DEPTH, 1, 0],
            &[2, 0, 0, 0, QUADS, DEPTH, 0, 0],
            &[2, 0, 0, 0, QUADS, DEPTH, 1, 0],
            &[2, 0, 0, 1, QUADS, DEPTH, 0, 0],
            &[2, 0, 0, 1, QUADS, DEPTH, 1, 0],
        ],
    },
    Kernel {
        name: "linear_coop",
        local: &[TILE],
        loads: Loads::Matrices,
        constants: &["BIAS", "ADD", "GATHER", "FRAGMENTS_M", "FRAGMENTS_N", "SUBGROUPS_M", "SUBGROUPS_N", "SIDE"],
        used: &[
            &[0, 0, 0, 4, 2, 2, 2, 16],
            &[0, 0, 1, 4, 2, 2, 2, 16],
            &[0, 1, 0, 4, 2, 2, 2, 16],
            &[1, 0, 0, 4, 2, 2, 2, 16],
        ],
    },
    Kernel {
        name: "linear_tile",
        local: &[STRIPED],
        loads: Loads::Tile,
        constants: &["NORM", "BIAS", "ADD", "GATHER"],
        used: &[&[0, 0, 0, 0], &[0, 0, 0, 1], &[0, 0, 1, 0], &[0, 1, 0, 0]],
    },
    Kernel {
        name: "latent_merge",
        local: &[LOCAL],
        loads: Loads::Nothing,
        constants: &["SELECT_0", "WINDOW_0", "EVERY_0", "SELECT_1", "WINDOW_1", "EVERY_1", "SINK"],
        used: &[
            &[0, 0, 1, 0, 0, 0, 0],
            &[1, 0, 1, 0, 0, 0, 0],
            &[0, 128, 1, 0, 0, 0, 1],
            &[0, 128, 1, 1, 0, 4, 1],
            &[0, 128, 1, 0, 0, 128, 1],
        ],
    },
    Kernel {
        name: "latent_split",
        local: &[LARGE],
        loads: Loads::Nothing,
        constants: &["SELECT", "RANK", "BLOCKS"],
        used: &[&[0, 512, 12], &[1, 512, 8]],
    },
    Kernel {
        name: "latent_tile",
        local: &[LARGE],
        loads: Loads::Nothing,
        constants: &["SELECT", "RANK", "QUERIES"],
        used: &[&[0, 512, 32], &[1, 512, 32]],
    },
    // For experts in E8.
    Kernel { name: "rotate", local: &[LARGE], loads: Loads::Nothing, constants: &["NORM"], used: &[&[0], &[2]] },
    Kernel {
        name: "route",
        local: &[STRIPED],
        loads: Loads::Nothing,
        constants: &["K", "EXPERTS", "SCORE", "BIAS", "RENORM", "GROUPS", "TOP_GROUPS", "GROUP_MAX"],
        used: &[
            &[8, 256, 0, 1, 1, 1, 1, 0],
            &[8, 128, 1, 0, 1, 1, 1, 0],
            &[16, 896, 0, 1, 1, 1, 1, 0],
            &[6, 256, 2, 1, 1, 1, 1, 0],
        ],
    },
    Kernel { name: "topk", local: &[LARGE], loads: Loads::Nothing, constants: &["EVERY"], used: &[&[1], &[4]] },
    Kernel {
        name: "vec",
        local: &[LOCAL, STRIPED],
        loads: Loads::Nothing,
        constants: &["NORM", "ROPE", "IN_HALF", "OUT_HALF", "INVERSE", "TO_STATE", "EVERY"],
        used: &[
            &[0, 0, 0, 0, 0, 0, 1],
            &[0, 0, 0, 0, 0, 1, 1],
            &[0, 0, 0, 0, 0, 1, 4],
            &[0, 0, 0, 0, 0, 1, 128],
            &[0, 1, 0, 0, 0, 0, 1],
            &[0, 1, 0, 0, 1, 0, 1],
            &[0, 1, 0, 1, 0, 0, 1],
            &[1, 1, 0, 0, 0, 0, 1],
            &[2, 0, 0, 0, 0, 0, 1],
            &[2, 0, 0, 0, 0, 1, 1],
            &[2, 1, 0, 0, 0, 0, 1],
            &[2, 1, 0, 0, 0, 1, 1],
            &[2, 1, 0, 1, 0, 1, 1],
            &[2, 1, 1, 1, 0, 0, 1],
            &[2, 1, 1, 1, 0, 1, 1],
            &[3, 1, 0, 1, 0, 1, 1],
            &[4, 0, 0, 0, 0, 0, 1],
        ],
    },
];
