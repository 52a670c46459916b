#version 460
// Absorbed latent attention for few rows, split over positions: HEADS heads of a row meet one stretch of its positions
// in a workgroup and leave a sum of values, a largest score and a sum of weights for `latent_merge.comp`. A cache row
// [c | k_rope] is the key of every head, and c its value.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 256;
layout(constant_id = 1) const uint SELECT = 0;

#include "params.glsl"
#include "state.glsl"
#include "split.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 2, std430) readonly buffer QRope { vec4 q_rope[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Parts { vec4 parts[]; };
layout(set = 0, binding = 4, std430) writeonly buffer Weights { vec2 weights[]; };
layout(set = 0, binding = 5, std430) readonly buffer Sel { uint sel[]; };
layout(set = 1, binding = 0, std430) readonly buffer Cache { vec4 cache[]; };

layout(push_constant, std430) uniform Push {
    uint heads;
    uint rank;
    uint rope;
    uint qr_stride;
    uint qr_off;
    uint qr_head;
    uint cap;
    uint sel_k;
    float scale;
};

const uint HEADS = 8;
const uint TILE = 64;
// An invocation scores four positions with four heads over every SLICES-th four channels.
const uint PATCHES = (TILE / 4) * (HEADS / 4);
const uint SLICES = LOCAL / PATCHES;
// Fours of value channels times groups of four heads that an invocation sums: rank <= 1024.
const uint SPAN = 2 * 256 / LOCAL;
const float LOWEST = -3.4e38;

shared uint rows_at[TILE];
shared vec4 slices[2][LOCAL];
// Scores, then weights: [head][four positions].
shared vec4 scores[HEADS][TILE / 4];
shared float tops[HEADS];
shared float totals[HEADS];
shared float decays[HEADS];

// Scores of a patch, over one slice: [position][head].
void score(uint r, uint first_head, uint block, uint slice, out vec4 s[4]) {
    uint c4 = rank / 4;
    uint width4 = c4 + rope / 4;
    uint p = 4 * (block % (TILE / 4));
    uint head = first_head + 4 * (block / (TILE / 4));
    uint q_at[4];
    uint qr_at[4];
    [[unroll]] for (uint h = 0; h < 4; h++) {
        uint at = min(head + h, heads - 1);
        q_at[h] = (r * heads + at) * c4;
        qr_at[h] = (r * qr_stride + qr_off + at * qr_head) / 4;
    }
    uint k_at[4];
    [[unroll]] for (uint k = 0; k < 4; k++) {
        k_at[k] = rows_at[p + k];
        s[k] = vec4(0.0);
    }
    for (uint c = slice; c < width4; c += SLICES) {
        vec4 key[4];
        [[unroll]] for (uint k = 0; k < 4; k++) key[k] = cache[k_at[k] + c];
        [[unroll]] for (uint h = 0; h < 4; h++) {
            vec4 v = c < c4 ? q[q_at[h] + c] : q_rope[qr_at[h] + c - c4];
            [[unroll]] for (uint k = 0; k < 4; k++) {
                s[k][h] = fma(v.x, key[k].x, fma(v.y, key[k].y, fma(v.z, key[k].z, fma(v.w, key[k].w, s[k][h]))));
            }
        }
    }
}

// Puts the scores of a tile into shared memory.
void score_tile(uint r, uint first_head) {
    uint me = gl_LocalInvocationIndex;
    uint block = me / SLICES;
    vec4 s[4];
    score(r, first_head, block, me % SLICES, s);
    // Two positions of each patch at a time, so that the slices fit.
    [[unroll]] for (uint half_ = 0; half_ < 2; half_++) {
        barrier();
        slices[0][me] = s[2 * half_];
        slices[1][me] = s[2 * half_ + 1];
        barrier();
        for (uint i = me; i < PATCHES * 8; i += LOCAL) {
            uint of = i / 8;
            uint k = i / 4 % 2;
            float sum = 0.0;
            for (uint j = 0; j < SLICES; j++) sum += slices[k][of * SLICES + j][i % 4];
            scores[4 * (of / (TILE / 4)) + i % 4][of % (TILE / 4)][2 * half_ + k] = sum * scale;
        }
    }
    barrier();
}

// Turns the scores of a tile into weights relative to the largest so far. Places past `count` repeat the last score and
// get a weight of 0.
void weigh_tile(uint count) {
    uint h = min(gl_LocalInvocationIndex / (TILE / 4), HEADS - 1);
    uint four = gl_LocalInvocationIndex % (TILE / 4);
    float old = tops[h];
    vec4 most = vec4(old);
    [[unroll]] for (uint i = 0; i < TILE / 4; i++) most = max(most, scores[h][i]);
    float top = max(max(most.x, most.y), max(most.z, most.w));
    vec4 weight = exp(scores[h][four] - top);
    weight = mix(vec4(0.0), weight, lessThan(uvec4(0, 1, 2, 3) + 4 * four, uvec4(count)));
    barrier();
    if (gl_LocalInvocationIndex < HEADS * (TILE / 4)) {
        scores[h][four] = weight;
        if (four == 0) {
            tops[h] = top;
            decays[h] = exp(old - top);
        }
    }
    barrier();
    if (gl_LocalInvocationIndex < HEADS) {
        uint mine = gl_LocalInvocationIndex;
        vec4 sum = vec4(0.0);
        [[unroll]] for (uint i = 0; i < TILE / 4; i++) sum += scores[mine][i];
        totals[mine] = fma(totals[mine], decays[mine], (sum.x + sum.y) + (sum.z + sum.w));
    }
}

void main() {
    uint me = gl_LocalInvocationIndex;
    uint groups = (heads + HEADS - 1) / HEADS;
    uint first_head = gl_WorkGroupID.x % groups * HEADS;
    uint part = gl_WorkGroupID.x / groups;
    uint r = gl_WorkGroupID.y;
    uint slot = row_slot(r);
    uint n = SELECT == 1 ? sel[r * (sel_k + 1)] : row_visible(r);
    uint stretch = stretch_of(n);
    uint from = part * stretch;
    // The first part is there even if nothing is in sight.
    if (part > 0 && from >= n) return;
    uint to = min(n, from + stretch);
    uint c4 = rank / 4;
    if (me < HEADS) {
        tops[me] = LOWEST;
        totals[me] = 0.0;
    }
    // [span][head of four]
    vec4 sums[SPAN][4];
    [[unroll]] for (uint i = 0; i < SPAN; i++) {
        [[unroll]] for (uint h = 0; h < 4; h++) sums[i][h] = vec4(0.0);
    }
    for (uint first = from; first < to; first += TILE) {
        uint count = min(TILE, to - first);
        barrier();
        for (uint t = me; t < TILE; t += LOCAL) {
            uint p = first + min(t, count - 1);
            if (SELECT == 1) p = sel[r * (sel_k + 1) + 1 + p];
            rows_at[t] = row_addr(slot, p, cap, rank + rope) / 4;
        }
        barrier();
        score_tile(r, first_head);
        weigh_tile(count);
        [[unroll]] for (uint i = 0; i < SPAN; i++) {
            uint item = me + i * LOCAL;
            if (item >= c4 * (HEADS / 4)) break;
            uint c = item % c4;
            uint four = item / c4;
            [[unroll]] for (uint h = 0; h < 4; h++) sums[i][h] *= decays[4 * four + h];
            for (uint t = 0; t < count; t += 8) {
                vec4 v[8];
                [[unroll]] for (uint k = 0; k < 8; k++) v[k] = cache[rows_at[t + k] + c];
                [[unroll]] for (uint h = 0; h < 4; h++) {
                    [[unroll]] for (uint k = 0; k < 8; k++) {
                        float w = scores[4 * four + h][(t + k) / 4][k % 4];
                        sums[i][h] = fma(vec4(w), v[k], sums[i][h]);
                    }
                }
            }
        }
    }
    barrier();
    [[unroll]] for (uint i = 0; i < SPAN; i++) {
        uint item = me + i * LOCAL;
        if (item >= c4 * (HEADS / 4)) break;
        uint head = first_head + 4 * (item / c4);
        [[unroll]] for (uint h = 0; h < 4; h++) {
            if (head + h < heads) parts[((r * PARTS + part) * heads + head + h) * c4 + item % c4] = sums[i][h];
        }
    }
    if (me < HEADS && first_head + me < heads) {
        weights[(r * PARTS + part) * heads + first_head + me] = vec2(tops[me], totals[me]);
    }
}
