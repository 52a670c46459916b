// caches: f16
#version 460
// Softmax attention over one or two segments, each a cache of keys and one of values, for many rows: up to HEADS of the heads
// that share a key, of several rows, meet the positions in a workgroup; of one row if it looks at a selection.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 128;
layout(constant_id = 1) const uint HEADS = 4;
layout(constant_id = 2) const uint V_DIM = 128;
// Heads by rows of a workgroup.
layout(constant_id = 3) const uint QUERIES = 32;
// What rows see of each segment. EVERY_1 is 0 if there is no second.
layout(constant_id = 4) const uint SELECT_0 = 0;
layout(constant_id = 5) const uint WINDOW_0 = 0;
layout(constant_id = 6) const uint EVERY_0 = 1;
layout(constant_id = 7) const uint SELECT_1 = 0;
layout(constant_id = 8) const uint WINDOW_1 = 0;
layout(constant_id = 9) const uint EVERY_1 = 0;
layout(constant_id = 10) const uint SINK = 0;

#include "params.glsl"
#include "state.glsl"
#include "address.glsl"
#include "cache.glsl"
#include "sight.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 3, std430) readonly buffer Sel { uint sel[]; };
layout(set = 0, binding = 4, std430) readonly buffer Sel1 { uint sel_1[]; };
layout(set = 1, binding = 0, std430) readonly buffer Keys { CACHED keys[]; };
layout(set = 1, binding = 1, std430) readonly buffer Values { CACHED values[]; };
layout(set = 1, binding = 2, std430) readonly buffer Keys1 { CACHED keys_1[]; };
layout(set = 1, binding = 3, std430) readonly buffer Values1 { CACHED values_1[]; };

layout(push_constant, std430) uniform Push {
    uvec2 sinks;
    uint heads;
    uint kv_heads;
    uint d;
    uint cap;
    uint cap_1;
    uint sel_k;
    uint sel_k_1;
    float scale;
};

const uint C4 = V_DIM / 4;
const uint ROWS = QUERIES / HEADS;
const uint SEGMENTS = EVERY_1 > 0 ? 2 : 1;
const bool RING = WINDOW_0 + WINDOW_1 > 0;

// The key and value head of this workgroup, its heads and rows, and the slot that it looks at.
uint kv;
uint first_head;
uint last_head;
uint first_row;
uint last_row;
uint slot;
// The segment.
uint segment;

bool in_first() { return SEGMENTS == 1 || segment == 0; }

uint query_row(uint query) { return first_row + query / HEADS; }

uint query_head(uint query) { return first_head + query % HEADS; }

// Heads and rows behind the last repeat it.
vec4 query_at(uint query, uint c) {
    uint r = min(query_row(query), last_row);
    uint head = min(query_head(query), last_head);
    return q[(r * heads + head) * (d / 4) + c];
}

void stage_rows(uint first, uint count);

#define KEYS keys
#define VALUES values
#define KEYS_1 keys_1
#define VALUES_1 values_1
#include "attend.glsl"

void stage_rows(uint first, uint count) {
    for (uint t = gl_LocalInvocationIndex; t < TILE; t += LOCAL) {
        uint p = first + min(t, count - 1);
        // A selection is its row's alone.
        if (SELECT_0 == 1 && in_first()) p = sel[first_row * (sel_k + 1) + 1 + min(p, sel_k - 1)];
        if (SELECT_1 == 1 && !in_first()) p = sel_1[first_row * (sel_k_1 + 1) + 1 + min(p, sel_k_1 - 1)];
        uint rows = in_first() ? cap : cap_1;
        key_at[t] = (row_addr(slot, p, rows, kv_heads * d) + kv * d) / 4;
        value_at[t] = (row_addr(slot, p, rows, kv_heads * V_DIM) + kv * V_DIM) / 4;
    }
}

// What a row sees of the segment.
uvec2 seen_by(uint r) {
    if (in_first()) return SELECT_0 == 1 ? uvec2(0, sel[r * (sel_k + 1)]) : sight(r, WINDOW_0, EVERY_0);
    return SELECT_1 == 1 ? uvec2(0, sel_1[r * (sel_k_1 + 1)]) : sight(r, WINDOW_1, EVERY_1);
}

// Whether a query is of a row in the slot.
bool asked(uint query) {
    return query < ROWS * HEADS && query_row(query) <= last_row && row_slot(query_row(query)) == slot;
}

// All rows of the slot over the segment.
void attend_segment() {
    uvec2 all = uvec2(~0u, 0);
    uvec2 clear = uvec2(0, ~0u);
    for (uint r = first_row; r <= last_row; r++) {
        if (row_slot(r) == slot) {
            uvec2 seen = seen_by(r);
            all = uvec2(min(all.x, seen.x), max(all.y, seen.y));
            clear = uvec2(max(clear.x, seen.x), min(clear.y, seen.y));
        }
    }
    uint me = gl_LocalInvocationIndex;
    if (me < QUERIES) {
        uvec2 seen = asked(me) ? seen_by(query_row(me)) : uvec2(0);
        starts[me] = seen.x;
        sees[me] = seen.y;
        // A selection of nothing where there is something is of scores that are no numbers (topk.comp).
        bool chosen = in_first() ? SELECT_0 == 1 : SELECT_1 == 1;
        uint every = in_first() ? EVERY_0 : EVERY_1;
        if (chosen && asked(me) && seen.y == 0 && row_visible(query_row(me)) >= every) totals[me] = uintBitsToFloat(0x7fc00000u);
    }
    attend(d / 4, RING ? all.x / TILE * TILE : 0, all.y, clear, scale);
}

// All rows of the slot; queries of others see nothing, and are not kept.
void attend_slot() {
    barrier();
    begin();
    uint me = gl_LocalInvocationIndex;
    if (SINK == 1 && me < QUERIES) {
        // It is in the sum of weights from the start, and has no value.
        float sink = Floats(sinks).at[min(query_head(me), last_head)];
        tops[me] = max(sink, LOWEST);
        totals[me] = exp(sink - tops[me]);
    }
    [[dont_unroll]] for (segment = 0; segment < SEGMENTS; segment++) attend_segment();
    [[unroll]] for (uint j = 0; j < 8; j++) {
        uint query = 8 * value_group() + j;
        if (asked(query) && query_head(query) <= last_head) {
            [[unroll]] for (uint i = 0; i < SPAN; i++) {
                uint c = value_four(i);
                if (c < C4) y[(query_row(query) * heads + query_head(query)) * C4 + c] = attended(i, j);
            }
        }
    }
}

void main() {
    uint shared_by = heads / kv_heads;
    // Blocks of HEADS heads that share a key.
    uint blocks = (shared_by + HEADS - 1) / HEADS;
    kv = gl_WorkGroupID.x / blocks;
    first_head = kv * shared_by + gl_WorkGroupID.x % blocks * HEADS;
    last_head = min(first_head + HEADS, (kv + 1) * shared_by) - 1;
    first_row = ROWS * gl_WorkGroupID.y;
    last_row = min(first_row + ROWS, step_rows()) - 1;
    // One slot after another: almost always there is one.
    for (uint r = first_row; r <= last_row; r++) {
        slot = row_slot(r);
        bool done = false;
        for (uint before = first_row; before < r; before++) done = done || row_slot(before) == slot;
        if (!done) attend_slot();
    }
}
