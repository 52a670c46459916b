#version 460
// The parts of `latent_split.comp` put together: each by its sum of weights, relative to the largest score of all.
// Four channels of a head an invocation.
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

void main() {
    uint r = gl_WorkGroupID.y;
    uint c4 = rank / 4;
    uint i = gl_WorkGroupID.x * LOCAL + gl_LocalInvocationIndex;
    if (i >= heads * c4) return;
    uint head = i / c4;
    uint n = parts_of(SELECT == 1 ? sel[r * (sel_k + 1)] : row_visible(r));
    float top = -3.4e38;
    for (uint p = 0; p < n; p++) top = max(top, weights[(r * PARTS + p) * heads + head].x);
    float total = 0.0;
    vec4 sum = vec4(0.0);
    for (uint p = 0; p < n; p++) {
        uint at = (r * PARTS + p) * heads + head;
        vec2 w = weights[at];
        float share = exp(w.x - top);
        total = fma(w.y, share, total);
        sum = fma(parts[at * c4 + i % c4], vec4(share), sum);
    }
    // Nothing in sight gives 0.
    y[r * heads * c4 + i] = sum * (total == 0.0 ? 0.0 : 1.0 / total);
}
