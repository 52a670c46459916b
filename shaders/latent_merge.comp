#version 460
// The parts of `latent_split.comp` put together. Four channels of a head an invocation.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint SELECT = 0;

#include "params.glsl"
#include "split.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Parts { vec4 parts[]; };
layout(set = 0, binding = 2, std430) readonly buffer Weights { vec2 weights[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 4, std430) readonly buffer Sel { uint sel[]; };

layout(push_constant, std430) uniform Push {
    uint heads;
    uint rank;
    uint sel_k;
};

#include "merge.glsl"

void main() {
    uint r = gl_WorkGroupID.y;
    uint c4 = rank / 4;
    uint i = gl_WorkGroupID.x * LOCAL + gl_LocalInvocationIndex;
    if (i >= heads * c4) return;
    uint count = parts_of(SELECT == 1 ? sel[r * (sel_k + 1)] : row_visible(r));
    y[r * heads * c4 + i] = merge_parts(r, i / c4, i % c4, heads, c4, count);
}
