#version 460
// Chooses k experts a row and weighs them. The rank of an expert is the number of experts that beat it: exact,
// ties to the lowest id, no search. A workgroup per row.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint SCORE = 0;
layout(constant_id = 2) const uint BIAS = 0;
layout(constant_id = 3) const uint RENORM = 0;
layout(constant_id = 4) const uint GROUP_MAX = 0;

#include "params.glsl"
#include "address.glsl"
#include "reduce.glsl"
#include "glu.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Z { float z[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Route { uint route[]; };

layout(push_constant, std430) uniform Push {
    uvec2 bias;
    uint experts;
    uint k;
    uint groups;
    uint top_groups;
    float eps;
    float scale;
};

const uint SIGMOID = 0;
const uint SOFTMAX = 1;
const uint MAX_EXPERTS = 1024;

// Experts in fours, an invocation per four. Keys past the last expert are 0, which beats nothing.
shared vec4 score[MAX_EXPERTS / 4];
shared uvec4 keys[MAX_EXPERTS / 4];
shared uint group_keys[MAX_EXPERTS];
shared uint chosen[MAX_EXPERTS];

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

float sqrt_softplus(float v) { return sqrt((v > 0.0 ? v : 0.0) + log1p_unit(exp(-abs(v)))); }

vec4 logits(uint at, uint b) {
    vec4 v;
    [[unroll]] for (uint i = 0; i < 4; i++) v[i] = z[at + min(4 * b + i, experts - 1)];
    return v;
}

void softmax(uint at, uint blocks) {
    uint most = 0;
    for (uint b = gl_LocalInvocationIndex; b < blocks; b += LOCAL) {
        vec4 v = logits(at, b);
        [[unroll]] for (uint i = 0; i < 4; i++) most = max(most, ordered(v[i]));
    }
    float top = from_ordered(workgroup_max(most));
    float sum = 0.0;
    for (uint b = gl_LocalInvocationIndex; b < blocks; b += LOCAL) {
        vec4 v = exp(logits(at, b) - top);
        [[unroll]] for (uint i = 0; i < 4; i++) sum += 4 * b + i < experts ? v[i] : 0.0;
        score[b] = v;
    }
    sum = workgroup_sum(sum);
    for (uint b = gl_LocalInvocationIndex; b < blocks; b += LOCAL) score[b] /= sum;
}

void find_keys(uint at, uint blocks) {
    if (SCORE == SOFTMAX) softmax(at, blocks);
    for (uint b = gl_LocalInvocationIndex; b < blocks; b += LOCAL) {
        vec4 s;
        if (SCORE == SOFTMAX) {
            s = score[b];
        } else {
            vec4 v = logits(at, b);
            [[unroll]] for (uint i = 0; i < 4; i++) s[i] = SCORE == SIGMOID ? sigmoid(v[i]) : sqrt_softplus(v[i]);
            score[b] = s;
        }
        uvec4 key;
        [[unroll]] for (uint i = 0; i < 4; i++) {
            uint e = 4 * b + i;
            if (BIAS == 1) s[i] += Floats(bias).at[min(e, experts - 1)];
            key[i] = e < experts ? ordered(s[i]) : 0;
        }
        keys[b] = key;
    }
    barrier();
}

// Keys of experts outside the best groups become 0, less than any other key.
void mask_groups(uint blocks) {
    uint size = experts / groups;
    for (uint g = gl_LocalInvocationIndex; g < groups; g += LOCAL) {
        uint first = 0;
        uint second = 0;
        for (uint e = g * size; e < (g + 1) * size; e++) {
            uint key = keys[e / 4][e % 4];
            second = max(second, min(first, key));
            first = max(first, key);
        }
        float sum = from_ordered(first);
        if (GROUP_MAX == 0 && size > 1) sum += from_ordered(second);
        group_keys[g] = ordered(sum);
    }
    barrier();
    for (uint b = gl_LocalInvocationIndex; b < blocks; b += LOCAL) {
        uvec4 key = keys[b];
        [[unroll]] for (uint i = 0; i < 4; i++) {
            uint g = min(4 * b + i, experts - 1) / size;
            uint mine = group_keys[g];
            uint better = 0;
            for (uint o = 0; o < groups; o++) better += group_keys[o] >= mine + (o < g ? 0 : 1) ? 1 : 0;
            if (better >= top_groups) key[i] = 0;
        }
        keys[b] = key;
    }
    barrier();
}

// How many experts beat each of four: those with a greater key, or the same key and a lower id.
uvec4 ranks(uint b, uint blocks) {
    uvec4 mine = keys[b];
    uvec4 better = uvec4(0);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        [[unroll]] for (uint j = 0; j < 4; j++) {
            if (j != i) better[i] += mine[j] >= mine[i] + (j < i ? 0 : 1) ? 1 : 0;
        }
    }
    for (uint first = 0; first < blocks; first += 4) {
        [[unroll]] for (uint k = 0; k < 4; k++) {
            uint o = first + k;
            uvec4 other = keys[min(o, blocks - 1)];
            // A key that must be reached to beat mine; none can be all ones.
            uvec4 bar = o < b ? mine : o == b || o >= blocks ? uvec4(~0u) : mine + 1;
            [[unroll]] for (uint i = 0; i < 4; i++) better += uvec4(greaterThanEqual(uvec4(other[i]), bar));
        }
    }
    return better;
}

void main() {
    uint r = gl_WorkGroupID.y;
    uint blocks = (experts + 3) / 4;
    find_keys(r * experts, blocks);
    if (groups > 1) mask_groups(blocks);
    for (uint b = gl_LocalInvocationIndex; b < blocks; b += LOCAL) {
        uvec4 better = ranks(b, blocks);
        [[unroll]] for (uint i = 0; i < 4; i++) {
            if (better[i] < k && 4 * b + i < experts) chosen[better[i]] = 4 * b + i;
        }
    }
    barrier();
    float sum = 0.0;
    for (uint j = 0; j < k; j++) sum += score[chosen[j] / 4][chosen[j] % 4];
    for (uint j = gl_LocalInvocationIndex; j < k; j += LOCAL) {
        uint e = chosen[j];
        float w = score[e / 4][e % 4];
        if (RENORM == 1) w /= sum + eps;
        route[r * 2 * k + j] = e;
        route[r * 2 * k + k + j] = floatBitsToUint(w * scale);
    }
}
