// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// y = glu(Wg x', Wu x'): both matrices meet each loaded input.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint NORM = 0;
layout(constant_id = 2) const uint KIND = 0;
layout(constant_id = 3) const uint RPW = 4;

#include "params.glsl"
#include "format.glsl"
#include "lanes.glsl"
#include "norm.glsl"
#include "glu.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 wg;
    uvec2 sg;
    uvec2 wu;
    uvec2 su;
    uvec2 nw;
    uint inp;
    uint out_;
    uint x_stride;
    uint x_off;
    uint y_stride;
    uint y_off;
    uint group;
    float eps;
    float p0;
    float p1;
};

const uint AT_ONCE = RPW * 32 / LOCAL >= 2 ? 2 : 1;

#define MATS 2
#define OUTS 2
#define ROWS 1
#define STEP step_1
#define DOTS dots_1
#define PICK pick_1
#define BLOCK block_1
#include "glu_linear_block.glsl"
#undef OUTS
#undef ROWS
#undef STEP
#undef DOTS
#undef PICK
#undef BLOCK
#define OUTS 1
#define ROWS 8
#define STEP step_8
#define DOTS dots_8
#define PICK pick_8
#define BLOCK block_8
#include "glu_linear_block.glsl"

void main() {
    count_lanes();
    uint first_row = 8 * gl_WorkGroupID.y;
    if (first_row >= step_rows()) return;
    uint n = min(8, step_rows() - first_row);
    uvec2 mine = subgroup_share(gl_WorkGroupID.x * RPW, RPW, out_);
    if (n == 1) {
        block_1(mine, first_row, n);
    } else {
        block_8(mine, first_row, n);
    }
}
