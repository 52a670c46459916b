// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = sum over ranks of weight * (down_e a): a stripe adds its products of all ranks in rank order, then stripes are added.
// 4 QUADS outputs of all ranks a workgroup; all rows follow each other for the same outputs, so that what they read of an
// expert that they share lies in the cache after the first.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint ADD0 = 0;
layout(constant_id = 2) const uint ADD1 = 0;
layout(constant_id = 3) const uint QUADS = 4;
layout(constant_id = 4) const uint DEPTH = 4;
layout(constant_id = 5) const uint FINE = 0;

#include "params.glsl"
#include "format.glsl"
#if defined(BYTES) && !defined(PLAIN)
#define DIGITS
#endif
#include "norm.glsl"

layout(set = 0, binding = 1, std430) readonly buffer A { vec4 x[]; };
layout(set = 0, binding = 2, std430) readonly buffer Route { uint route[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 4, std430) readonly buffer Add0 { float add0[]; };
layout(set = 0, binding = 5, std430) readonly buffer Add1 { float add1[]; };

layout(push_constant, std430) uniform Push {
    uvec2 table;
    uint ff;
    uint out_;
    uint k;
    uint y_stride;
    uint y_off;
    uint group;
};

const uint NORM = 0;
const uint ROWS_MOST = 1;
const uint RESULTS = 1;
#define MATS 1
#ifdef DIGITS
const uint BATCH = 1;
#include "stripes.glsl"
#include "digits.glsl"
#else
#include "stripes.glsl"
#define ROWS 1
#define STEP dots_step
#define DOTS dots
#include "dots.glsl"
#endif

// The matrix of a row's rank, and what its product counts: the last rank's for those behind it.
void rank_of(uint r, uint rank, out uvec4 e, out float weight) {
    uint at = r * 2 * k + min(rank, k - 1);
    e = Words4(table).at[route[at]];
    weight = uintBitsToFloat(route[at + k]);
}

void main() {
    prepare_format();
    uint r = gl_WorkGroupID.x;
    uint first = OUTS * gl_WorkGroupID.y;
    uint quad = quad_of(first, out_);
    vec4 acc = vec4(0.0);
    uvec4 e, next;
    float weight, next_weight;
    rank_of(r, 0, next, next_weight);
    [[dont_unroll]] for (uint rank = 0; rank < k; rank++) {
        e = next;
        weight = next_weight;
        // On its way while this rank is multiplied.
        rank_of(r, rank + 1, next, next_weight);
        vec4 scales = row_scales(e.zw, quad);
        uint at = (r * k + rank) * ff / 4;
        vec4 sums[1] = vec4[1](vec4(0.0));
#ifdef DIGITS
        add_row(at, uvec2[1](e.xy), uvec2[1](e.zw), uvec2(0), quad, ff, group, sums);
#else
        float squares[1];
        dots(1, uvec2[1](e.xy), uvec2[1](e.zw), uvec2(0), quad, ff, group, uint[1](at), sums, squares);
#endif
        acc = fma(weight * scales, sums[0], acc);
    }
    stage(0, acc);
    collect(0, 1);
    uint me = gl_LocalInvocationIndex;
    if (me >= OUTS || first + me >= out_) return;
    uint at = first + me;
    precise float v = total(0, me);
    if (ADD0 == 1) v += add0[r * out_ + at];
    if (ADD1 == 1) v += add1[r * out_ + at];
    y[r * y_stride + y_off + at] = v;
}
