#version 460
// The step's items, row * k + rank, by expert and within an expert in order, and the tiles that they make: up to 32 items of one
// expert each. A workgroup places the items of EXPERTS experts; the numbers of all experts' items it counts for itself.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 256;

#include "params.glsl"
#include "reduce.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Route { uint route[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Items { uint items[]; };
// The first has their number; then expert, first item, how many.
layout(set = 0, binding = 3, std430) writeonly buffer Tiles { uvec4 tiles[]; };

layout(push_constant, std430) uniform Push {
    uint experts;
    uint k;
};

const uint MAX_EXPERTS = 1024;
const uint ITEMS = 32;
// An invocation has an expert and a stripe of rows.
const uint EXPERTS = 16;
const uint STRIPES = LOCAL / EXPERTS;

shared uint counts[MAX_EXPERTS];
shared uint parts[STRIPES][EXPERTS];

uint tiles_of(uint items) { return (items + ITEMS - 1) / ITEMS; }

// Items of each expert: sums of whole numbers, whose order does not show.
void count_all(uint rows) {
    for (uint e = gl_LocalInvocationIndex; e < MAX_EXPERTS; e += LOCAL) counts[e] = 0;
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < rows * k; i += LOCAL) atomicAdd(counts[route[i + i / k * k]], 1);
    barrier();
}

void main() {
    uint rows = step_rows();
    uint first = EXPERTS * gl_WorkGroupID.x;
    count_all(rows);
    // Items and tiles of the experts below this workgroup's, and tiles of all.
    uvec3 mine = uvec3(0);
    for (uint e = gl_LocalInvocationIndex; e < experts; e += LOCAL) {
        uint t = tiles_of(counts[e]);
        mine += uvec3(e < first ? counts[e] : 0, e < first ? t : 0, t);
    }
    uvec3 sums;
    [[unroll]] for (uint i = 0; i < 3; i++) workgroup_scan(mine[i], sums[i]);
    uint x = gl_LocalInvocationIndex % EXPERTS;
    uint expert = first + x;
    uint item_at = sums.x;
    uint tile_at = 1 + sums.y;
    for (uint e = 0; e < x; e++) {
        item_at += counts[first + e];
        tile_at += tiles_of(counts[first + e]);
    }
    // Each stripe counts its items of the expert, and then puts them behind those of the stripes before it.
    uint stripe = gl_LocalInvocationIndex / EXPERTS;
    uint each = (rows + STRIPES - 1) / STRIPES;
    uint begin = min(stripe * each, rows);
    uint end = min(begin + each, rows);
    uint n = 0;
    for (uint r = begin; r < end; r++) {
        for (uint j = 0; j < k; j++) n += route[r * 2 * k + j] == expert ? 1 : 0;
    }
    parts[stripe][x] = n;
    barrier();
    uint at = item_at;
    for (uint s = 0; s < stripe; s++) at += parts[s][x];
    for (uint r = begin; r < end && n > 0; r++) {
        for (uint j = 0; j < k; j++) {
            if (route[r * 2 * k + j] == expert) items[at++] = r * k + j;
        }
    }
    if (gl_WorkGroupID.x == 0 && gl_LocalInvocationIndex == 0) tiles[0] = uvec4(sums.z, 0, 0, 0);
    if (expert >= experts) return;
    uint all = counts[expert];
    for (uint t = stripe; t < tiles_of(all); t += STRIPES) {
        tiles[tile_at + t] = uvec4(expert, item_at + ITEMS * t, min(ITEMS, all - ITEMS * t), 0);
    }
}
