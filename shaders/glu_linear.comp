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
layout(constant_id = 6) const uint FINE = 0;

#include "params.glsl"
#include "format.glsl"
#if defined(BYTES) && !defined(PLAIN)
#define DIGITS
#endif
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
// In pairs, the gate's and the other's of a row.
const uint RESULTS = 2 * ROWS_MOST;
#define MATS 2

uint input_at(uint row) { return (row * x_stride + x_off) / 4; }

#ifdef DIGITS
const uint BATCH = MANY == 0 ? 2 : 4;
#define BATCH_ROWS (BATCH / 2)
#include "stripes.glsl"
#include "digits.glsl"
#else
#include "stripes.glsl"
#define ROWS 1
#define STEP step_1
#define DOTS dots_1
#define MULTIPLY multiply_1
#include "glu_linear_block.glsl"
#undef ROWS
#undef STEP
#undef DOTS
#undef MULTIPLY
#define ROWS 8
#define STEP step_8
#define DOTS dots_8
#define MULTIPLY multiply_8
#include "glu_linear_block.glsl"
#endif

void main() {
    uint first_row = 8 * gl_WorkGroupID.y;
    // A plan of single rows is never run with none.
    uint n = MANY == 0 ? 1 : min(8, step_rows() - min(first_row, step_rows()));
    uint first = OUTS * gl_WorkGroupID.x;
    uint quad = quad_of(first, out_);
#ifdef DIGITS
    multiply(first_row, n, uvec2[2](wg, wu), uvec2[2](sg, su), nw, quad, inp, group);
#else
    if (MANY == 0 || n == 1) {
        multiply_1(first_row, n, quad);
    } else {
        multiply_8(first_row, n, quad);
    }
#endif
    for (uint i = gl_LocalInvocationIndex; i < OUTS * n; i += LOCAL) {
        uint r = i / OUTS;
        uint at = first + i % OUTS;
        if (at >= out_) continue;
        float f = norm_factor(r, inp, eps);
        float gate = total(2 * r, i % OUTS) * row_scale(sg, at) * f;
        float up = total(2 * r + 1, i % OUTS) * row_scale(su, at) * f;
        precise float v = glu(KIND, gate, up, p0, p1);
        y[(first_row + r) * y_stride + y_off + at] = v;
    }
}
