// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// A query into the latent space: the key rows of kv_b, transposed. Eight latent channels of one head an invocation.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 512;

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

// Eights of channels a workgroup does; as many invocations share an eight as LOCAL has of these.
const uint WIDE = 64;
const uint PARTS = LOCAL / WIDE;

shared vec4 lo[LOCAL];
shared vec4 hi[LOCAL];

// Rows from .. to of the head's matrix. Four are in flight at a time; nope is a multiple of four.
Eight sum_rows(uint head, uint b, uint q_at, uint from, uint to) {
    uint first = head * (nope + v_dim);
    uint blocks = rank / 8;
    Eight sum = Eight(vec4(0.0), vec4(0.0));
    for (uint k = from; k < to; k += 4) {
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
    return sum;
}

void main() {
    uint r = gl_WorkGroupID.y;
    uint me = gl_LocalInvocationIndex;
    uint blocks = rank / 8;
    uint i = gl_WorkGroupID.x * WIDE + me % WIDE;
    uint head = i / blocks;
    bool mine = i < heads * blocks;
    if (mine) {
        // Parts of the rows in order, a multiple of four each.
        uint each = 4 * ((nope / 4 + PARTS - 1) / PARTS);
        uint from = min(nope, me / WIDE * each);
        Eight sum = sum_rows(head, i % blocks, r * q_stride + q_off + head * q_head, from, min(nope, from + each));
        lo[me] = sum.lo;
        hi[me] = sum.hi;
    }
    barrier();
    if (!mine || me >= WIDE) return;
    Eight sum = Eight(lo[me], hi[me]);
    for (uint part = 1; part < PARTS; part++) {
        sum.lo += lo[part * WIDE + me];
        sum.hi += hi[part * WIDE + me];
    }
    uint at = 2 * ((r * heads + head) * blocks + i % blocks);
    y[at] = sum.lo;
    y[at + 1] = sum.hi;
}
