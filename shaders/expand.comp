// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// Out of the latent space: the value rows of kv_b, per head. 4 QUADS outputs of up to eight rows a workgroup. With MERGE
// the inputs are the parts of `latent_split.comp`, of one row, and a workgroup's outputs lie in one head.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint MERGE = 0;
layout(constant_id = 2) const uint SELECT = 0;
layout(constant_id = 3) const uint QUADS = 4;
layout(constant_id = 4) const uint DEPTH = 1;
layout(constant_id = 5) const uint MANY = 1;
// A constant, since divisions by it would otherwise be a good part of the code.
layout(constant_id = 6) const uint V_DIM = 128;

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
    uint rank;
    uint group;
    uint sel_k;
};

#include "split.glsl"
#include "lowest.glsl"
// The latent of the head, merged.
shared vec4 merged[MERGE == 0 ? 1 : 256];
#define INPUT(at) (MERGE == 1 ? merged[at] : x[at])

const uint NORM = 0;
const uint ROWS_MOST = MANY == 0 ? 1 : 8;
const uint RESULTS = ROWS_MOST;
#include "stripes.glsl"

// Invocations that share a four of channels to merge, each with every SIDES-th part.
const uint SIDES = 4;
// Of each part: the largest score and the sum of weights.
shared vec2 part_weights[MERGE == 0 ? 1 : PARTS];
shared float side_totals[SIDES];

// Puts the latent of a head into `merged`, in the order of merge.glsl. LOCAL is PARTS or more.
void merge(uint r, uint head) {
    const uint together = LOCAL / SIDES;
    uint me = gl_LocalInvocationIndex;
    uint side = me / together;
    uint c4 = rank / 4;
    uint at = r * PARTS * heads + head;
    // All that there could be are loaded, as nothing has to be known of the row for that.
    vec2 mine = weights[at + min(me, PARTS - 1) * heads];
    uint count = parts_of(SELECT == 1 ? sel[r * (sel_k + 1)] : row_visible(r));
    if (me < PARTS) part_weights[me] = me < count ? mine : vec2(LOWEST, 0.0);
    barrier();
    float top = LOWEST;
    [[dont_unroll]] for (uint p = 0; p < count; p += 4) {
        [[unroll]] for (uint i = 0; i < 4; i++) top = max(top, part_weights[p + i].x);
    }
    [[dont_unroll]] for (uint first = 0; first < c4; first += together) {
        uint c = first + me % together;
        uint x_at = at * c4 + min(c, c4 - 1);
        float total = 0.0;
        vec4 sum = vec4(0.0);
        [[dont_unroll]] for (uint p = side; p < count; p += SIDES) {
            vec2 w = part_weights[p];
            float share = exp(w.x - top);
            total = fma(w.y, share, total);
            sum = fma(x[x_at + p * (heads * c4)], vec4(share), sum);
        }
        parts[me] = sum;
        if (me % together == 0) side_totals[side] = total;
        barrier();
        if (side == 0 && c < c4) {
            total = 0.0;
            sum = vec4(0.0);
            [[dont_unroll]] for (uint s = 0; s < SIDES; s++) {
                total += side_totals[s];
                sum += parts[me + s * together];
            }
            merged[c] = sum * (total == 0.0 ? 0.0 : 1.0 / total);
        }
        barrier();
    }
}

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
    // There are as many workgroups as a step has rows.
    if (MANY == 0) {
        block_1(gl_WorkGroupID.y, 1);
        return;
    }
    uint first_row = 8 * gl_WorkGroupID.y;
    if (first_row >= step_rows()) return;
    uint n = min(8, step_rows() - first_row);
    if (n == 1) {
        block_1(first_row, n);
    } else {
        block_8(first_row, n);
    }
}
