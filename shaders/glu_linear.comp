// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// y = glu(Wg x', Wu x'): both matrices meet each loaded input. 4 QUADS outputs of up to eight rows a workgroup.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint NORM = 0;
layout(constant_id = 2) const uint KIND = 0;
layout(constant_id = 3) const uint QUADS = 4;
layout(constant_id = 4) const uint DEPTH = 4;
layout(constant_id = 5) const uint MANY = 1;

#include "params.glsl"
#include "format.glsl"
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

const uint ROWS_MOST = MANY == 0 ? 1 : 8;
const uint RESULTS = 2 * ROWS_MOST;
#include "stripes.glsl"

#define MATS 2
#define ROWS 1
#define STEP step_1
#define DOTS dots_1
#define BLOCK block_1
#include "glu_linear_block.glsl"
#undef ROWS
#undef STEP
#undef DOTS
#undef BLOCK
#define ROWS 8
#define STEP step_8
#define DOTS dots_8
#define BLOCK block_8
#include "glu_linear_block.glsl"

void main() {
    uint first_row = 8 * gl_WorkGroupID.y;
    if (first_row >= step_rows()) return;
    uint n = min(8, step_rows() - first_row);
    if (MANY == 0 || n == 1) {
        block_1(first_row, n);
    } else {
        block_8(first_row, n);
    }
}
