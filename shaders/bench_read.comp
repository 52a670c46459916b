#version 460
// Reads a buffer once and does nothing else: the bandwidth that kernels are measured against.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;

#include "address.glsl"

layout(set = 0, binding = 0, std430) writeonly buffer Y { uint y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 from;
    // Pieces of 16 bytes for each workgroup, a multiple of 8 * LOCAL.
    uint pieces;
};

void main() {
    uint at = gl_WorkGroupID.x * pieces + gl_LocalInvocationIndex;
    uvec4 all = uvec4(0);
    for (uint i = 0; i < pieces; i += 8 * LOCAL) {
        uvec4 v[8];
        for (uint k = 0; k < 8; k++) v[k] = Words4(from).at[at + i + k * LOCAL];
        for (uint k = 0; k < 8; k++) all ^= v[k];
    }
    // Nothing that a compiler could leave out.
    if ((all.x ^ all.y ^ all.z ^ all.w) == 0x2f1b3a57u) y[0] = all.x;
}
