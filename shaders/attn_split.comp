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
    uint heads;
    uint kv_heads;
    uint d;
    uint cap;
    uint sel_k;
    uint row_parts;
    float scale;
};

const uint C4 = V_DIM / 4;

vec4 query_at(uint r, uint head, uint c) { return q[(r * heads + head) * (d / 4) + c]; }

// The key and value head of this workgroup.
uint kv;

void stage_rows(uint r, uint first, uint count);

#define ROW_PARTS row_parts
#define KEYS keys
#define VALUES values
#include "stretch.glsl"

void stage_rows(uint r, uint first, uint count) {
    for (uint t = gl_LocalInvocationIndex; t < TILE; t += LOCAL) {
        uint p = first + min(t, count - 1);
        if (SELECT == 1) p = sel[r * (sel_k + 1) + 1 + p];
        key_at[t] = (row_addr(row_slot(r), p, cap, kv_heads * d) + kv * d) / 4;
        value_at[t] = (row_addr(row_slot(r), p, cap, kv_heads * V_DIM) + kv * V_DIM) / 4;
    }
}

void main() {
    uint shared_by = heads / kv_heads;
    // Blocks of HEADS heads that share one.
    uint blocks = (shared_by + HEADS - 1) / HEADS;
    uint group = gl_WorkGroupID.x % (kv_heads * blocks);
    uint part = gl_WorkGroupID.x / (kv_heads * blocks);
    uint r = gl_WorkGroupID.y;
    kv = group / blocks;
    uint first_head = kv * shared_by + group % blocks * HEADS;
    uint last_head = min(first_head + HEADS, (kv + 1) * shared_by) - 1;
    uvec2 seen = SELECT == 1 ? uvec2(0, sel[r * (sel_k + 1)]) : sight(r, WINDOW, EVERY);
    uint n = seen.y - seen.x;
    uint from = part * stretch_of(n);
    // The first part is there even if nothing is in sight.
    if (part > 0 && from >= n) return;
    attend(r, part, first_head, last_head, d / 4, seen.x + from, seen.x + min(n, from + stretch_of(n)));
    // A selection of nothing where there is something is of scores that are no numbers (topk.comp).
    uint head = first_head + gl_LocalInvocationIndex;
    bool lost = SELECT == 1 && n == 0 && row_visible(r) >= EVERY;
    if (lost && head <= last_head) weights[r * row_parts * heads + head].y = uintBitsToFloat(0x7fc00000u);
}
