// caches: f16
#version 460
// Softmax attention over one cache of keys and one of values for few rows, split over positions: up to HEADS of the heads
// that share a key meet one stretch of what a row sees in a workgroup. Each segment of an attention is a dispatch.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 256;
// Constants, since divisions by them would otherwise be a good part of the code.
layout(constant_id = 1) const uint HEADS = 4;
layout(constant_id = 2) const uint V_DIM = 128;
layout(constant_id = 3) const uint SELECT = 0;
layout(constant_id = 4) const uint WINDOW = 0;
layout(constant_id = 5) const uint EVERY = 1;
layout(constant_id = 6) const uint KV_HEADS = 1;
// Heads that share a key.
layout(constant_id = 7) const uint SHARED_BY = 1;

#include "params.glsl"
#include "state.glsl"
#include "cache.glsl"
#include "split.glsl"
#include "sight.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Parts { vec4 parts[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Weights { vec2 weights[]; };
layout(set = 0, binding = 4, std430) readonly buffer Sel { uint sel[]; };
layout(set = 1, binding = 0, std430) readonly buffer Keys { CACHED keys[]; };
layout(set = 1, binding = 1, std430) readonly buffer Values { CACHED values[]; };

layout(push_constant, std430) uniform Push {
    uint d;
    uint cap;
    uint sel_k;
    uint row_parts;
    float scale;
};

const uint C4 = V_DIM / 4;

const uint heads = KV_HEADS * SHARED_BY;
// Blocks of HEADS heads that share one.
const uint BLOCKS = (SHARED_BY + HEADS - 1) / HEADS;

void queries_at(uint r, uint head, uint last_head, uint c, out vec4 v[4]) {
    uint at = (r * heads + head) * (d / 4) + c;
    [[unroll]] for (uint h = 0; h < 4; h++) v[h] = q[at + min(h, last_head - head) * (d / 4)];
}

// The key and value head of this workgroup.
uint kv;

void stage_row(uint r, uint t, uint p);

#define ROW_PARTS row_parts
#define KEYS keys
#define VALUES values
#include "stretch.glsl"

// Only a window may lie in a ring.
uint cached_at(uint r, uint p, uint width) {
    return WINDOW > 0 ? row_addr(row_slot(r), p, cap, width) : whole_addr(row_slot(r), p, cap, width);
}

void stage_row(uint r, uint t, uint p) {
    if (SELECT == 1) p = sel[r * (sel_k + 1) + 1 + p];
    key_at[t / 4][t % 4] = (cached_at(r, p, KV_HEADS * d) + kv * d) / 4;
    value_at[t / 4][t % 4] = (cached_at(r, p, KV_HEADS * V_DIM) + kv * V_DIM) / 4;
}

void main() {
    uint group = gl_WorkGroupID.x % (KV_HEADS * BLOCKS);
    uint part = gl_WorkGroupID.x / (KV_HEADS * BLOCKS);
    uint r = gl_WorkGroupID.y;
    kv = group / BLOCKS;
    uint first_head = kv * SHARED_BY + group % BLOCKS * HEADS;
    uint last_head = min(first_head + HEADS, (kv + 1) * SHARED_BY) - 1;
    uvec2 seen = SELECT == 1 ? uvec2(0, sel[r * (sel_k + 1)]) : sight(r, WINDOW, EVERY);
    uint n = seen.y - seen.x;
    uint from = part * stretch_of(n);
    // The first part is there even if nothing is in sight.
    if (part > 0 && from >= n) return;
    // A selection of nothing where there is something is of scores that are no numbers (topk.comp).
    bool lost = SELECT == 1 && n == 0 && row_visible(r) >= EVERY;
    float total = lost ? uintBitsToFloat(0x7fc00000u) : 0.0;
    attend(r, part, first_head, last_head, d / 4, seen.x + from, seen.x + min(n, from + stretch_of(n)), total);
}
