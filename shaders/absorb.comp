// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// A query into the latent space: the key rows of kv_b, transposed. A chunk of latent channels of one head and every
// PARTS-th quad of its rows an invocation.
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

// Chunks of channels a workgroup does; as many invocations share a chunk as LOCAL has of these. Four neighbours have
// the quads of a tile, so that a subgroup reads whole tiles.
const uint WIDE = 32;
const uint PARTS = LOCAL / WIDE;
const uint EIGHTS = CHUNK / 8;

shared vec4 lo[LOCAL];
shared vec4 hi[LOCAL];

void main() {
    uint r = gl_WorkGroupID.y;
    uint me = gl_LocalInvocationIndex;
    uint wide = widened(rank);
    uint chunks = (rank + CHUNK - 1) / CHUNK;
    uint local_chunk = me / 4 % WIDE;
    uint part = me % 4 + 4 * (me / (4 * WIDE));
    uint i = gl_WorkGroupID.x * WIDE + local_chunk;
    uint head = i / chunks;
    uint chunk = i % chunks;
    bool mine = i < heads * chunks;
    Eight sums[EIGHTS];
    [[unroll]] for (uint e = 0; e < EIGHTS; e++) sums[e] = Eight(vec4(0.0), vec4(0.0));
    if (mine) {
        uint first = head * (nope + v_dim) / 4;
        uint q_at = r * q_stride + q_off + head * q_head;
        for (uint t = part; t < nope / 4; t += PARTS) {
            uvec4 f[WORDS];
            fetch(w, s, first + t, wide, chunk, f);
            vec4 factors = row_scales(s, first + t) * group_scales(w, s, first + t, wide, chunk, group);
            [[unroll]] for (uint k = 0; k < 4; k++) {
                vec4 factor = vec4(q[q_at + 4 * t + k] * factors[k]);
                [[unroll]] for (uint e = 0; e < EIGHTS; e++) {
                    Eight c = decode(f, k, e);
                    sums[e].lo = fma(factor, c.lo, sums[e].lo);
                    sums[e].hi = fma(factor, c.hi, sums[e].hi);
                }
            }
        }
    }
    [[unroll]] for (uint e = 0; e < EIGHTS; e++) {
        if (e != 0) barrier();
        lo[me] = sums[e].lo;
        hi[me] = sums[e].hi;
        barrier();
        // A chunk is finished by the invocation that has its first part.
        if (!mine || part != 0 || CHUNK * chunk + 8 * e >= rank) continue;
        Eight sum = Eight(vec4(0.0), vec4(0.0));
        for (uint p = 0; p < PARTS; p++) {
            uint at = p % 4 + 4 * (local_chunk + WIDE * (p / 4));
            sum.lo += lo[at];
            sum.hi += hi[at];
        }
        uint at = ((r * heads + head) * rank + CHUNK * chunk + 8 * e) / 4;
        y[at] = sum.lo;
        y[at + 1] = sum.hi;
    }
}
