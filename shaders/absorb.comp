// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// A query into the latent space: the key rows of kv_b, transposed. Eight latent channels of one head an invocation.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;

#include "params.glsl"
#include "format.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { vec4 y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 w;
    uvec2 s;
    uint heads;
    uint nope;
    uint v_dim;
    uint rank;
    uint q_stride;
    uint q_off;
    uint q_head;
    uint group;
};

void main() {
    uint r = gl_WorkGroupID.y;
    uint blocks = rank / 8;
    uint i = gl_WorkGroupID.x * LOCAL + gl_LocalInvocationIndex;
    if (i >= heads * blocks) return;
    uint head = i / blocks;
    uint b = i % blocks;
    uint first = head * (nope + v_dim);
    uint q_at = r * q_stride + q_off + head * q_head;
    Eight sum = Eight(vec4(0.0), vec4(0.0));
    // nope is a multiple of 8; four rows of the matrix are in flight at a time.
    for (uint k = 0; k < nope; k += 4) {
        Eight c[4];
        float f[4];
        [[unroll]] for (uint j = 0; j < 4; j++) {
            c[j] = codes8(w, (first + k + j) * blocks + b);
            f[j] = q[q_at + k + j] * row_scale(s, first + k + j) * group_scale(w, s, first + k + j, rank, 8 * b, group);
        }
        [[unroll]] for (uint j = 0; j < 4; j++) {
            sum.lo = fma(vec4(f[j]), c[j].lo, sum.lo);
            sum.hi = fma(vec4(f[j]), c[j].hi, sum.hi);
        }
    }
    uint at = 2 * ((r * heads + head) * blocks + b);
    y[at] = sum.lo;
    y[at + 1] = sum.hi;
}
