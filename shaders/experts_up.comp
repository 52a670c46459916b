// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = glu(gate_e x', up_e x') of each chosen expert e.
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
layout(set = 0, binding = 2, std430) readonly buffer Route { uint route[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { float y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 gate;
    uvec2 up;
    uvec2 nw;
    uint inp;
    uint ff;
    uint k;
    uint x_stride;
    uint x_off;
    uint group;
    float eps;
    float p0;
    float p1;
};

const uint AT_ONCE = RPW * 32 / LOCAL >= 2 ? 2 : 1;

#define MATS 2
#define OUTS 2
#define ROWS 1
#define STEP dots_step
#define DOTS dots
#define PICK pick
#include "dots.glsl"

void main() {
    count_lanes();
    prepare_format();
    uint r = gl_WorkGroupID.y;
    uint x_at[1] = uint[1]((r * x_stride + x_off) / 4);
    // Outputs are numbered through all ranks: a workgroup may hold the end of one and the start of the next.
    uvec2 mine = subgroup_share(gl_WorkGroupID.x * RPW, RPW, k * ff);
    uint count;
    for (uint o = mine.x; o < mine.y; o += count) {
        // The bound is for a driver that runs this once more with every lane off and still loads what looks uniform.
        uint rank = min(o / ff, k - 1);
        uint first = o % ff;
        count = min(AT_ONCE, min(ff - first, mine.y - o));
        uint e = route[r * 2 * k + rank];
        uvec4 g = Words4(gate).at[e];
        uvec4 u = Words4(up).at[e];
        float sums[4];
        dots(1, uvec2[2](g.xy, u.xy), uvec2[2](g.zw, u.zw), nw, first, count, inp, group, x_at, eps, sums);
        for (uint i = lane; i < count; i += lanes) {
            y[r * k * ff + o + i] = glu(KIND, pick(sums, i), pick(sums, 2 + i), p0, p1);
        }
    }
}
