#version 460
// The rotation behind E8 weights, one block of a vector a workgroup: signs, a Hadamard transform, 1 / sqrt(n).
// `count` vectors a row; block number b of a vector has the length of the b-th lowest set bit of `dim`. With NORM (0, or 1 for
// the root-mean-square norm of the vector, or 2 for that with weights) it is the norm that is rotated.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint NORM = 0;

#include "params.glsl"
#include "tables.glsl"
#include "address.glsl"
#include "reduce.glsl"
#include "norm.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 nw;
    uint dim;
    uint blocks;
    uint x_stride;
    uint x_off;
    float eps;
};

// The longest block that every device has shared memory for.
const uint LONGEST = 4096;
shared float v[LONGEST];

// Of the whole vector, which each of its blocks' workgroups reads.
float norm_factor(uint from) {
    if (NORM == 0) return 1.0;
    float sum = 0.0;
    for (uint i = gl_LocalInvocationIndex; i < dim; i += LOCAL) sum = fma(x[from + i], x[from + i], sum);
    return inverse_rms(workgroup_sum(sum), dim, eps);
}

void main() {
    uint r = gl_WorkGroupID.y;
    uint vector = gl_WorkGroupID.x / blocks;
    uint rest = dim;
    for (uint b = gl_WorkGroupID.x % blocks; b > 0; b--) rest &= rest - 1;
    uint n = rest & (~rest + 1);
    uint at = dim & (n - 1);
    uint from = r * x_stride + x_off + vector * dim;
    float norm = norm_factor(from);
    for (uint i = gl_LocalInvocationIndex; i < n; i += LOCAL) {
        // The signs of all lengths lie behind each other, shortest first: n bits from bit n on.
        uint sign = (E8_SIGNS[(n + i) / 32] >> ((n + i) % 32)) << 31;
        float value = x[from + at + i] * norm;
        if (NORM == 2) value *= Floats(nw).at[at + i];
        v[i] = uintBitsToFloat(floatBitsToUint(value) ^ sign);
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
