// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = glu(gate_e x', up_e x') of each chosen expert e: 4 QUADS outputs of one expert a workgroup. With FOLD a workgroup
// finds its expert in the router's logits, and one of each row writes the row's ids and weights. Workgroups are numbered
// row by row inside a rank, and so that with BY_OUTPUTS all ranks of all rows follow each other for the same outputs: what rows
// read of an expert that they share lies in the cache after the first.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint NORM = 0;
layout(constant_id = 2) const uint KIND = 0;
layout(constant_id = 3) const uint QUADS = 4;
layout(constant_id = 4) const uint DEPTH = 4;
layout(constant_id = 5) const uint K = 1;
layout(constant_id = 6) const uint FOLD = 0;
// Of the router, as in route.comp.
layout(constant_id = 7) const uint EXPERTS = 4;
layout(constant_id = 8) const uint SCORE = 0;
layout(constant_id = 9) const uint BIAS = 0;
layout(constant_id = 10) const uint RENORM = 0;
layout(constant_id = 11) const uint GROUPS = 1;
layout(constant_id = 12) const uint TOP_GROUPS = 1;
layout(constant_id = 13) const uint GROUP_MAX = 0;
layout(constant_id = 14) const uint BY_OUTPUTS = 0;
layout(constant_id = 15) const uint FINE = 0;

#include "params.glsl"
#include "format.glsl"
#if defined(BYTES) && !defined(PLAIN)
#define DIGITS
#endif
#include "norm.glsl"
#include "glu.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 2, std430) readonly buffer Route { uint route[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 4, std430) readonly buffer Z { float z[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Chosen { uint chosen_route[]; };

layout(push_constant, std430) uniform Push {
    uvec2 gate;
    uvec2 up;
    uvec2 nw;
    uvec2 bias;
    uint inp;
    uint ff;
    uint x_stride;
    uint x_off;
    uint group;
    float eps;
    float p0;
    float p1;
    float sum_eps;
    float scale;
};

#include "choose.glsl"

const uint ROWS_MOST = 1;
const uint RESULTS = 2;
#define MATS 2

uint input_at(uint row) { return (row * x_stride + x_off) / 4; }

#ifdef DIGITS
const uint MANY = 0;
const uint BATCH = 2;
#define BATCH_ROWS 1
#include "stripes.glsl"
#include "digits.glsl"
#else
#include "stripes.glsl"
#define ROWS 1
#define STEP dots_step
#define DOTS dots
#include "dots.glsl"
#endif

void main() {
    prepare_format();
    uint r = gl_WorkGroupID.x;
    uint each = (ff + OUTS - 1) / OUTS;
    uint rank = BY_OUTPUTS == 1 ? gl_WorkGroupID.y % K : gl_WorkGroupID.y / each;
    uint first = (BY_OUTPUTS == 1 ? gl_WorkGroupID.y / K : gl_WorkGroupID.y % each) * OUTS;
    // The last rank's workgroups find all ranks.
    if (FOLD == 1) choose(r, rank + 1, rank == K - 1 && first == 0);
    uint e = FOLD == 1 ? chosen[rank] : route[r * 2 * K + rank];
    uvec4 g = Words4(gate).at[e];
    uvec4 u = Words4(up).at[e];
    uint quad = quad_of(first, ff);
#ifdef DIGITS
    multiply(r, 1, uvec2[2](g.xy, u.xy), uvec2[2](g.zw, u.zw), nw, quad, inp, group);
#else
    vec4 sums[2];
    float squares[1];
    uint x_at[1] = uint[1](input_at(r));
    dots(1, uvec2[2](g.xy, u.xy), uvec2[2](g.zw, u.zw), nw, quad, inp, group, x_at, sums, squares);
    stage_squares(0, squares[0]);
    [[unroll]] for (uint m = 0; m < 2; m++) {
        stage(m % BATCH, sums[m]);
        if (m % BATCH == BATCH - 1 || m == 1) collect(m / BATCH * BATCH, m % BATCH + 1);
    }
#endif
    for (uint i = gl_LocalInvocationIndex; i < OUTS && first + i < ff; i += LOCAL) {
        uint at = first + i;
        float f = norm_factor(0, inp, eps);
        y[(r * K + rank) * ff + at] =
            glu(KIND, total(0, i) * row_scale(g.zw, at) * f, total(1, i) * row_scale(u.zw, at) * f, p0, p1);
    }
}
