// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = sum over ranks of weight * (down_e a): each expert's product is reduced fully, then added in rank order.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint ADD0 = 0;
layout(constant_id = 2) const uint ADD1 = 0;
layout(constant_id = 3) const uint RPW = 8;

#include "params.glsl"
#include "format.glsl"
#include "lanes.glsl"
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
const uint SHARE = RPW * 32 / LOCAL;
const uint AT_ONCE = SHARE >= 4 ? 4 : SHARE >= 2 ? 2 : 1;

#define MATS 1
#define OUTS 4
#define ROWS 1
#define STEP dots_step
#define DOTS dots
#define PICK pick
#include "dots.glsl"

void main() {
    count_lanes();
    prepare_format();
    uint r = gl_WorkGroupID.y;
    uvec2 mine = subgroup_share(gl_WorkGroupID.x * RPW, RPW, out_);
    for (uint o = mine.x; o < mine.y; o += AT_ONCE) {
        uint count = min(AT_ONCE, mine.y - o);
        precise float acc[OUTS] = float[OUTS](0.0, 0.0, 0.0, 0.0);
        for (uint j = 0; j < k; j++) {
            // Bounded for a driver that loads once more with every lane off.
            uvec4 e = Words4(table).at[route[r * 2 * k + min(j, k - 1)]];
            float weight = uintBitsToFloat(route[r * 2 * k + k + j]);
            uint x_at[1] = uint[1]((r * k + j) * ff / 4);
            float sums[OUTS];
            dots(1, uvec2[1](e.xy), uvec2[1](e.zw), uvec2(0), o, count, ff, group, x_at, 0.0, sums);
            [[unroll]] for (uint i = 0; i < AT_ONCE; i++) acc[i] = acc[i] + weight * sums[i];
        }
        for (uint i = lane; i < count; i += lanes) {
            precise float v = pick(acc, i);
            if (ADD0 == 1) v += add0[r * out_ + o + i];
            if (ADD1 == 1) v += add1[r * out_ + o + i];
            y[r * y_stride + y_off + o + i] = v;
        }
    }
}
