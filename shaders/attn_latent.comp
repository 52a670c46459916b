#version 460
// Absorbed latent attention: a cache row [c | k_rope] is the key of every head, and c its value. A workgroup per
// head and row.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint SELECT = 0;

#include "params.glsl"
#include "state.glsl"
#include "lanes.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 2, std430) readonly buffer QRope { vec4 q_rope[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 4, std430) readonly buffer Sel { uint sel[]; };
layout(set = 1, binding = 0, std430) readonly buffer Cache { vec4 cache[]; };

layout(push_constant, std430) uniform Push {
    uint heads;
    uint rank;
    uint rope;
    uint qr_stride;
    uint qr_off;
    uint qr_head;
    uint cap;
    uint sel_k;
    float scale;
};

#define KEYS cache
#define VALUES cache
#include "attend.glsl"

void main() {
    count_lanes();
    uint head = gl_WorkGroupID.x;
    uint r = gl_WorkGroupID.y;
    uint slot = row_slot(r);
    uint n = SELECT == 1 ? sel[r * (sel_k + 1)] : row_visible(r);
    uint c4 = rank / 4;
    uint width4 = (rank + rope) / 4;
    for (uint c = gl_LocalInvocationIndex; c < width4; c += LOCAL) {
        query[c] = c < c4 ? q[(r * heads + head) * c4 + c] : q_rope[(r * qr_stride + qr_off + head * qr_head) / 4 + c - c4];
    }
    start_sums(c4);
    for (uint first = 0; first < n; first += TILE) {
        uint count = min(TILE, n - first);
        uint tile = first / TILE % 2;
        for (uint t = gl_LocalInvocationIndex; t < TILE; t += LOCAL) {
            uint p = first + min(t, count - 1);
            if (SELECT == 1) p = sel[r * (sel_k + 1) + 1 + p];
            uint at = row_addr(slot, p, cap, rank + rope) / 4;
            key_rows[tile][t] = at;
            value_rows[tile][t] = at;
        }
        attend_tile(tile, count, width4, c4, scale);
    }
    barrier();
    for (uint c = gl_LocalInvocationIndex; c < c4; c += LOCAL) y[(r * heads + head) * c4 + c] = attended(c, c4);
}
