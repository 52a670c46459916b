// caches: f16
#version 460
// Per row and head: a norm over some channels, then a rotation of some; the rest is copied. To a transient or to
// the row of a cache.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint NORM = 0;
layout(constant_id = 2) const uint ROPE = 0;
layout(constant_id = 3) const uint IN_HALF = 0;
layout(constant_id = 4) const uint OUT_HALF = 0;
layout(constant_id = 5) const uint INVERSE = 0;
layout(constant_id = 6) const uint TO_STATE = 0;
// Of a state with a row for so many positions, x has a row for each that closes in the step.
layout(constant_id = 7) const uint EVERY = 1;

#include "params.glsl"
#include "state.glsl"
#include "cache.glsl"
#include "address.glsl"
#include "reduce.glsl"
#include "norm.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 3, std430) readonly buffer Rope { vec2 rope[]; };
#if CACHES_F16
layout(set = 1, binding = 0, std430) writeonly buffer State { uint state[]; };
#else
layout(set = 1, binding = 0, std430) writeonly buffer State { float state[]; };
#endif

layout(push_constant, std430) uniform Push {
    uvec2 nw;
    uvec2 nb;
    uint heads;
    uint d;
    uint x_stride;
    uint x_off;
    uint x_head;
    uint y_stride;
    uint y_off;
    uint norm_at;
    uint norm_n;
    uint rope_at;
    uint rope_dims;
    uint cap;
    uint width;
    float eps;
    float scale;
};

const uint RMS = 1;
const uint RMS_WEIGHTED = 2;
const uint LAYER = 3;
const uint L2 = 4;

uint x_at;
uint to;
float mean = 0.0;
float factor = 1.0;

void find_factor() {
    if (NORM == LAYER) {
        float sum = 0.0;
        for (uint c = gl_LocalInvocationIndex; c < norm_n; c += LOCAL) sum += x[x_at + norm_at + c];
        mean = workgroup_sum(sum) / float(norm_n);
    }
    float sum = 0.0;
    for (uint c = gl_LocalInvocationIndex; c < norm_n; c += LOCAL) {
        float v = x[x_at + norm_at + c] - mean;
        sum = fma(v, v, sum);
    }
    sum = workgroup_sum(sum);
    factor = NORM == L2 ? scale / sqrt(sum + eps) : inverse_rms(sum, norm_n, eps);
}

// Channel c after the norm.
float value(uint c) {
    float v = x[x_at + c];
    uint i = c - norm_at;
    if (NORM == 0 || i >= norm_n) return v;
    v = (v - mean) * factor;
    if (NORM == RMS_WEIGHTED || NORM == LAYER) v *= Floats(nw).at[i];
    if (NORM == LAYER) v += Floats(nb).at[i];
    return v;
}

// Pair j of `pairs` after the rotation.
vec2 turned(uint j, uint pairs) {
    float a = value(rope_at + (IN_HALF == 1 ? j : 2 * j));
    float b = value(rope_at + (IN_HALF == 1 ? j + pairs : 2 * j + 1));
    vec2 cs = rope[gl_WorkGroupID.y * pairs + j];
    float sine = INVERSE == 1 ? -cs.y : cs.y;
    return vec2(fma(a, cs.x, -(b * sine)), fma(b, cs.x, a * sine));
}

const bool TO_HALF = IN_HALF == 1 || OUT_HALF == 1;

#if CACHES_F16
// Channel c of the result.
float made(uint c) {
    uint pairs = ROPE == 1 ? rope_dims / 2 : 0;
    uint i = c - rope_at;
    if (i >= 2 * pairs) return value(c);
    return TO_HALF ? turned(i % pairs, pairs)[i / pairs] : turned(i / 2, pairs)[i % 2];
}

// An invocation makes both values of a word.
void put_words() {
    for (uint i = gl_LocalInvocationIndex; i < d / 2; i += LOCAL) {
        state[to / 2 + i] = half_bits(made(2 * i)) | half_bits(made(2 * i + 1)) << 16;
    }
}
#endif

void put(uint c, float v) {
#if !CACHES_F16
    if (TO_STATE == 1) {
        state[to + c] = v;
        return;
    }
#endif
    y[to + c] = v;
}

void main() {
    uint head = gl_WorkGroupID.x;
    uint r = gl_WorkGroupID.y;
    uint from = r;
    if (EVERY > 1) {
        if (row_visible(r) % EVERY != 0) return;
        uint closed = 0;
        for (uint i = gl_LocalInvocationIndex; i < r; i += LOCAL) closed += row_visible(i) % EVERY == 0 ? 1 : 0;
        workgroup_scan(closed, from);
    }
    x_at = from * x_stride + x_off + head * x_head;
    uint row = row_position(r) / EVERY;
    to = TO_STATE == 1 ? row_addr(row_slot(r), row, cap, width) + head * d : r * y_stride + y_off + head * d;
    if (NORM != 0) find_factor();
#if CACHES_F16
    if (TO_STATE == 1) {
        put_words();
        return;
    }
#endif
    // Unsigned differences: below the range they wrap to above it.
    uint dims = ROPE == 1 ? rope_dims : 0;
    for (uint c = gl_LocalInvocationIndex; c < d; c += LOCAL) {
        if (c - rope_at >= dims) put(c, value(c));
    }
    uint pairs = dims / 2;
    for (uint j = gl_LocalInvocationIndex; j < pairs; j += LOCAL) {
        vec2 v = turned(j, pairs);
        put(rope_at + (TO_HALF ? j : 2 * j), v.x);
        put(rope_at + (TO_HALF ? j + pairs : 2 * j + 1), v.y);
    }
}
