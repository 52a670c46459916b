// Attention of up to HEADS heads of a row over one stretch of positions, by a workgroup: what latent_split.comp and
// attn_split.comp share. It leaves a sum of values, a largest score and a sum of weights for `merge.glsl`. The order of all
// sums follows from the positions alone.
//
// The kernel declares LOCAL, HEADS (a multiple of four), C4 (fours of value channels), the caches named KEYS and VALUES
// (of cache.glsl), `heads`, `scale`, `parts` and `weights`, ROW_PARTS (how many parts of a row those have room for),
// queries_at(r, head, last_head, c, v), which loads channels c of four heads, those behind the last repeating it, and
// stage_row(r, t, p), which puts where position p lies into place t of key_at and value_at;
// VALUE_AT is key_at if the values begin there too.

#include "lowest.glsl"

const uint TILE = 64;
// An invocation scores four positions with four heads over every SLICES-th four channels.
const uint PATCHES = (TILE / 4) * (HEADS / 4);
const uint SLICES = LOCAL / PATCHES;
// Positions whose values an invocation loads together. Loops go round often instead of being long: instructions are read
// anew for every dispatch, and for most of them that takes longer than to execute them again.
const uint AT_ONCE = 4;
// What is summed: four value channels of EACH heads an item. An invocation has SPAN items, or if there are few, SIDE
// invocations share the positions of an item.
const uint EACH = C4 * (HEADS / 2) > LOCAL ? 4 : 2;
const uint ITEMS = C4 * (HEADS / EACH);
const uint SPAN = (ITEMS + LOCAL - 1) / LOCAL;
const uint SIDE = ITEMS >= LOCAL ? 1 : LOCAL / ITEMS > 4 ? 4 : LOCAL / ITEMS;

// Where the rows of a tile begin, in fours.
shared uvec4 key_at[TILE / 4];
#ifndef VALUE_AT
#define VALUE_AT value_at
shared uvec4 value_at[TILE / 4];
#endif
// Of each patch a place more than slices, against bank conflicts.
shared vec4 slices[LOCAL + PATCHES];
// Scores, then weights: [head][four positions].
shared vec4 scores[HEADS][TILE / 4];
// What four positions have: the largest score, and in the end the sum of weights.
shared vec4 fours[HEADS][TILE / 16];
shared float decays[HEADS];

// Scores of a patch, over one slice: s is [position][head]. Heads behind the last repeat it.
void score(uint r, uint first_head, uint last_head, uint width4, uint block, uint slice, out vec4 s[4]) {
    uint head = min(first_head + 4 * (block / (TILE / 4)), last_head);
    uvec4 k_at = key_at[block % (TILE / 4)];
    [[unroll]] for (uint k = 0; k < 4; k++) s[k] = vec4(0.0);
    [[dont_unroll]] for (uint c = slice; c < width4; c += SLICES) {
        vec4 key[4];
        vec4 v[4];
        [[unroll]] for (uint k = 0; k < 4; k++) key[k] = cached(KEYS[k_at[k] + c]);
        queries_at(r, head, last_head, c, v);
        [[unroll]] for (uint h = 0; h < 4; h++) {
            [[unroll]] for (uint k = 0; k < 4; k++) {
                s[k][h] = fma(v[h].x, key[k].x, fma(v[h].y, key[k].y, fma(v[h].z, key[k].z, fma(v[h].w, key[k].w, s[k][h]))));
            }
        }
    }
}

// Puts the scores of a tile into shared memory.
void score_tile(uint r, uint first_head, uint last_head, uint width4) {
    uint me = gl_LocalInvocationIndex;
    vec4 s[4];
    score(r, first_head, last_head, width4, me / SLICES, me % SLICES, s);
    uint block = me / 4;
    uint head = 4 * (block / (TILE / 4)) + me % 4;
    // A position of each patch at a time, so that the slices fit.
    [[dont_unroll]] for (uint k = 0; k < 4; k++) {
        slices[me + me / SLICES] = s[0];
        s[0] = s[1];
        s[1] = s[2];
        s[2] = s[3];
        barrier();
        if (block < PATCHES) {
            float sum = 0.0;
            [[dont_unroll]] for (uint j = 0; j < SLICES; j += 4) {
                [[unroll]] for (uint i = 0; i < 4; i++) sum += slices[block * (SLICES + 1) + j + i][me % 4];
            }
            scores[head][block % (TILE / 4)][k] = sum * scale;
        }
        barrier();
    }
}

// Turns the scores of a tile into weights relative to the largest so far. Places past `count` repeat the last score and
// get a weight of 0. The invocations that have four positions of a head keep its largest score and their sum of weights.
void weigh_tile(uint count, inout float top, inout float total) {
    uint h = gl_LocalInvocationIndex / (TILE / 4);
    uint four = gl_LocalInvocationIndex % (TILE / 4);
    vec4 s = scores[min(h, HEADS - 1)][four];
    if (h < HEADS) fours[h][four / 4][four % 4] = max(max(s.x, s.y), max(s.z, s.w));
    barrier();
    if (h < HEADS) {
        vec4 most = vec4(top);
        [[dont_unroll]] for (uint i = 0; i < TILE / 16; i++) most = max(most, fours[h][i]);
        float decay = top;
        top = max(max(most.x, most.y), max(most.z, most.w));
        decay = exp(decay - top);
        s = mix(vec4(0.0), exp(s - top), lessThan(uvec4(0, 1, 2, 3) + 4 * four, uvec4(count)));
        scores[h][four] = s;
        decays[h] = decay;
        total = fma(total, decay, (s.x + s.y) + (s.z + s.w));
    }
    barrier();
}

// Adds the values of a tile, four channels of EACH heads, from every SIDE-th AT_ONCE positions. Those past `count` repeat the
// last with a weight of 0.
void sum_tile(uint count, uint side, uint c, uint head, inout vec4 sum[EACH]) {
    [[unroll]] for (uint h = 0; h < EACH; h++) sum[h] *= decays[head + h];
    [[dont_unroll]] for (uint t = AT_ONCE * side; t < count; t += AT_ONCE * SIDE) {
        vec4 v[AT_ONCE];
        [[unroll]] for (uint k = 0; k < AT_ONCE; k += 4) {
            uvec4 at = VALUE_AT[(t + k) / 4];
            [[unroll]] for (uint j = 0; j < 4; j++) v[k + j] = cached(VALUES[at[j] + c]);
        }
        [[unroll]] for (uint k = 0; k < AT_ONCE; k += 4) {
            [[unroll]] for (uint h = 0; h < EACH; h++) {
                vec4 w = scores[head + h][(t + k) / 4];
                [[unroll]] for (uint j = 0; j < 4; j++) sum[h] = fma(vec4(w[j]), v[k + j], sum[h]);
            }
        }
    }
}

// The sum of an item over its sides, for the first of them. In uniform control flow.
vec4 sides_of(vec4 sum, uint item) {
    slices[gl_LocalInvocationIndex] = sum;
    barrier();
    sum = vec4(0.0);
    [[dont_unroll]] for (uint s = 0; s < SIDE; s++) sum += slices[item + s * ITEMS];
    barrier();
    return sum;
}

// Positions from .. to of part `part`, for heads first_head .. last_head. `total` is what sums of weights begin with.
void attend(uint r, uint part, uint first_head, uint last_head, uint width4, uint from, uint to, float total) {
    uint me = gl_LocalInvocationIndex;
    uint side = SIDE == 1 ? 0 : me / ITEMS;
    float top = LOWEST;
    // [span][head]
    vec4 sums[SPAN][EACH];
    [[unroll]] for (uint i = 0; i < SPAN; i++) {
        [[unroll]] for (uint h = 0; h < EACH; h++) sums[i][h] = vec4(0.0);
    }
    [[dont_unroll]] for (uint first = from; first < to; first += TILE) {
        uint count = min(TILE, to - first);
        barrier();
        if (me < TILE) stage_row(r, me, first + min(me, count - 1));
        barrier();
        score_tile(r, first_head, last_head, width4);
        weigh_tile(count, top, total);
        [[unroll]] for (uint i = 0; i < SPAN; i++) {
            uint item = SIDE == 1 ? me + i * LOCAL : me % ITEMS;
            if (item < ITEMS && side < SIDE) sum_tile(count, side, item % C4, EACH * (item / C4), sums[i]);
        }
    }
    // Where this part of the first head lies.
    uint to_head = (r * ROW_PARTS + part) * heads + first_head;
    [[unroll]] for (uint i = 0; i < SPAN; i++) {
        uint item = SIDE == 1 ? me + i * LOCAL : me % ITEMS;
        uint head = EACH * (item / C4);
        [[dont_unroll]] for (uint h = 0; h < EACH; h++) {
            vec4 sum = sums[i][0];
            [[unroll]] for (uint n = 1; n < EACH; n++) sums[i][n - 1] = sums[i][n];
            if (SIDE > 1) sum = sides_of(sum, item);
            bool mine = item < ITEMS && side == 0 && first_head + head + h <= last_head;
            if (mine) parts[(to_head + head + h) * C4 + item % C4] = sum;
        }
    }
    uint h = me / (TILE / 4);
    uint four = me % (TILE / 4);
    if (h < HEADS) fours[h][four / 4][four % 4] = total;
    barrier();
    if (h < HEADS && four == 0 && first_head + h <= last_head) {
        vec4 all = vec4(0.0);
        [[dont_unroll]] for (uint i = 0; i < TILE / 16; i++) all += fours[h][i];
        weights[to_head + h] = vec2(top, (all.x + all.y) + (all.z + all.w));
    }
}
