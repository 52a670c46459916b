#version 460
// scale * sum over heads of w_h max(0, q_h . k_t) for 64 positions t of a row. A position per invocation; eight
// heads share each loaded key channel.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;

#include "params.glsl"
#include "state.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 2, std430) readonly buffer W { float w[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Scores { float scores[]; };
layout(set = 1, binding = 0, std430) readonly buffer Keys { vec4 keys[]; };

layout(push_constant, std430) uniform Push {
    uint heads;
    uint d;
    uint w_stride;
    uint w_off;
    uint cap;
    uint scores_stride;
    float scale;
};

const uint POSITIONS = 64;
const uint HEADS = 8;
// d <= 256
shared vec4 queries[HEADS][256 / 4];
shared float head_weights[HEADS];

void main() {
    uint r = gl_WorkGroupID.y;
    uint first = POSITIONS * gl_WorkGroupID.x;
    uint visible = row_visible(r);
    if (first >= visible) return;
    uint end = min(first + POSITIONS, visible);
    uint d4 = d / 4;
    // Every invocation makes the same passes, for the barriers.
    for (uint pass = 0; pass < POSITIONS; pass += LOCAL) {
        uint t = first + pass + gl_LocalInvocationIndex;
        uint at = row_addr(row_slot(r), min(t, end - 1), cap, d) / 4;
        float sum = 0.0;
        for (uint head = 0; head < heads; head += HEADS) {
            barrier();
            for (uint i = gl_LocalInvocationIndex; i < HEADS * d4; i += LOCAL) {
                uint h = head + i / d4;
                queries[i / d4][i % d4] = h < heads ? q[(r * heads + h) * d4 + i % d4] : vec4(0.0);
            }
            for (uint i = gl_LocalInvocationIndex; i < HEADS; i += LOCAL) {
                head_weights[i] = head + i < heads ? w[r * w_stride + w_off + head + i] : 0.0;
            }
            barrier();
            vec4 dots[HEADS];
            [[unroll]] for (uint h = 0; h < HEADS; h++) dots[h] = vec4(0.0);
            for (uint c = 0; c < d4; c++) {
                vec4 key = keys[at + c];
                [[unroll]] for (uint h = 0; h < HEADS; h++) dots[h] = fma(queries[h][c], key, dots[h]);
            }
            [[unroll]] for (uint h = 0; h < HEADS; h++) {
                float dot_ = (dots[h].x + dots[h].y) + (dots[h].z + dots[h].w);
                // Not max(): that may drop a NaN.
                sum = fma(head_weights[h], dot_ < 0.0 ? 0.0 : dot_, sum);
            }
        }
        if (t < end) scores[r * scores_stride + t] = sum * scale;
    }
}
