// formats: f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = down_e a for the items of a tile, all of one expert e, and a slice of the outputs, by cooperative matrices.
// `experts_sum.comp` adds up what an input row's items leave.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 128;
layout(constant_id = 1) const uint FRAGMENTS_M = 2;
layout(constant_id = 2) const uint FRAGMENTS_N = 2;
layout(constant_id = 3) const uint SUBGROUPS_M = 4;
layout(constant_id = 4) const uint SUBGROUPS_N = 1;
layout(constant_id = 5) const uint SIDE = 16;

#define MATRICES
#include "format.glsl"
#include "weight.glsl"

layout(set = 0, binding = 1, std430) readonly buffer A { uvec4 x[]; };
layout(set = 0, binding = 4, std430) readonly buffer Scales { float scales[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Y { float y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 table;
    uint ff;
    uint out_;
    uint from;
    uint slice;
    uint group;
};

uint item_begin(uint item) { return item * (2 * widened(ff) / 8); }

#include "experts_tile.glsl"

const uint OUTS = SIDE * FRAGMENTS_M * SUBGROUPS_M;

uvec3 tile;
uvec4 at;

uint row_begin(uint r) { return r < tile.z ? begins[r] : ~0u; }

Weight weight_of(uint quad) { return quad_of_matrix(at.xy, at.zw, (from + OUTS * gl_WorkGroupID.x) / 4 + quad, out_); }

#define FEW_ROWS tile.z
#define REGIONS 1
#include "coop.glsl"

void main() {
    tile = my_tile();
    if (tile.z == 0) return;
    at = Words4(table).at[tile.x];
    prepare_format();
    take_items(tile);
    barrier();
    product(ff, group);
    [[unroll]] for (uint m = 0; m < FRAGMENTS_M; m++) {
        [[unroll]] for (uint n = 0; n < FRAGMENTS_N; n++) {
            put_down(0, m, n);
            subgroupBarrier();
            uint o0 = OUTS * gl_WorkGroupID.x + SIDE * (subgroup_m() * FRAGMENTS_M + m);
            uint r0 = fragment_row(n);
            [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < SIDE * SIDE; i += gl_SubgroupSize) {
                uint o = o0 + i % SIDE;
                uint row = r0 + i / SIDE;
                if (o >= slice || from + o >= out_ || row >= tile.z) continue;
                uint item = tile_items[row];
                y[item * slice + o] = results[region_at(0) + i] * (row_scale(at.zw, from + o) * scales[item]);
            }
            subgroupBarrier();
        }
    }
}
