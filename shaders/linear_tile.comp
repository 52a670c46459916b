// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// y = W x (+ bias) (+ add) for many rows: 64 outputs of 64 rows a workgroup, weights decoded once into shared memory.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 256;
layout(constant_id = 2) const uint BIAS = 0;
layout(constant_id = 3) const uint ADD = 0;
layout(constant_id = 4) const uint GATHER = 0;

#include "params.glsl"
#include "format.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 3, std430) readonly buffer Add { float add[]; };

layout(push_constant, std430) uniform Push {
    uvec2 w;
    uvec2 s;
    uvec2 nw;
    uvec2 bias;
    uint inp;
    uint out_;
    uint x_stride;
    uint x_off;
    uint y_stride;
    uint y_off;
    uint add_stride;
    uint add_off;
    uint group;
    float eps;
};

uint all_rows() { return GATHER == 1 ? step_outputs() : step_rows(); }

const uint BLOCKS = 1;
const uint ROWS = 64;
uint row_begin(uint r) {
    uint row = ROWS * gl_WorkGroupID.y + r;
    if (GATHER == 1) row = output_row(row);
    return row * x_stride + x_off;
}

// A quarter of the invocations stages weights, the others stage inputs meanwhile.
const uint SPLIT = 1;
const uint DECODERS = LOCAL / 4;
#include "tile.glsl"

void main() {
    uint rows = all_rows();
    uint first_row = ROWS * gl_WorkGroupID.y;
    if (first_row >= rows) return;
    uint first = OUTS * gl_WorkGroupID.x;
    vec4 sums[4];
    product(rows - first_row, uvec2[1](w), uvec2[1](s), uint[1](first), out_, inp, group, sums);
    for (uint r = 0; r < 4; r++) {
        uint row = first_row + 4 * patch_row() + r;
        if (row >= rows) break;
        vec4 sum = sum_of(sums, 0, r);
        for (uint k = 0; k < 4; k++) {
            uint o = first + 4 * patch_out() + k;
            if (o >= out_) break;
            float v = (k == 0 ? sum.x : k == 1 ? sum.y : k == 2 ? sum.z : sum.w) * row_scale(s, o);
            if (BIAS == 1) v += Floats(bias).at[o];
            if (ADD == 1) v += add[row * add_stride + add_off + o];
            y[row * y_stride + y_off + o] = v;
        }
    }
}
