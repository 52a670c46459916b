#version 460
// The rotation behind E8 weights, one block of a vector a workgroup: signs, a Hadamard transform, 1 / sqrt(n).
// `count` vectors a row; block number b of a vector has the length of the b-th lowest set bit of `dim`.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;

#include "params.glsl"
#include "tables.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };

layout(push_constant, std430) uniform Push {
    uint dim;
    uint blocks;
    uint x_stride;
    uint x_off;
};

// The longest block that every device has shared memory for.
const uint LONGEST = 4096;
shared float v[LONGEST];

void main() {
    uint r = gl_WorkGroupID.y;
    uint vector = gl_WorkGroupID.x / blocks;
    uint rest = dim;
    for (uint b = gl_WorkGroupID.x % blocks; b > 0; b--) rest &= rest - 1;
    uint n = rest & (~rest + 1);
    uint at = dim & (n - 1);
    uint from = r * x_stride + x_off + vector * dim + at;
    for (uint i = gl_LocalInvocationIndex; i < n; i += LOCAL) {
        // The signs of all lengths lie behind each other, shortest first: n bits from bit n on.
        uint sign = (E8_SIGNS[(n + i) / 32] >> ((n + i) % 32)) << 31;
        v[i] = uintBitsToFloat(floatBitsToUint(x[from + i]) ^ sign);
    }
    for (uint span = 1; span < n; span *= 2) {
        barrier();
        for (uint i = gl_LocalInvocationIndex; i < n / 2; i += LOCAL) {
            uint a = 2 * i - (i & (span - 1));
            float p = v[a];
            float q = v[a + span];
            v[a] = p + q;
            v[a + span] = p - q;
        }
    }
    barrier();
    float factor = 1.0 / sqrt(float(n));
    uint to = (r * (gl_NumWorkGroups.x / blocks) + vector) * dim + at;
    for (uint i = gl_LocalInvocationIndex; i < n; i += LOCAL) y[to + i] = v[i] * factor;
}
