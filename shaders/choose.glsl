// Chooses K of EXPERTS experts for a row of router logits, by descending score with its bias, ties to the lowest id, and weighs
// them. All invocations find keys, the first subgroup takes the largest; what is summed is summed in an order that depends
// on neither's size. route.comp and the experts' first pass share this, so that their ids and weights have the same bits.
//
// The kernel declares LOCAL, the constants K, EXPERTS, SCORE, BIAS, RENORM, GROUPS, TOP_GROUPS and GROUP_MAX, the logits `z`, the
// address `bias`, the numbers `sum_eps` and `scale`, and `chosen_route`: K ids and K weights a row.

#include "lanes.glsl"
#include "order.glsl"

const uint SIGMOID = 0;
const uint SOFTMAX = 1;

// Experts in fours, one load each.
const uint BLOCKS = (EXPERTS + 3) / 4;
// Whether scores are ordered as logits are, so that only who weighs experts needs the sum behind a softmax.
const bool BY_LOGIT = SCORE == SOFTMAX && BIAS == 0 && GROUPS == 1;
// Parts that the largest logit and the exponentials of a softmax are found in.
const uint COLUMNS = 16;

// Keys of experts: GONE if there is none or it is taken, MASKED outside the best groups, else larger for larger scores.
const uint GONE = 0;
const uint MASKED = 1;

shared uvec4 keys[BLOCKS];
shared uint columns[COLUMNS];
shared uint group_keys[GROUPS];
// By rank: ids, and scores without the bias.
shared uint chosen[K];
shared float chosen_scores[K];

// log(1 + e) for 0 <= e <= 1, as 2 atanh(e / (2 + e)): accurate for small e, unlike log().
float log1p_unit(float e) {
    float t = e / (2.0 + e);
    float q = t * t;
    float sum = fma(q, 1.0 / 15.0, 1.0 / 13.0);
    sum = fma(q, sum, 1.0 / 11.0);
    sum = fma(q, sum, 1.0 / 9.0);
    sum = fma(q, sum, 1.0 / 7.0);
    sum = fma(q, sum, 1.0 / 5.0);
    sum = fma(q, sum, 1.0 / 3.0);
    sum = fma(q, sum, 1.0);
    return 2.0 * t * sum;
}

float sqrt_softplus(float v) {
    precise float sum = (v > 0.0 ? v : 0.0) + log1p_unit(exp(-abs(v)));
    return sqrt(sum);
}

// `soft`: the largest logit of the row and the sum of exponentials relative to it.
float score_of(float v, vec2 soft) {
    if (SCORE == SIGMOID) return sigmoid(v);
    if (SCORE == SOFTMAX) return exp(v - soft.x) / soft.y;
    return sqrt_softplus(v);
}

float bias_of(uint e) { return BIAS == 1 ? Floats(bias).at[e] : 0.0; }

uint key_of(float score, float more) {
    if (BIAS == 1) score += more;
    // NaN becomes 2.
    return ordered(score) + 1;
}

// Puts the key of an expert down, from its logit and bias; for a softmax that of its logit, as all must be known to score one.
void put_key(uint e, float v, float more) {
    uint key = SCORE == SOFTMAX ? ordered(v) + 1 : key_of(score_of(v, vec2(0.0)), more);
    keys[e / 4][e % 4] = EXPERTS % 4 == 0 || e < EXPERTS ? key : GONE;
}

// The keys of row r, or of its logits. Those of an invocation are loaded together, and then scored in turn by the same
// instructions: most are executed once, and to read them takes longer.
void stage_keys(uint r) {
    uint me = gl_LocalInvocationIndex;
    // EXPERTS, rounded up to fours: what lies behind is GONE.
    const uint all = 4 * BLOCKS;
    const uint last = EXPERTS - 1;
    if (EXPERTS <= LOCAL) {
        if (me < all) put_key(me, z[r * EXPERTS + min(me, last)], SCORE == SOFTMAX ? 0.0 : bias_of(min(me, last)));
        return;
    }
    [[dont_unroll]] for (uint first = me; first < all; first += 4 * LOCAL) {
        vec4 v;
        vec4 b;
        [[unroll]] for (uint i = 0; i < 4; i++) {
            uint e = min(first + i * LOCAL, last);
            v[i] = z[r * EXPERTS + e];
            b[i] = SCORE == SOFTMAX ? 0.0 : bias_of(e);
        }
        [[dont_unroll]] for (uint e = first; e < min(all, first + 4 * LOCAL); e += LOCAL) {
            put_key(e, v.x, b.x);
            v = v.yzwx;
            b = b.yzwx;
        }
    }
}

float logit(uint e) { return from_ordered(keys[e / 4][e % 4] - 1); }

// The largest staged logit and the sum behind a softmax. Turns keys of logits into those of scores, if they order otherwise.
vec2 soften() {
    uint me = gl_LocalInvocationIndex;
    if (me < COLUMNS) {
        uint most = 0;
        [[dont_unroll]] for (uint e = me; e < EXPERTS; e += COLUMNS) most = max(most, keys[e / 4][e % 4] - 1);
        columns[me] = most;
    }
    barrier();
    uint most = 0;
    [[dont_unroll]] for (uint c = 0; c < COLUMNS; c++) most = max(most, columns[c]);
    float top = from_ordered(most);
    barrier();
    if (me < COLUMNS) {
        float sum = 0.0;
        [[dont_unroll]] for (uint e = me; e < EXPERTS; e += COLUMNS) sum += exp(logit(e) - top);
        columns[me] = floatBitsToUint(sum);
    }
    barrier();
    float sum = 0.0;
    [[dont_unroll]] for (uint c = 0; c < COLUMNS; c++) sum += uintBitsToFloat(columns[c]);
    vec2 soft = vec2(top, sum);
    if (BY_LOGIT) return soft;
    [[dont_unroll]] for (uint e = me; e < EXPERTS; e += LOCAL) keys[e / 4][e % 4] = key_of(score_of(logit(e), soft), bias_of(e));
    barrier();
    return soft;
}

// Masks the experts outside the best groups.
void mask_groups() {
    const uint size = EXPERTS / GROUPS;
    [[dont_unroll]] for (uint g = gl_LocalInvocationIndex; g < GROUPS; g += LOCAL) {
        uint first = 0;
        uint second = 0;
        [[dont_unroll]] for (uint e = g * size; e < (g + 1) * size; e++) {
            uint key = keys[e / 4][e % 4];
            second = max(second, min(first, key));
            first = max(first, key);
        }
        float sum = from_ordered(first - 1);
        if (GROUP_MAX == 0 && size > 1) sum += from_ordered(second - 1);
        group_keys[g] = ordered(sum);
    }
    barrier();
    [[dont_unroll]] for (uint e = gl_LocalInvocationIndex; e < GROUPS * size; e += LOCAL) {
        uint g = e / size;
        uint mine = group_keys[g];
        uint better = 0;
        [[dont_unroll]] for (uint o = 0; o < GROUPS; o++) better += group_keys[o] >= mine + (o < g ? 0 : 1) ? 1 : 0;
        if (better >= TOP_GROUPS) keys[e / 4][e % 4] = MASKED;
    }
    barrier();
}

// The `count` best experts, by one subgroup.
void take(uint count) {
    count_lanes();
    [[dont_unroll]] for (uint j = 0; j < count; j++) {
        uint best = GONE;
        uint mine = ~0u;
        [[dont_unroll]] for (uint b = lane; b < BLOCKS; b += lanes) {
            uvec4 key = keys[b];
            [[unroll]] for (uint i = 0; i < 4; i++) {
                // Of equals the first.
                mine = key[i] > best ? 4 * b + i : mine;
                best = max(best, key[i]);
            }
        }
        uint most = subgroupMax(best);
        uint e = subgroupMin(best == most ? mine : ~0u);
        // Nobody else reads its key again.
        if (mine == e) {
            keys[e / 4][e % 4] = GONE;
            chosen[j] = e;
        }
    }
}

// Writes the ids and weights of row r, of which all K experts have been taken.
void put_route(uint r, vec2 soft) {
    uint me = gl_LocalInvocationIndex;
    [[dont_unroll]] for (uint j = me; j < K; j += LOCAL) {
        chosen_route[r * 2 * K + j] = chosen[j];
        chosen_scores[j] = score_of(z[r * EXPERTS + chosen[j]], soft);
    }
    barrier();
    float factor = scale;
    if (RENORM == 1) {
        float sum = 0.0;
        [[dont_unroll]] for (uint j = 0; j < K; j++) sum += chosen_scores[j];
        factor = scale / (sum + sum_eps);
    }
    [[dont_unroll]] for (uint j = me; j < K; j += LOCAL) {
        chosen_route[r * 2 * K + K + j] = floatBitsToUint(chosen_scores[j] * factor);
    }
}

// `chosen`: the `count` best experts of row r. With `put` that is all K, and they are written. In uniform control flow.
void choose(uint r, uint count, bool put) {
    stage_keys(r);
    barrier();
    vec2 soft = vec2(0.0);
    if (SCORE == SOFTMAX && (put || !BY_LOGIT)) soft = soften();
    if (GROUPS > 1) mask_groups();
    if (gl_SubgroupID == 0) take(count);
    barrier();
    if (put) put_route(r, soft);
}
