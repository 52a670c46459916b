// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// Out of the latent space: the value rows of kv_b, per head. 4 QUADS outputs of up to eight rows a workgroup. With MERGE
// the inputs are the parts of `latent_split.comp`, of one row, and a workgroup's outputs lie in one head.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint MERGE = 0;
layout(constant_id = 2) const uint SELECT = 0;
layout(constant_id = 3) const uint QUADS = 4;
layout(constant_id = 4) const uint DEPTH = 1;
layout(constant_id = 5) const uint MANY = 1;

#include "params.glsl"
#include "format.glsl"
#include "norm.glsl"

layout(set = 0, binding = 1, std430) readonly buffer L { vec4 x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 3, std430) readonly buffer Weights { vec2 weights[]; };
layout(set = 0, binding = 4, std430) readonly buffer Sel { uint sel[]; };

layout(push_constant, std430) uniform Push {
    uvec2 w;
    uvec2 s;
    uint heads;
    uint nope;
    uint v_dim;
    uint rank;
    uint group;
    uint sel_k;
};

#include "split.glsl"
#include "lowest.glsl"
#define SUMS x
#define WEIGHTS weights
#define LARGEST largest
#define ADD_PARTS add_parts
#include "merge.glsl"

// The latent of the head, merged.
shared vec4 merged[MERGE == 0 ? 1 : 256];
#define INPUT(at) (MERGE == 1 ? merged[at] : x[at])

const uint NORM = 0;
const uint ROWS_MOST = MANY == 0 ? 1 : 8;
const uint RESULTS = ROWS_MOST;
#include "stripes.glsl"

#define MATS 1
#define ROWS 1
#define STEP step_1
#define DOTS dots_1
#define BLOCK block_1
#include "expand_block.glsl"
#undef ROWS
#undef STEP
#undef DOTS
#undef BLOCK
#define ROWS 8
#define STEP step_8
#define DOTS dots_8
#define BLOCK block_8
#include "expand_block.glsl"

void main() {
    uint first_row = 8 * gl_WorkGroupID.y;
    if (first_row >= step_rows()) return;
    uint n = min(8, step_rows() - first_row);
    if (MANY == 0 || n == 1) {
        block_1(first_row, n);
    } else {
        block_8(first_row, n);
    }
}
