#version 460
// Absorbed latent attention for few rows, split over positions: HEADS heads of a row meet one stretch of its positions
// in a workgroup and leave a sum of values, a largest score and a sum of weights for `latent_merge.comp`. A cache row
// [c | k_rope] is the key of every head, and c its value.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 512;
layout(constant_id = 1) const uint SELECT = 0;
// A constant, since divisions by it would otherwise be a good part of the code.
layout(constant_id = 2) const uint RANK = 512;

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
// Steps of channels whose loads are under way together.
const uint AT_ONCE = 3;
// Fours of value channels, and how many of them, times pairs of heads, an invocation sums.
const uint C4 = RANK / 4;
const uint SPAN = (C4 * (HEADS / 2) + LOCAL - 1) / LOCAL;
const float LOWEST = -3.4e38;

shared uint rows_at[TILE];
shared vec4 slices[LOCAL];
// Scores, then weights: [head][four positions].
shared vec4 scores[HEADS][TILE / 4];
shared float tops[HEADS];
shared float totals[HEADS];
shared float decays[HEADS];

// Adds products of four channels: s is [position][head].
void score_channels(vec4 v[4], vec4 key[4], inout vec4 s[4]) {
    [[unroll]] for (uint h = 0; h < 4; h++) {
        [[unroll]] for (uint k = 0; k < 4; k++) {
            s[k][h] = fma(v[h].x, key[k].x, fma(v[h].y, key[k].y, fma(v[h].z, key[k].z, fma(v[h].w, key[k].w, s[k][h]))));
        }
    }
}

// Scores of a patch, over one slice.
void score(uint r, uint first_head, uint block, uint slice, out vec4 s[4]) {
    uint width4 = C4 + rope / 4;
    uint p = 4 * (block % (TILE / 4));
    uint head = first_head + 4 * (block / (TILE / 4));
    uint k_at[4];
    [[unroll]] for (uint k = 0; k < 4; k++) {
        k_at[k] = rows_at[p + k];
        s[k] = vec4(0.0);
    }
    [[dont_unroll]] for (uint first = slice; first < width4; first += AT_ONCE * SLICES) {
        vec4 v[AT_ONCE][4];
        vec4 key[AT_ONCE][4];
        [[unroll]] for (uint i = 0; i < AT_ONCE; i++) {
            // Steps behind the last channels repeat those, and add nothing.
            uint c = min(first + i * SLICES, width4 - 1);
            bool there = first + i * SLICES < width4;
            [[unroll]] for (uint k = 0; k < 4; k++) key[i][k] = cache[k_at[k] + c];
            [[unroll]] for (uint h = 0; h < 4; h++) {
                uint of = min(head + h, heads - 1);
                if (c < C4) {
                    v[i][h] = q[(r * heads + of) * C4 + c];
                } else {
                    v[i][h] = q_rope[(r * qr_stride + qr_off + of * qr_head) / 4 + c - C4];
                }
                if (!there) v[i][h] = vec4(0.0);
            }
        }
        [[unroll]] for (uint i = 0; i < AT_ONCE; i++) score_channels(v[i], key[i], s);
    }
}

// Puts the scores of a tile into shared memory.
void score_tile(uint r, uint first_head) {
    uint me = gl_LocalInvocationIndex;
    vec4 s[4];
    score(r, first_head, me / SLICES, me % SLICES, s);
    // A position of each patch at a time, so that the slices fit.
    [[unroll]] for (uint k = 0; k < 4; k++) {
        slices[me] = s[k];
        barrier();
        if (me < PATCHES * 4) {
            uint block = me / 4;
            float sum = 0.0;
            [[dont_unroll]] for (uint j = 0; j < SLICES; j++) sum += slices[block * SLICES + j][me % 4];
            scores[4 * (block / (TILE / 4)) + me % 4][block % (TILE / 4)][k] = sum * scale;
        }
        barrier();
    }
}

// Turns the scores of a tile into weights relative to the largest so far. Places past `count` repeat the last score and
// get a weight of 0.
void weigh_tile(uint count) {
    uint h = min(gl_LocalInvocationIndex / (TILE / 4), HEADS - 1);
    uint four = gl_LocalInvocationIndex % (TILE / 4);
    float old = tops[h];
    vec4 most = vec4(old);
    [[dont_unroll]] for (uint i = 0; i < TILE / 4; i++) most = max(most, scores[h][i]);
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
        [[dont_unroll]] for (uint i = 0; i < TILE / 4; i++) sum += scores[mine][i];
        totals[mine] = fma(totals[mine], decays[mine], (sum.x + sum.y) + (sum.z + sum.w));
    }
}

// Adds the values of a tile, four channels of two heads. Positions past `count` repeat the last with a weight of 0.
void sum_tile(uint count, uint c, uint head, inout vec4 sum[2]) {
    sum[0] *= decays[head];
    sum[1] *= decays[head + 1];
    [[dont_unroll]] for (uint t = 0; t < count; t += 16) {
        vec4 v[16];
        [[unroll]] for (uint k = 0; k < 16; k++) v[k] = cache[rows_at[t + k] + c];
        [[unroll]] for (uint k = 0; k < 16; k += 4) {
            vec4 a = scores[head][(t + k) / 4];
            vec4 b = scores[head + 1][(t + k) / 4];
            [[unroll]] for (uint j = 0; j < 4; j++) {
                sum[0] = fma(vec4(a[j]), v[k + j], sum[0]);
                sum[1] = fma(vec4(b[j]), v[k + j], sum[1]);
            }
        }
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
    if (me < HEADS) {
        tops[me] = LOWEST;
        totals[me] = 0.0;
    }
    // [span][head of two]
    vec4 sums[SPAN][2];
    [[unroll]] for (uint i = 0; i < SPAN; i++) sums[i][0] = sums[i][1] = vec4(0.0);
    for (uint first = from; first < to; first += TILE) {
        uint count = min(TILE, to - first);
        barrier();
        for (uint t = me; t < TILE; t += LOCAL) {
            uint p = first + min(t, count - 1);
            if (SELECT == 1) p = sel[r * (sel_k + 1) + 1 + p];
            rows_at[t] = row_addr(slot, p, cap, RANK + rope) / 4;
        }
        barrier();
        score_tile(r, first_head);
        weigh_tile(count);
        [[unroll]] for (uint i = 0; i < SPAN; i++) {
            uint item = me + i * LOCAL;
            if (item < C4 * (HEADS / 2)) sum_tile(count, item % C4, 2 * (item / C4), sums[i]);
        }
    }
    barrier();
    [[unroll]] for (uint i = 0; i < SPAN; i++) {
        uint item = me + i * LOCAL;
        uint head = first_head + 2 * (item / C4);
        uint at = ((r * PARTS + part) * heads + head) * C4 + item % C4;
        bool mine = item < C4 * (HEADS / 2);
        if (mine && head < heads) parts[at] = sums[i][0];
        if (mine && head + 1 < heads) parts[at + C4] = sums[i][1];
    }
    if (me < HEADS && first_head + me < heads) {
        weights[(r * PARTS + part) * heads + first_head + me] = vec2(tops[me], totals[me]);
    }
}
