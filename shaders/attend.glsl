// Softmax attention of a tile of queries over tiles of positions, by a workgroup: what latent_tile.comp and attn_tile.comp
// share. Queries meet keys in chunks of channels and weights meet values in chunks of positions, each staged once in shared
// memory; the sums of values stay in registers. The order of all sums follows from the positions alone.
//
// The kernel declares LOCAL, QUERIES (8, 16 or 32), C4 (fours of value channels, at most 256), the caches named KEYS and VALUES
// (of cache.glsl), query_at(query, c), and stage_rows(first, count), which fills key_at and value_at with where the positions first ..
// first + count of the queries' common list begin; places past `count` repeat the last. It calls `begin`, then for each segment
// fills `sees`, and `starts` if queries may not see the first of the list (RING), and calls `attend`. Where there may be a second
// segment, its caches are KEYS_1 and VALUES_1, and in_first() says which one it is.

#include "lowest.glsl"

const uint TILE = 64;

// Scores: an invocation has eight queries, GROUPS apart, by four positions, TILE / 4 apart, and one of SLICES runs of the
// channels of a chunk.
const uint GROUPS = QUERIES / 8;
const uint PATCHES = GROUPS * (TILE / 4);
const uint SLICES = LOCAL / PATCHES;
// Fours of channels of a chunk, and where its staged rows begin: in different banks.
const uint DEPTH = 8;
const uint STRIDE = DEPTH + 1;
const uint SCORE_LOADS = ((QUERIES + TILE) * DEPTH + LOCAL - 1) / LOCAL;

// Values: an invocation has eight queries, side by side, by SPAN fours of channels, LANES apart.
const uint LANES = LOCAL / GROUPS;
const uint SPAN = (C4 + LANES - 1) / LANES;
// Positions of a chunk, a multiple of four: what fits, and not more than an invocation has registers for.
const uint FITTING = C4 <= 64 ? 16 : C4 <= 128 ? 8 : 4;
const uint CHUNK = FITTING < 4 * GROUPS ? FITTING : 4 * GROUPS;
const uint VALUE_LOADS = (CHUNK * C4 + LOCAL - 1) / LOCAL;

// Weights: SIDES invocations share the positions of a query.
const uint SIDES = LOCAL / QUERIES;

// A chunk: of channels, (QUERIES + TILE) rows; or of positions, CHUNK rows of C4.
shared vec4 stage[1024];
// Scores, then weights: [position][queries in fours], a four more for the banks.
const uint ROW = QUERIES / 4 + 1;
shared vec4 scores[TILE * ROW];
// Where the rows of a tile begin, in fours.
shared uint key_at[TILE];
shared uint value_at[TILE];
// What each query sees of the list: what lies below this, and not below `starts`.
shared uint sees[QUERIES];
shared uint starts[QUERIES];
// Of all tiles so far: largest score and sum of weights. The first is finite from the start, so that no infinity meets another.
shared float tops[QUERIES];
shared float totals[QUERIES];
// What older sums are worth.
shared float decays[QUERIES];
shared float side_tops[LOCAL];
shared float side_totals[LOCAL];

// [span][query of eight]
vec4 sums[SPAN][8];

uint value_group() { return gl_LocalInvocationIndex % GROUPS; }

uint value_four(uint span) { return gl_LocalInvocationIndex / GROUPS + span * LANES; }

#define LOAD_CHANNELS load_channels
#define LOAD_VALUES load_values
#include "attend_loads.glsl"
#ifdef KEYS_1
// The same from the second segment's caches. The branch is around all loads, which so stay under way together.
#undef LOAD_CHANNELS
#undef LOAD_VALUES
#undef KEYS
#undef VALUES
#define LOAD_CHANNELS load_channels_1
#define LOAD_VALUES load_values_1
#define KEYS KEYS_1
#define VALUES VALUES_1
#include "attend_loads.glsl"

void next_channels(uint first, uint width4, out vec4 v[SCORE_LOADS]) {
    if (in_first()) {
        load_channels(first, width4, v);
    } else {
        load_channels_1(first, width4, v);
    }
}

void next_values(uint from, out vec4 v[VALUE_LOADS]) {
    if (in_first()) {
        load_values(from, v);
    } else {
        load_values_1(from, v);
    }
}
#else
#define next_channels load_channels
#define next_values load_values
#endif

void keep_channels(vec4 v[SCORE_LOADS]) {
    [[unroll]] for (uint i = 0; i < SCORE_LOADS; i++) {
        uint item = gl_LocalInvocationIndex + i * LOCAL;
        if (item < (QUERIES + TILE) * DEPTH) stage[item / DEPTH * STRIDE + item % DEPTH] = v[i];
    }
}

// Adds the products of a staged chunk: s is [query][position].
void score_chunk(inout vec4 s[8]) {
    uint patch_ = gl_LocalInvocationIndex % PATCHES;
    uint first = gl_LocalInvocationIndex / PATCHES * (DEPTH / SLICES);
    uint query = patch_ % GROUPS * STRIDE + first;
    uint key = (QUERIES + patch_ / GROUPS) * STRIDE + first;
    [[dont_unroll]] for (uint c = 0; c < DEPTH / SLICES; c++) {
        vec4 k[4];
        [[unroll]] for (uint i = 0; i < 4; i++) k[i] = stage[key + i * (TILE / 4) * STRIDE + c];
        [[unroll]] for (uint j = 0; j < 8; j++) {
            vec4 q = stage[query + j * GROUPS * STRIDE + c];
            [[unroll]] for (uint i = 0; i < 4; i++) {
                s[j][i] = fma(q.x, k[i].x, fma(q.y, k[i].y, fma(q.z, k[i].z, fma(q.w, k[i].w, s[j][i]))));
            }
        }
    }
}

// Adds up the slices, one after another.
void keep_scores(vec4 s[8]) {
    uint patch_ = gl_LocalInvocationIndex % PATCHES;
    for (uint slice = 0; slice < SLICES; slice++) {
        if (gl_LocalInvocationIndex / PATCHES == slice) {
            [[unroll]] for (uint j = 0; j < 8; j++) {
                uint query = patch_ % GROUPS + j * GROUPS;
                [[unroll]] for (uint i = 0; i < 4; i++) {
                    uint at = (patch_ / GROUPS + i * (TILE / 4)) * ROW + query / 4;
                    float score = s[j][i];
                    if (slice > 0) score += scores[at][query % 4];
                    scores[at][query % 4] = score;
                }
            }
        }
        barrier();
    }
}

void score_tile(uint width4) {
    vec4 s[8];
    [[unroll]] for (uint j = 0; j < 8; j++) s[j] = vec4(0.0);
    vec4 next[SCORE_LOADS];
    next_channels(0, width4, next);
    [[dont_unroll]] for (uint first = 0; first < width4; first += DEPTH) {
        barrier();
        keep_channels(next);
        barrier();
        // On their way while this chunk is multiplied.
        if (first + DEPTH < width4) next_channels(first + DEPTH, width4, next);
        score_chunk(s);
    }
    keep_scores(s);
}

// Turns the scores of a tile into weights relative to the largest so far; those of positions that a query does not see are 0.
void weigh_tile(uint first, float scale) {
    uint me = gl_LocalInvocationIndex;
    uint query = me % QUERIES;
    uint side = me / QUERIES;
    uint seen = sees[query] - min(first, sees[query]);
    uint before = RING ? starts[query] - min(first, starts[query]) : 0;
    uint from = side * (TILE / SIDES);
    float old = tops[query];
    float top = LOWEST;
    for (uint t = from; t < from + TILE / SIDES; t++) {
        if (t < seen && t >= before) top = max(top, scores[t * ROW + query / 4][query % 4] * scale);
    }
    side_tops[me] = top;
    barrier();
    top = old;
    for (uint i = 0; i < SIDES; i++) top = max(top, side_tops[i * QUERIES + query]);
    float total = 0.0;
    for (uint t = from; t < from + TILE / SIDES; t++) {
        float weight = t < seen && t >= before ? exp(scores[t * ROW + query / 4][query % 4] * scale - top) : 0.0;
        scores[t * ROW + query / 4][query % 4] = weight;
        total += weight;
    }
    side_totals[me] = total;
    // Exactly 1 where no score is larger: a row's bits do not depend on tiles that only others see.
    float decay = top == old ? 1.0 : exp(old - top);
    if (side == 0) {
        tops[query] = top;
        decays[query] = decay;
    }
    barrier();
    if (side == 0) {
        total = 0.0;
        for (uint i = 0; i < SIDES; i++) total += side_totals[i * QUERIES + query];
        totals[query] = fma(totals[query], decay, total);
    }
}

void keep_values(vec4 v[VALUE_LOADS]) {
    [[unroll]] for (uint i = 0; i < VALUE_LOADS; i++) {
        uint item = gl_LocalInvocationIndex + i * LOCAL;
        if (item < CHUNK * C4) stage[item] = v[i];
    }
}

// Adds a staged value of place t, at row `at`, to the sums of those queries that see it.
void add_seen(uint first, uint t, uint at) {
    [[unroll]] for (uint j = 0; j < 8; j++) {
        uint query = 8 * value_group() + j;
        if (first + t < sees[query] && (!RING || first + t >= starts[query])) {
            float weight = scores[t * ROW + query / 4][j % 4];
            [[unroll]] for (uint i = 0; i < SPAN; i++) {
                sums[i][j] = fma(vec4(weight), stage[at * C4 + min(value_four(i), C4 - 1)], sums[i][j]);
            }
        }
    }
}

// Adds the staged values of `count` places from `from` on, of which all queries see clear.x .. clear.y.
void sum_chunk(uint first, uint from, uint count, uvec2 clear) {
    uint t = 0;
    [[dont_unroll]] for (; RING && t < clear.x; t++) add_seen(first, from + t, t);
    [[dont_unroll]] for (; t + 4 <= clear.y; t += 4) {
        [[unroll]] for (uint k = 0; k < 4; k++) {
            uint at = (from + t + k) * ROW + 2 * value_group();
            vec4 a = scores[at];
            vec4 b = scores[at + 1];
            [[unroll]] for (uint i = 0; i < SPAN; i++) {
                vec4 v = stage[(t + k) * C4 + min(value_four(i), C4 - 1)];
                [[unroll]] for (uint j = 0; j < 4; j++) {
                    sums[i][j] = fma(vec4(a[j]), v, sums[i][j]);
                    sums[i][j + 4] = fma(vec4(b[j]), v, sums[i][j + 4]);
                }
            }
        }
    }
    [[dont_unroll]] for (; t < count; t++) add_seen(first, from + t, t);
}

void sum_tile(uint first, uint count, uvec2 clear) {
    [[unroll]] for (uint j = 0; j < 8; j++) {
        float decay = decays[8 * value_group() + j];
        [[unroll]] for (uint i = 0; i < SPAN; i++) sums[i][j] *= decay;
    }
    vec4 next[VALUE_LOADS];
    next_values(0, next);
    [[dont_unroll]] for (uint from = 0; from < count; from += CHUNK) {
        barrier();
        keep_values(next);
        barrier();
        if (from + CHUNK < count) next_values(from + CHUNK, next);
        uint here = min(CHUNK, count - from);
        sum_chunk(first, from, here, min(uvec2(here), clear - min(uvec2(from), clear)));
    }
}

void begin() {
    if (gl_LocalInvocationIndex < QUERIES) {
        tops[gl_LocalInvocationIndex] = LOWEST;
        totals[gl_LocalInvocationIndex] = 0.0;
    }
    [[unroll]] for (uint i = 0; i < SPAN; i++) {
        [[unroll]] for (uint j = 0; j < 8; j++) sums[i][j] = vec4(0.0);
    }
}

// All queries over the positions from .. end of their list, of which all see clear.x .. clear.y; `from` is a multiple of TILE,
// and a key has width4 fours.
void attend(uint width4, uint from, uint end, uvec2 clear, float scale) {
    for (uint first = from; first < end; first += TILE) {
        uint count = min(TILE, end - first);
        barrier();
        stage_rows(first, count);
        barrier();
        score_tile(width4);
        weigh_tile(first, scale);
        sum_tile(first, count, min(uvec2(count), clear - min(uvec2(first), clear)));
    }
    barrier();
}

// The result of query 8 value_group() + j in the channels of value_four(i), after `attend`. Nothing in sight gives 0.
vec4 attended(uint i, uint j) {
    float total = totals[8 * value_group() + j];
    return sums[i][j] * (total == 0.0 ? 0.0 : 1.0 / total);
}
