// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = glu(gate_e x, up_e x) for the items of a tile, all of one expert e: 64 outputs of up to 32 items a workgroup, weights
// decoded once for all of them.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 128;
layout(constant_id = 1) const uint KIND = 0;

#include "format.glsl"
#include "glu.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Y { vec4 y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 gate;
    uvec2 up;
    uint inp;
    uint ff;
    uint k;
    uint x_stride;
    uint x_off;
    uint group;
    float p0;
    float p1;
};

uint item_begin(uint item) { return item / k * x_stride + x_off; }

// The same outputs of both matrices: an input that is loaded meets eight weights.
const uint BLOCKS = 2;
const uint DECODERS = LOCAL;
const uint SPLIT = CHUNK / 8;
#include "experts_tile.glsl"
uint row_begin(uint r) { return begins[r]; }
#include "tile.glsl"

void main() {
    uvec3 tile = my_tile();
    if (tile.z == 0) return;
    prepare_format();
    take_items(tile);
    uvec4 g = Words4(gate).at[tile.x];
    uvec4 u = Words4(up).at[tile.x];
    uint first = OUTS * gl_WorkGroupID.x;
    vec4 sums[8];
    product(tile.z, uvec2[2](g.xy, u.xy), uvec2[2](g.zw, u.zw), uint[2](first, first), ff, inp, group, sums);
    uint quad = first / 4 + patch_out();
    if (4 * quad >= ff) return;
    vec4 gate_scales = row_scales(g.zw, quad);
    vec4 up_scales = row_scales(u.zw, quad);
    [[dont_unroll]] for (uint r = 0; r < 4; r++) {
        uint row = 4 * patch_row() + r;
        if (row >= tile.z) break;
        vec4 a = sum_of(sums, 0, r) * gate_scales;
        vec4 b = sum_of(sums, 1, r) * up_scales;
        vec4 v;
        [[unroll]] for (uint i = 0; i < 4; i++) v[i] = glu(KIND, a[i], b[i], p0, p1);
        y[tile_items[row] * (ff / 4) + quad] = v;
    }
}
