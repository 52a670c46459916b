// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// Out of the latent space: the value rows of kv_b, per head.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint RPW = 8;

#include "params.glsl"
#include "format.glsl"
#include "lanes.glsl"
#include "norm.glsl"

layout(set = 0, binding = 1, std430) readonly buffer L { vec4 x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 w;
    uvec2 s;
    uint heads;
    uint nope;
    uint v_dim;
    uint rank;
    uint group;
};

const uint NORM = 0;
const uint SHARE = RPW * 32 / LOCAL;
const uint AT_ONCE = SHARE >= 4 ? 4 : SHARE >= 2 ? 2 : 1;

#define MATS 1
#define OUTS 4
#define ROWS 1
#define STEP step_1
#define DOTS dots_1
#define PICK pick_1
#define BLOCK block_1
#include "expand_block.glsl"
#undef OUTS
#undef ROWS
#undef STEP
#undef DOTS
#undef PICK
#undef BLOCK
#define OUTS 2
#define ROWS 8
#define STEP step_8
#define DOTS dots_8
#define PICK pick_8
#define BLOCK block_8
#include "expand_block.glsl"

void main() {
    count_lanes();
    uint first_row = 8 * gl_WorkGroupID.y;
    if (first_row >= step_rows()) return;
    uint n = min(8, step_rows() - first_row);
    // Outputs are numbered through all heads: a workgroup may hold the end of one and the start of the next.
    uvec2 mine = subgroup_share(gl_WorkGroupID.x * RPW, RPW, heads * v_dim);
    if (n == 1) {
        block_1(mine, first_row, n);
    } else {
        block_8(mine, first_row, n);
    }
}
