#version 460
// Rows in two halves each, for kernels with cooperative matrices: x = scale (high + low), where scale is a power of two
// that brings the row's largest value near the top of what an f16 holds. `high` has eleven bits of a value and `low` the
// eleven behind them; a value 2^14 times smaller than the largest still has all 22. Columns are filled up to 64 with zeros.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 256;

#include "params.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { uvec4 y[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Scales { float scales[]; };

layout(push_constant, std430) uniform Push {
    uint n;
    uint x_stride;
    uint x_off;
};

// Of the subgroups: 256 at most.
shared float largest[LOCAL];

float row_largest(uint at) {
    float m = 0.0;
    for (uint i = gl_LocalInvocationIndex; i < n / 4; i += LOCAL) {
        vec4 v = abs(x[at + i]);
        m = max(m, max(max(v.x, v.y), max(v.z, v.w)));
    }
    m = subgroupMax(m);
    if (subgroupElect()) largest[gl_SubgroupID] = m;
    barrier();
    m = largest[0];
    for (uint i = 1; i < gl_NumSubgroups; i++) m = max(m, largest[i]);
    return m;
}

// The eleven bits that an f16 has, by the bits themselves: NVIDIA's compiler takes what was packed and unpacked for what it was, and
// nothing would be left for the lower half.
vec2 upper(vec2 v) { return uintBitsToFloat((floatBitsToUint(v) + 0x1000u) & 0xffffe000u); }

void main() {
    // A row may have several such vectors, one behind the other.
    uint row = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint at = (gl_WorkGroupID.y * x_stride + x_off + gl_WorkGroupID.x * n) / 4;
    // The exponent as it is stored: the largest value comes to lie in 2^14 .. 2^15. A row of nothing or of subnormals
    // needs no more than a factor that is a number.
    uint e = clamp(floatBitsToUint(row_largest(at)) >> 23, 32u, 254u);
    float up = uintBitsToFloat((127 + 14 + 127 - e) << 23);
    if (gl_LocalInvocationIndex == 0) scales[row] = uintBitsToFloat((e - 14) << 23);
    // Eight columns a load of the matrices, in the order of `decode_halves`.
    uint plane = ((n + 63) & ~63u) / 8;
    for (uint i = gl_LocalInvocationIndex; i < plane; i += LOCAL) {
        bool there = i < n / 8;
        vec4 a = there ? x[at + 2 * i] * up : vec4(0.0);
        vec4 b = there ? x[at + 2 * i + 1] * up : vec4(0.0);
        uvec4 high, low;
        [[unroll]] for (uint k = 0; k < 4; k++) {
            vec2 v = vec2(a[k], b[k]);
            vec2 top = upper(v);
            high[k] = packHalf2x16(top);
            low[k] = packHalf2x16(v - top);
        }
        y[2 * row * plane + i] = high;
        y[(2 * row + 1) * plane + i] = low;
    }
}
