// formats: f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// y = W x (+ bias) (+ add) for many rows, by cooperative matrices.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 128;
layout(constant_id = 1) const uint BIAS = 0;
layout(constant_id = 2) const uint ADD = 0;
layout(constant_id = 3) const uint GATHER = 0;
layout(constant_id = 4) const uint FRAGMENTS_M = 4;
layout(constant_id = 5) const uint FRAGMENTS_N = 2;
layout(constant_id = 6) const uint SUBGROUPS_M = 2;
layout(constant_id = 7) const uint SUBGROUPS_N = 2;
layout(constant_id = 8) const uint SIDE = 16;

#define MATRICES
#include "params.glsl"
#include "format.glsl"
#include "weight.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { uvec4 x[]; };
layout(set = 0, binding = 2, std430) readonly buffer Scales { float scales[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 4, std430) readonly buffer Add { float add[]; };

layout(push_constant, std430) uniform Push {
    uvec2 w;
    uvec2 s;
    uvec2 bias;
    uint inp;
    uint out_;
    uint y_stride;
    uint y_off;
    uint add_stride;
    uint add_off;
    uint group;
};

const uint OUTS = SIDE * FRAGMENTS_M * SUBGROUPS_M;
const uint ROWS = SIDE * FRAGMENTS_N * SUBGROUPS_N;

uint rows() { return GATHER == 1 ? step_outputs() : step_rows(); }
uint input_row(uint r) { return GATHER == 1 ? output_row(r) : r; }
uint rows_there() { return rows() - ROWS * gl_WorkGroupID.y; }

uint row_begin(uint r) {
    return r < rows_there() ? input_row(ROWS * gl_WorkGroupID.y + r) * (2 * widened(inp) / 8) : ~0u;
}

Weight weight_of(uint quad) { return quad_of_matrix(w, s, OUTS / 4 * gl_WorkGroupID.x + quad, out_); }

#define REGIONS 1
#include "coop.glsl"

void main() {
    uint first_row = ROWS * gl_WorkGroupID.y;
    if (first_row >= rows()) return;
    prepare_format();
    product(inp, group);
    uint base = region_at(0);
    [[unroll]] for (uint m = 0; m < FRAGMENTS_M; m++) {
        [[unroll]] for (uint n = 0; n < FRAGMENTS_N; n++) {
            put_down(0, m, n);
            subgroupBarrier();
            uint o0 = OUTS * gl_WorkGroupID.x + SIDE * (subgroup_m() * FRAGMENTS_M + m);
            uint r0 = first_row + fragment_row(n);
            [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < SIDE * SIDE; i += gl_SubgroupSize) {
                uint o = o0 + i % SIDE;
                uint row = r0 + i / SIDE;
                if (o >= out_ || row >= rows()) continue;
                float v = results[base + i] * (row_scale(s, o) * scales[input_row(row)]);
                if (BIAS == 1) v += Floats(bias).at[o];
                if (ADD == 1) v += add[row * add_stride + add_off + o];
                y[row * y_stride + y_off + o] = v;
            }
            subgroupBarrier();
        }
    }
}
