// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = sum over ranks of weight * (down_e a): each expert's product is reduced fully, then added in rank order.
// 4 QUADS outputs of all ranks a workgroup; all rows follow each other for the same outputs, so that what they read of an
// expert that they share lies in the cache after the first.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint ADD0 = 0;
layout(constant_id = 2) const uint ADD1 = 0;
layout(constant_id = 3) const uint QUADS = 4;
layout(constant_id = 4) const uint DEPTH = 4;

#include "params.glsl"
#include "format.glsl"
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
const uint RESULTS = LOCAL >= 512 ? 1 : 512 / LOCAL;
#include "stripes.glsl"

#define MATS 1
#define ROWS 1
#define STEP dots_step
#define DOTS dots
#include "dots.glsl"

void main() {
    prepare_format();
    uint r = gl_WorkGroupID.x;
    uint me = gl_LocalInvocationIndex;
    uint first = OUTS * gl_WorkGroupID.y;
    uint quad = quad_of(first, out_);
    // Outputs that this invocation finishes; a workgroup has at most as many as invocations.
    bool mine = me < OUTS && first + me < out_;
    precise float acc = 0.0;
    for (uint from = 0; from < k; from += BATCH) {
        uint count = min(BATCH, k - from);
        for (uint j = 0; j < count; j++) {
            // The bound is for a driver that runs this once more with every lane off and still loads what looks uniform.
            uvec4 e = Words4(table).at[route[r * 2 * k + min(from + j, k - 1)]];
            uint x_at[1] = uint[1]((r * k + from + j) * ff / 4);
            vec4 sums[1];
            float squares[1];
            dots(1, uvec2[1](e.xy), uvec2[1](e.zw), uvec2(0), quad, ff, group, x_at, sums, squares);
            stage(j, sums[0]);
        }
        collect(0, count);
        for (uint j = 0; mine && j < count; j++) {
            uvec4 e = Words4(table).at[route[r * 2 * k + min(from + j, k - 1)]];
            float weight = uintBitsToFloat(route[r * 2 * k + k + from + j]);
            acc = acc + weight * (total(j, me) * row_scale(e.zw, first + me));
        }
    }
    if (!mine) return;
    uint at = first + me;
    precise float v = acc;
    if (ADD0 == 1) v += add0[r * out_ + at];
    if (ADD1 == 1) v += add1[r * out_ + at];
    y[r * y_stride + y_off + at] = v;
}
