// formats: f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = glu(gate_e x, up_e x) for the items of a tile, all of one expert e, by cooperative matrices.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 128;
layout(constant_id = 1) const uint KIND = 0;
// Half of a subgroup's matrices are the gate's, the others those of the same outputs of `up`.
layout(constant_id = 2) const uint FRAGMENTS_M = 2;
layout(constant_id = 3) const uint FRAGMENTS_N = 2;
layout(constant_id = 4) const uint SUBGROUPS_M = 4;
layout(constant_id = 5) const uint SUBGROUPS_N = 1;
layout(constant_id = 6) const uint SIDE = 16;

#define MATRICES
#include "format.glsl"
#include "glu.glsl"
#include "weight.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { uvec4 x[]; };
layout(set = 0, binding = 4, std430) readonly buffer Scales { float scales[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Y { float y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 gate;
    uvec2 up;
    uint inp;
    uint ff;
    uint k;
    uint group;
    float p0;
    float p1;
};

uint item_begin(uint item) { return item / k * (2 * widened(inp) / 8); }

#include "experts_tile.glsl"

const uint OUTS = SIDE * FRAGMENTS_M * SUBGROUPS_M;
const uint PAIRS = FRAGMENTS_M / 2;

uvec3 tile;
uvec4 gate_at;
uvec4 up_at;

uint row_begin(uint r) { return r < tile.z ? begins[r] : ~0u; }

// The first output of pair p of a subgroup's matrices.
uint pair_output(uint subgroup, uint p) { return SIDE * (PAIRS * (SUBGROUPS_M * gl_WorkGroupID.x + subgroup) + p); }

Weight weight_of(uint quad) {
    uint fragment = 4 * quad / SIDE;
    uint m = fragment % FRAGMENTS_M;
    uint first = pair_output(fragment / FRAGMENTS_M, m % PAIRS);
    uvec4 at = m < PAIRS ? gate_at : up_at;
    return quad_of_matrix(at.xy, at.zw, (first + 4 * quad % SIDE) / 4, ff);
}

#define FEW_ROWS tile.z
#define REGIONS 2
#include "coop.glsl"

void main() {
    tile = my_tile();
    if (tile.z == 0) return;
    gate_at = Words4(gate).at[tile.x];
    up_at = Words4(up).at[tile.x];
    prepare_format();
    take_items(tile);
    barrier();
    product(inp, group);
    [[unroll]] for (uint m = 0; m < PAIRS; m++) {
        [[unroll]] for (uint n = 0; n < FRAGMENTS_N; n++) {
            put_down(0, m, n);
            put_down(1, m + PAIRS, n);
            subgroupBarrier();
            uint o0 = pair_output(subgroup_m(), m);
            uint r0 = fragment_row(n);
            [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < SIDE * SIDE; i += gl_SubgroupSize) {
                uint o = o0 + i % SIDE;
                uint row = r0 + i / SIDE;
                if (o >= ff || row >= tile.z) continue;
                uint item = tile_items[row];
                float a = results[region_at(0) + i] * (row_scale(gate_at.zw, o) * scales[item / k]);
                float b = results[region_at(1) + i] * (row_scale(up_at.zw, o) * scales[item / k]);
                y[item * ff + o] = glu(KIND, a, b, p0, p1);
            }
            subgroupBarrier();
        }
    }
}
