// caches: f16
#version 460
// scale * sum over heads of w_h max(0, q_h . k_t) for 32 positions t of a row. An invocation takes four positions and four
// heads over every SLICES-th four channels. Queries are rotated as they are staged.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 256;
layout(constant_id = 1) const uint D = 128;
layout(constant_id = 2) const uint ROPE = 0;
layout(constant_id = 3) const uint EVERY = 1;

#include "params.glsl"
#include "state.glsl"
#include "cache.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 2, std430) readonly buffer W { float w[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Scores { float scores[]; };
layout(set = 0, binding = 4, std430) readonly buffer Rope { vec2 rope[]; };
layout(set = 1, binding = 0, std430) readonly buffer Keys { CACHED keys[]; };

layout(push_constant, std430) uniform Push {
    uint heads;
    uint q_stride;
    uint q_off;
    uint q_head;
    uint rope_at;
    uint rope_dims;
    uint w_stride;
    uint w_off;
    uint cap;
    uint scores_stride;
    uint enough;
    float scale;
};

#include "rotated.glsl"

const uint POSITIONS = 32;
const uint D4 = D / 4;
// Heads at a time: their queries take 16 KiB.
const uint HEADS = D > 128 ? 16 : 32;
// Fours of heads and of positions.
const uint HEADS4 = HEADS / 4;
const uint FOURS = POSITIONS / 4;
const uint SLICES = LOCAL / (HEADS4 * FOURS);
// Steps of channels whose loads are under way together.
const uint AT_ONCE = 2;

// A row more than fours of channels, against bank conflicts.
shared vec4 queries[HEADS][D4 + 1];
shared float head_weights[HEADS];
shared vec4 slices[LOCAL];
// [position][four heads]
shared float parts[POSITIONS][HEADS4];

void stage_queries(uint r, uint first) {
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < HEADS * D4; i += LOCAL) {
        uint h = i / D4;
        bool there = first + h < heads;
        uint at = (r * q_stride + q_off + min(first + h, heads - 1) * q_head) / 4;
        vec4 v = rotated(r, at, i % D4);
        queries[h][i % D4] = there ? v : vec4(0.0);
    }
    uint h = gl_LocalInvocationIndex;
    if (h < HEADS) {
        head_weights[h] = first + h < heads ? w[r * w_stride + w_off + first + h] : 0.0;
    }
}

// Products of four heads with four positions over one slice: s is [position][head]. The steps whose loads are under way
// together are multiplied by the same instructions, one after another: there are few, and to read instructions takes longer.
void dots(uint k_at[4], uint head, uint slice, out vec4 s[4]) {
    [[unroll]] for (uint k = 0; k < 4; k++) s[k] = vec4(0.0);
    [[dont_unroll]] for (uint from = slice; from < D4; from += AT_ONCE * SLICES) {
        vec4 key[AT_ONCE][4];
        [[unroll]] for (uint i = 0; i < AT_ONCE; i++) {
            // Steps behind the last channels repeat those, and are not added.
            [[unroll]] for (uint k = 0; k < 4; k++) key[i][k] = cached(keys[k_at[k] + min(from + i * SLICES, D4 - 1)]);
        }
        [[dont_unroll]] for (uint c = from; c < min(from + AT_ONCE * SLICES, D4); c += SLICES) {
            [[unroll]] for (uint h = 0; h < 4; h++) {
                vec4 v = queries[head + h][c];
                [[unroll]] for (uint k = 0; k < 4; k++) {
                    vec4 n = key[0][k];
                    s[k][h] = fma(v.x, n.x, fma(v.y, n.y, fma(v.z, n.z, fma(v.w, n.w, s[k][h]))));
                }
            }
            [[unroll]] for (uint i = 1; i < AT_ONCE; i++) key[i - 1] = key[i];
        }
    }
}

void main() {
    uint r = gl_WorkGroupID.y;
    uint me = gl_LocalInvocationIndex;
    uint first = POSITIONS * gl_WorkGroupID.x;
    uint visible = row_visible(r) / EVERY;
    // So few that all of them will be selected need no scores.
    if (first >= visible || visible <= enough) return;
    uint slice = me % SLICES;
    uint head4 = me / SLICES % HEADS4;
    uint four = me / (SLICES * HEADS4);
    uint k_at[4];
    [[unroll]] for (uint k = 0; k < 4; k++) {
        k_at[k] = whole_addr(row_slot(r), min(first + 4 * four + k, visible - 1), cap, D) / 4;
    }
    float sum = 0.0;
    [[dont_unroll]] for (uint head = 0; head < heads; head += HEADS) {
        stage_queries(r, head);
        barrier();
        vec4 s[4];
        dots(k_at, 4 * head4, slice, s);
        // A position of each four at a time, so that the slices fit.
        [[dont_unroll]] for (uint k = 0; k < 4; k++) {
            slices[me] = s[0];
            s[0] = s[1];
            s[1] = s[2];
            s[2] = s[3];
            barrier();
            if (slice == 0) {
                vec4 dot_ = vec4(0.0);
                [[dont_unroll]] for (uint i = 0; i < SLICES; i++) dot_ += slices[me + i];
                float part = 0.0;
                // Not max(): that may drop a NaN.
                [[unroll]] for (uint h = 0; h < 4; h++) part = fma(head_weights[4 * head4 + h], dot_[h] < 0.0 ? 0.0 : dot_[h], part);
                parts[4 * four + k][head4] = part;
            }
            barrier();
        }
        [[dont_unroll]] for (uint i = 0; me < POSITIONS && i < HEADS4; i++) sum += parts[me][i];
    }
    if (me < POSITIONS && first + me < visible) scores[r * scores_stride + first + me] = sum * scale;
}
