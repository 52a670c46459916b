// caches: f16
#version 460
// Absorbed latent attention for few rows, split over positions: HEADS heads of a row meet one stretch of its positions
// in a workgroup and leave a sum of values, a largest score and a sum of weights for `latent_merge.comp`. A cache row
// [c | k_rope] is the key of every head, and c its value.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 512;
layout(constant_id = 1) const uint SELECT = 0;
// Constants, since divisions by them would otherwise be a good part of the code.
layout(constant_id = 2) const uint RANK = 512;
// Blocks of HEADS heads that a row has.
layout(constant_id = 3) const uint BLOCKS = 1;

#include "params.glsl"
#include "state.glsl"
#include "cache.glsl"
#include "split.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 2, std430) readonly buffer QRope { vec4 q_rope[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Parts { vec4 parts[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Weights { vec2 weights[]; };
layout(set = 0, binding = 5, std430) readonly buffer Sel { uint sel[]; };
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

const uint HEADS = 8;
const uint C4 = RANK / 4;

void queries_at(uint r, uint head, uint last_head, uint c, out vec4 v[4]) {
    // The same way for all invocations if RANK is a multiple of their steps.
    if (c < C4) {
        uint at = (r * heads + head) * C4 + c;
        [[unroll]] for (uint h = 0; h < 4; h++) v[h] = q[at + min(h, last_head - head) * C4];
    } else {
        uint at = (r * qr_stride + qr_off + head * qr_head) / 4 + c - C4;
        [[unroll]] for (uint h = 0; h < 4; h++) v[h] = q_rope[at + min(h, last_head - head) * (qr_head / 4)];
    }
}

void stage_row(uint r, uint t, uint p);

#define ROW_PARTS PARTS
#define KEYS cache
#define VALUES cache
#define VALUE_AT key_at
#include "stretch.glsl"

void stage_row(uint r, uint t, uint p) {
    if (SELECT == 1) p = sel[r * (sel_k + 1) + 1 + p];
    uint at = whole_addr(row_slot(r), p, cap, RANK + rope) / 4;
    key_at[t / 4][t % 4] = at;
}

void main() {
    uint first_head = gl_WorkGroupID.x % BLOCKS * HEADS;
    uint part = gl_WorkGroupID.x / BLOCKS;
    uint r = gl_WorkGroupID.y;
    uint n = SELECT == 1 ? sel[r * (sel_k + 1)] : row_visible(r);
    uint from = part * stretch_of(n);
    uint last_head = min(first_head + HEADS, heads) - 1;
    // The first part is there even if nothing is in sight.
    if (part > 0 && from >= n) return;
    // A selection of nothing is of scores that are no numbers (topk.comp).
    float total = SELECT == 1 && n == 0 ? uintBitsToFloat(0x7fc00000u) : 0.0;
    attend(r, part, first_head, last_head, C4 + rope / 4, from, min(n, from + stretch_of(n)), total);
}
