#version 460
// Softmax attention over one cache of keys and one of values, grouped heads, the last `window` positions if not 0.
// A workgroup per head and row.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;

#include "params.glsl"
#include "state.glsl"
#include "lanes.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { vec4 y[]; };
layout(set = 1, binding = 0, std430) readonly buffer Keys { vec4 keys[]; };
layout(set = 1, binding = 1, std430) readonly buffer Values { vec4 values[]; };

layout(push_constant, std430) uniform Push {
    uint heads;
    uint kv_heads;
    uint d;
    uint v_dim;
    uint k_cap;
    uint v_cap;
    uint window;
    float scale;
};

#define KEYS keys
#define VALUES values
#include "attend.glsl"

void main() {
    count_lanes();
    uint head = gl_WorkGroupID.x;
    uint r = gl_WorkGroupID.y;
    uint slot = row_slot(r);
    uint kv = head / (heads / kv_heads);
    uint end = row_visible(r);
    uint start = window != 0 && end > window ? end - window : 0;
    uint d4 = d / 4;
    uint v4 = v_dim / 4;
    for (uint c = gl_LocalInvocationIndex; c < d4; c += LOCAL) query[c] = q[(r * heads + head) * d4 + c];
    start_sums(v4);
    uint tile = 0;
    for (uint first = start; first < end; first += TILE) {
        uint count = min(TILE, end - first);
        tile ^= 1;
        for (uint t = gl_LocalInvocationIndex; t < TILE; t += LOCAL) {
            uint p = first + min(t, count - 1);
            key_rows[tile][t] = (row_addr(slot, p, k_cap, kv_heads * d) + kv * d) / 4;
            value_rows[tile][t] = (row_addr(slot, p, v_cap, kv_heads * v_dim) + kv * v_dim) / 4;
        }
        attend_tile(tile, count, d4, v4, scale);
    }
    barrier();
    for (uint c = gl_LocalInvocationIndex; c < v4; c += LOCAL) y[(r * heads + head) * v4 + c] = attended(c, v4);
}
