// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// A query into the latent space: the key rows of kv_b, transposed. A chunk of latent channels of one head and every
// PARTS-th quad of its rows an invocation.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 512;
// A constant, since divisions by what follows from it would otherwise be a good part of the code.
layout(constant_id = 1) const uint RANK = 512;

#include "params.glsl"
#include "format.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 w;
    uvec2 s;
    uint heads;
    uint nope;
    uint v_dim;
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

// Of latent channels, in a head.
const uint CHUNKS = (RANK + CHUNK - 1) / CHUNK;

// Eight channels of each invocation: the first four of all, then the others, shifted against bank conflicts.
const uint OTHERS = LOCAL + 1;
shared vec4 eights[2 * LOCAL + 1];

// Quads whose loads are under way together.
const uint AHEAD = WORDS == 1 ? 2 : 1;

// Adds the products of up to AHEAD quads of a head's rows from `t` on, every PARTS-th before `end`. What is loaded is taken one
// row after another by the same instructions: most of them are executed but a few times, and to read them takes longer.
void add_quads(uint first, uint t, uint end, uint chunk, uint q_at, inout Eight sums[EIGHTS]) {
    uvec4 f[AHEAD][WORDS];
    vec4 factors[AHEAD];
    [[unroll]] for (uint n = 0; n < AHEAD; n++) {
        // Behind the last quad the last is repeated, and not added.
        uint at = min(t + n * PARTS, end - 1);
        fetch(w, s, first + at, widened(RANK), chunk, f[n]);
        factors[n] = row_scales(s, first + at) * group_scales(w, s, first + at, widened(RANK), chunk, group);
        [[unroll]] for (uint k = 0; k < 4; k++) factors[n][k] *= q[q_at + 4 * at + k];
    }
    [[dont_unroll]] for (; t < end; t += PARTS) {
        [[dont_unroll]] for (uint k = 0; k < 4; k++) {
            [[unroll]] for (uint e = 0; e < EIGHTS; e++) {
                Eight c = decode(f[0], 0, e);
                sums[e].lo = fma(factors[0].xxxx, c.lo, sums[e].lo);
                sums[e].hi = fma(factors[0].xxxx, c.hi, sums[e].hi);
            }
            factors[0] = factors[0].yzwx;
            [[unroll]] for (uint i = 0; i < WORDS; i++) f[0][i] = f[0][i].yzwx;
        }
        [[unroll]] for (uint n = 1; n < AHEAD; n++) {
            f[n - 1] = f[n];
            factors[n - 1] = factors[n];
        }
    }
}

// Adds the parts of all chunks up, of one eight of their channels: a channel an invocation.
void collect(uint r, uint e) {
    uint me = gl_LocalInvocationIndex;
    uint i = gl_WorkGroupID.x * WIDE + me / 8;
    uint channel = CHUNK * (i % CHUNKS) + 8 * e + me % 8;
    if (me >= 8 * WIDE || i >= heads * CHUNKS || channel >= RANK) return;
    float sum = 0.0;
    [[dont_unroll]] for (uint p = 0; p < PARTS; p += 4) {
        [[unroll]] for (uint n = 0; n < 4; n++) {
            sum += eights[me / 4 % 2 * OTHERS + n + 4 * (me / 8) + WIDE * p][me % 4];
        }
    }
    y[(r * heads + i / CHUNKS) * RANK + channel] = sum;
}

void main() {
    uint r = gl_WorkGroupID.y;
    uint me = gl_LocalInvocationIndex;
    uint part = me % 4 + 4 * (me / (4 * WIDE));
    uint i = gl_WorkGroupID.x * WIDE + me / 4 % WIDE;
    uint head = i / CHUNKS;
    Eight sums[EIGHTS];
    [[unroll]] for (uint e = 0; e < EIGHTS; e++) sums[e] = Eight(vec4(0.0), vec4(0.0));
    if (i < heads * CHUNKS) {
        uint first = head * (nope + v_dim) / 4;
        uint q_at = r * q_stride + q_off + head * q_head;
        uint end = nope / 4;
        [[dont_unroll]] for (uint t = part; t < end; t += AHEAD * PARTS) {
            add_quads(first, t, min(end, t + AHEAD * PARTS), i % CHUNKS, q_at, sums);
        }
    }
    [[unroll]] for (uint e = 0; e < EIGHTS; e++) {
        if (e != 0) barrier();
        eights[me] = sums[e].lo;
        eights[OTHERS + me] = sums[e].hi;
        barrier();
        collect(r, e);
    }
}
