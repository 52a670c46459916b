// caches: f16
#version 460
// Softmax attention over one cache of keys and one of values for many rows: up to HEADS of the heads that share a key, of
// several rows, meet the positions in a workgroup.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 128;
layout(constant_id = 1) const uint HEADS = 4;
layout(constant_id = 2) const uint V_DIM = 128;
// Heads by rows of a workgroup.
layout(constant_id = 3) const uint QUERIES = 32;

#include "params.glsl"
#include "state.glsl"
#include "cache.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { vec4 y[]; };
layout(set = 1, binding = 0, std430) readonly buffer Keys { CACHED keys[]; };
layout(set = 1, binding = 1, std430) readonly buffer Values { CACHED values[]; };

layout(push_constant, std430) uniform Push {
    uint heads;
    uint kv_heads;
    uint d;
    uint cap;
    float scale;
};

const uint C4 = V_DIM / 4;
const uint ROWS = QUERIES / HEADS;

// The key and value head of this workgroup, its heads and rows, and the slot that it looks at.
uint kv;
uint first_head;
uint last_head;
uint first_row;
uint last_row;
uint slot;

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
#include "attend.glsl"

void stage_rows(uint first, uint count) {
    for (uint t = gl_LocalInvocationIndex; t < TILE; t += LOCAL) {
        uint p = first + min(t, count - 1);
        key_at[t] = (row_addr(slot, p, cap, kv_heads * d) + kv * d) / 4;
        value_at[t] = (row_addr(slot, p, cap, kv_heads * V_DIM) + kv * V_DIM) / 4;
    }
}

// Whether a query is of a row in the slot.
bool asked(uint query) {
    return query < ROWS * HEADS && query_row(query) <= last_row && row_slot(query_row(query)) == slot;
}

// All rows of the slot; queries of others see nothing, and are not kept.
void attend_slot() {
    uint clear = ~0u;
    uint end = 0;
    for (uint r = first_row; r <= last_row; r++) {
        if (row_slot(r) == slot) {
            clear = min(clear, row_visible(r));
            end = max(end, row_visible(r));
        }
    }
    barrier();
    uint me = gl_LocalInvocationIndex;
    if (me < QUERIES) sees[me] = asked(me) ? row_visible(query_row(me)) : 0;
    attend(d / 4, clear, end, scale);
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
