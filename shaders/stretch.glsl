// Attention of up to HEADS heads of a row over one stretch of positions, by a workgroup: what latent_split.comp and
// attn_split.comp share. It leaves a sum of values, a largest score and a sum of weights for `merge.glsl`. The order of all
// sums follows from the positions alone.
//
// The kernel declares LOCAL, HEADS (a multiple of four), C4 (fours of value channels), the caches named KEYS and VALUES
// (of cache.glsl), `heads`, `scale`, `parts` and `weights`, ROW_PARTS (how many parts of a row those have room for), query_at(r, head, c),
// and stage_rows(r, first, count), which fills key_at and value_at; places past `count` repeat the last.

#include "lowest.glsl"

const uint TILE = 64;
// An invocation scores four positions with four heads over every SLICES-th four channels.
const uint PATCHES = (TILE / 4) * (HEADS / 4);
const uint SLICES = LOCAL / PATCHES;
// Steps of channels whose loads are under way together.
const uint AT_ONCE = 2;
// What is summed: four value channels of two heads an item. An invocation has SPAN items, or if there are few, SIDE
// invocations share the positions of an item.
const uint ITEMS = C4 * (HEADS / 2);
const uint SPAN = (ITEMS + LOCAL - 1) / LOCAL;
const uint SIDE = ITEMS >= LOCAL ? 1 : LOCAL / ITEMS > 4 ? 4 : LOCAL / ITEMS;

// Where the rows of a tile begin, in fours.
shared uint key_at[TILE];
shared uint value_at[TILE];
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

// Scores of a patch, over one slice. Heads behind the last repeat it.
void score(uint r, uint first_head, uint last_head, uint width4, uint block, uint slice, out vec4 s[4]) {
    uint p = 4 * (block % (TILE / 4));
    uint head = first_head + 4 * (block / (TILE / 4));
    uint k_at[4];
    [[unroll]] for (uint k = 0; k < 4; k++) {
        k_at[k] = key_at[p + k];
        s[k] = vec4(0.0);
    }
    [[dont_unroll]] for (uint first = slice; first < width4; first += AT_ONCE * SLICES) {
        vec4 v[AT_ONCE][4];
        vec4 key[AT_ONCE][4];
        [[unroll]] for (uint i = 0; i < AT_ONCE; i++) {
            // Steps behind the last channels repeat those, and add nothing.
            uint c = min(first + i * SLICES, width4 - 1);
            bool there = first + i * SLICES < width4;
            [[unroll]] for (uint k = 0; k < 4; k++) key[i][k] = cached(KEYS[k_at[k] + c]);
            [[unroll]] for (uint h = 0; h < 4; h++) {
                v[i][h] = query_at(r, min(head + h, last_head), c);
                if (!there) v[i][h] = vec4(0.0);
            }
        }
        [[unroll]] for (uint i = 0; i < AT_ONCE; i++) score_channels(v[i], key[i], s);
    }
}

// Puts the scores of a tile into shared memory.
void score_tile(uint r, uint first_head, uint last_head, uint width4) {
    uint me = gl_LocalInvocationIndex;
    vec4 s[4];
    score(r, first_head, last_head, width4, me / SLICES, me % SLICES, s);
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

// Adds the values of a tile, four channels of two heads, from every SIDE-th sixteen positions. Those past `count` repeat the
// last with a weight of 0.
void sum_tile(uint count, uint side, uint c, uint head, inout vec4 sum[2]) {
    sum[0] *= decays[head];
    sum[1] *= decays[head + 1];
    [[dont_unroll]] for (uint t = 16 * side; t < count; t += 16 * SIDE) {
        vec4 v[16];
        [[unroll]] for (uint k = 0; k < 16; k++) v[k] = cached(VALUES[value_at[t + k] + c]);
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

// Positions from .. to of part `part`, for heads first_head .. last_head.
void attend(uint r, uint part, uint first_head, uint last_head, uint width4, uint from, uint to) {
    uint me = gl_LocalInvocationIndex;
    uint side = SIDE == 1 ? 0 : me / ITEMS;
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
        stage_rows(r, first, count);
        barrier();
        score_tile(r, first_head, last_head, width4);
        weigh_tile(count);
        [[unroll]] for (uint i = 0; i < SPAN; i++) {
            uint item = SIDE == 1 ? me + i * LOCAL : me % ITEMS;
            if (item < ITEMS && side < SIDE) sum_tile(count, side, item % C4, 2 * (item / C4), sums[i]);
        }
    }
    barrier();
    [[unroll]] for (uint i = 0; i < SPAN; i++) {
        uint item = SIDE == 1 ? me + i * LOCAL : me % ITEMS;
        uint head = first_head + 2 * (item / C4);
        [[unroll]] for (uint h = 0; h < 2; h++) {
            vec4 sum = sums[i][h];
            if (SIDE > 1) {
                slices[me] = sum;
                barrier();
                sum = vec4(0.0);
                for (uint s = 0; s < SIDE; s++) sum += slices[item + s * ITEMS];
                barrier();
            }
            bool mine = item < ITEMS && side == 0 && head + h <= last_head;
            if (mine) parts[((r * ROW_PARTS + part) * heads + head + h) * C4 + item % C4] = sum;
        }
    }
    if (me < HEADS && first_head + me <= last_head) {
        weights[(r * ROW_PARTS + part) * heads + first_head + me] = vec2(tops[me], totals[me]);
    }
}
