// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = glu(gate_e x', up_e x') of each chosen expert e: 4 QUADS outputs of one expert a workgroup. With FOLD a workgroup
// finds its expert in the router's logits, and one of each row writes the row's ids and weights. With MANY the first of
// the items (a row's choice of an expert) that share an expert does the work of all, so that its weights are read once.
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
// Not with FOLD.
layout(constant_id = 14) const uint MANY = 0;

#include "params.glsl"
#include "format.glsl"
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

const uint ROWS_MOST = MANY == 0 ? 1 : 8;
const uint RESULTS = 2 * ROWS_MOST;
#include "stripes.glsl"

// The items of this workgroup's expert, in no order: no result depends on it.
shared uint mates[MANY == 0 ? 1 : 8 * K];
shared uint mate_count;
shared uint earlier;

// Finds the items that share expert e with item `mine`. False if one comes before it.
bool take_mates(uint mine, uint e) {
    if (gl_LocalInvocationIndex == 0) {
        mate_count = 0;
        earlier = 0;
    }
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < step_rows() * K; i += LOCAL) {
        if (route[i / K * 2 * K + i % K] != e) continue;
        if (i < mine) {
            atomicOr(earlier, 1);
        } else {
            mates[atomicAdd(mate_count, 1)] = i;
        }
    }
    barrier();
    return earlier == 0;
}

#define MATS 2
#define ROWS 1
#define STEP step_1
#define DOTS dots_1
#define BLOCK block_1
#include "experts_up_block.glsl"
#undef ROWS
#undef STEP
#undef DOTS
#undef BLOCK
#define ROWS 8
#define STEP step_8
#define DOTS dots_8
#define BLOCK block_8
#include "experts_up_block.glsl"

void main() {
    uint r = gl_WorkGroupID.y;
    uint each = (ff + OUTS - 1) / OUTS;
    uint rank = gl_WorkGroupID.x / each;
    uint first = gl_WorkGroupID.x % each * OUTS;
    uint mine = r * K + rank;
    uint e;
    if (FOLD == 1) {
        // The last rank's workgroups find all ranks.
        choose(r, rank + 1, gl_WorkGroupID.x == (K - 1) * each);
        e = chosen[rank];
    } else {
        e = route[r * 2 * K + rank];
    }
    uvec4 g = Words4(gate).at[e];
    uvec4 u = Words4(up).at[e];
    if (MANY == 1 && !take_mates(mine, e)) return;
    prepare_format();
    if (MANY == 0) {
        block_1(g, u, first, mine, 0, 1);
        return;
    }
    for (uint from = 0; from < mate_count; from += 8) {
        uint n = min(8, mate_count - from);
        if (n == 1) {
            block_1(g, u, first, mine, from, n);
        } else {
            block_8(g, u, first, mine, from, n);
        }
    }
}
