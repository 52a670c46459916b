// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// y = W x' (+ bias) (+ add), x' = x or its root-mean-square norm. 4 QUADS outputs of up to eight rows a workgroup.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint NORM = 0;
layout(constant_id = 2) const uint BIAS = 0;
layout(constant_id = 3) const uint ADD = 0;
layout(constant_id = 4) const uint GATHER = 0;
layout(constant_id = 5) const uint QUADS = 4;
layout(constant_id = 6) const uint DEPTH = 4;
layout(constant_id = 7) const uint MANY = 1;
layout(constant_id = 8) const uint FINE = 0;

#include "params.glsl"
#include "format.glsl"
#if defined(BYTES) && !defined(PLAIN)
#define DIGITS
#endif
#include "norm.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 3, std430) readonly buffer Add { float add[]; };

layout(push_constant, std430) uniform Push {
    uvec2 w;
    uvec2 s;
    uvec2 nw;
    uvec2 bias;
    uint inp;
    uint out_;
    uint x_stride;
    uint x_off;
    uint y_stride;
    uint y_off;
    uint add_stride;
    uint add_off;
    uint group;
    float eps;
};

const uint ROWS_MOST = MANY == 0 ? 1 : 8;
const uint RESULTS = ROWS_MOST;

// The rows that this workgroup has, from `first` on. A plan of single rows is never run with none.
uint rows_from(uint first) {
    if (MANY == 0) return 1;
    uint rows = GATHER == 1 ? step_outputs() : step_rows();
    return min(8, rows - min(first, rows));
}

uint input_at(uint row) {
    if (GATHER == 1 && MANY == 1) row = output_row(row);
    return (row * x_stride + x_off) / 4;
}

#ifdef DIGITS
const uint BATCH = MANY == 0 ? 1 : 4;
#define BATCH_ROWS BATCH
#define MATS 1
#include "stripes.glsl"
#include "digits.glsl"
#else
#include "stripes.glsl"
#define MATS 1
#define ROWS 1
#define STEP step_1
#define DOTS dots_1
#define MULTIPLY multiply_1
#include "linear_block.glsl"
#undef ROWS
#undef STEP
#undef DOTS
#undef MULTIPLY
#define ROWS 8
#define STEP step_8
#define DOTS dots_8
#define MULTIPLY multiply_8
#include "linear_block.glsl"
#endif

void main() {
    uint first_row = 8 * gl_WorkGroupID.y;
    uint n = rows_from(first_row);
    uint first = OUTS * gl_WorkGroupID.x;
    uint quad = quad_of(first, out_);
#ifdef DIGITS
    multiply(first_row, n, uvec2[1](w), uvec2[1](s), nw, quad, inp, group);
#else
    if (MANY == 0 || n == 1) {
        multiply_1(first_row, n, quad);
    } else {
        multiply_8(first_row, n, quad);
    }
#endif
    for (uint i = gl_LocalInvocationIndex; i < OUTS * n; i += LOCAL) {
        uint at = first + i % OUTS;
        if (at >= out_) continue;
        uint row = first_row + i / OUTS;
        precise float v = total(i / OUTS, i % OUTS) * row_scale(s, at) * norm_factor(i / OUTS, inp, eps);
        if (BIAS == 1) v += Floats(bias).at[at];
        if (ADD == 1) v += add[row * add_stride + add_off + at];
        y[row * y_stride + y_off + at] = v;
    }
}
