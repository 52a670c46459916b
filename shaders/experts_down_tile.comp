// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = down_e a for the items of a tile, all of one expert e, and a slice of the outputs: 128 outputs of up to 32 items a workgroup,
// weights decoded once for all of them. `experts_sum.comp` adds up what an input row's items leave.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 128;

#include "format.glsl"

layout(set = 0, binding = 1, std430) readonly buffer A { vec4 x[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Y { vec4 y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 table;
    uint ff;
    uint out_;
    uint from;
    uint slice;
    uint group;
};

uint item_begin(uint item) { return item * ff; }

// Two runs of outputs: an input that is loaded meets eight weights.
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
    uvec4 e = Words4(table).at[tile.x];
    uint at = BLOCKS * OUTS * gl_WorkGroupID.x;
    uint first = from + at;
    vec4 sums[8];
    product(tile.z, uvec2[2](e.xy, e.xy), uvec2[2](e.zw, e.zw), uint[2](first, first + OUTS), out_, ff, group, sums);
    [[dont_unroll]] for (uint m = 0; m < BLOCKS; m++) {
        uint o = m * OUTS + 4 * patch_out();
        if (first + o >= out_) break;
        vec4 scales = row_scales(e.zw, (first + o) / 4);
        [[dont_unroll]] for (uint r = 0; r < 4; r++) {
            uint row = 4 * patch_row() + r;
            if (row >= tile.z) break;
            y[(tile_items[row] * slice + at + o) / 4] = sum_of(sums, m, r) * scales;
        }
    }
}
