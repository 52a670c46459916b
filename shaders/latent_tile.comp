// caches: f16
#version 460
// Absorbed latent attention for many rows: QUERIES heads of a row meet its positions, or its selection, in a workgroup. A
// cache row [c | k_rope] is the key of every head, and c its value.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 512;
layout(constant_id = 1) const uint SELECT = 0;
layout(constant_id = 2) const uint RANK = 512;
// Heads of a workgroup.
layout(constant_id = 3) const uint QUERIES = 32;

#include "params.glsl"
#include "state.glsl"
#include "cache.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 2, std430) readonly buffer QRope { vec4 q_rope[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 4, std430) readonly buffer Sel { uint sel[]; };
layout(set = 1, binding = 0, std430) readonly buffer Cache { CACHED cache[]; };

layout(push_constant, std430) uniform Push {
    uint heads;
    uint rope;
    uint qr_stride;
    uint qr_off;
    uint qr_head;
    uint cap;
    uint sel_k;
    float scale;
};

const uint C4 = RANK / 4;

uint first_head() { return QUERIES * gl_WorkGroupID.x; }

// Heads behind the last repeat it.
vec4 query_at(uint query, uint c) {
    uint r = gl_WorkGroupID.y;
    uint head = min(first_head() + query, heads - 1);
    if (c < C4) return q[(r * heads + head) * C4 + c];
    return q_rope[(r * qr_stride + qr_off + head * qr_head) / 4 + c - C4];
}

void stage_rows(uint first, uint count);

const bool RING = false;
#define KEYS cache
#define VALUES cache
#include "attend.glsl"

void stage_rows(uint first, uint count) {
    uint r = gl_WorkGroupID.y;
    for (uint t = gl_LocalInvocationIndex; t < TILE; t += LOCAL) {
        uint p = first + min(t, count - 1);
        if (SELECT == 1) p = sel[r * (sel_k + 1) + 1 + p];
        uint at = row_addr(row_slot(r), p, cap, RANK + rope) / 4;
        key_at[t] = at;
        value_at[t] = at;
    }
}

void main() {
    uint r = gl_WorkGroupID.y;
    uint n = SELECT == 1 ? sel[r * (sel_k + 1)] : row_visible(r);
    if (gl_LocalInvocationIndex < QUERIES) sees[gl_LocalInvocationIndex] = n;
    begin();
    attend(C4 + rope / 4, 0, n, uvec2(0, n), scale);
    [[unroll]] for (uint j = 0; j < 8; j++) {
        uint head = first_head() + 8 * value_group() + j;
        [[unroll]] for (uint i = 0; i < SPAN; i++) {
            uint c = value_four(i);
            // A selection of nothing is of scores that are no numbers (topk.comp).
            vec4 made = SELECT == 1 && n == 0 ? vec4(uintBitsToFloat(0x7fc00000u)) : attended(i, j);
            if (head < heads && c < C4) y[(r * heads + head) * C4 + c] = made;
        }
    }
}
