// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e e8
#version 460
// y = sum over ranks of weight * (down_e a): each expert's product is reduced fully, then added in rank order.
// 4 QUADS outputs of all ranks a workgroup; with MANY also of all rows, so that an expert's weights are read once for all
// items (a row's choice of an expert) that share it.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint ADD0 = 0;
layout(constant_id = 2) const uint ADD1 = 0;
layout(constant_id = 3) const uint QUADS = 4;
layout(constant_id = 4) const uint DEPTH = 4;
layout(constant_id = 5) const uint MANY = 0;
// As `k`, with MANY.
layout(constant_id = 6) const uint K = 1;

#include "params.glsl"
#include "format.glsl"
#include "norm.glsl"

layout(set = 0, binding = 1, std430) readonly buffer A { vec4 x[]; };
layout(set = 0, binding = 2, std430) readonly buffer Route { uint route[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 4, std430) readonly buffer Add0 { float add0[]; };
layout(set = 0, binding = 5, std430) readonly buffer Add1 { float add1[]; };

layout(push_constant, std430) uniform Push {
    uvec2 table;
    uint ff;
    uint out_;
    uint k;
    uint y_stride;
    uint y_off;
    uint group;
};

const uint NORM = 0;
const uint ROWS_MOST = MANY == 0 ? 1 : 8;
const uint RESULTS = MANY == 0 ? (LOCAL >= 512 ? 1 : 512 / LOCAL) : 8;
#include "stripes.glsl"

// Items of eight rows.
const uint ITEMS = MANY == 0 ? 1 : 8 * K;
shared uint experts[ITEMS];
// The first item of each item's expert.
shared uint firsts[ITEMS];
// Items, those of an expert together, experts in the order of their first items.
shared uint sorted[ITEMS];
shared float products[ITEMS * OUTS];

#define MATS 1
#define ROWS 1
#define STEP step_1
#define DOTS dots_1
#include "dots.glsl"
#undef ROWS
#undef STEP
#undef DOTS
#define ROWS 8
#define STEP step_8
#define DOTS dots_8
#include "dots.glsl"

float finished(float acc, uint r, uint at) {
    precise float v = acc;
    if (ADD0 == 1) v += add0[r * out_ + at];
    if (ADD1 == 1) v += add1[r * out_ + at];
    return v;
}

// One row, rank after rank.
void one_row(uint r, uint first, uint quad) {
    uint me = gl_LocalInvocationIndex;
    // Outputs that this invocation finishes; a workgroup has at most as many as invocations.
    bool mine = me < OUTS && first + me < out_;
    precise float acc = 0.0;
    for (uint from = 0; from < k; from += BATCH) {
        uint count = min(BATCH, k - from);
        for (uint j = 0; j < count; j++) {
            // The bound is for a driver that runs this once more with every lane off and still loads what looks uniform.
            uvec4 e = Words4(table).at[route[r * 2 * k + min(from + j, k - 1)]];
            uint x_at[1] = uint[1]((r * k + from + j) * ff / 4);
            vec4 sums[1];
            float squares[1];
            dots_1(1, uvec2[1](e.xy), uvec2[1](e.zw), uvec2(0), quad, ff, group, x_at, sums, squares);
            stage(j, sums[0]);
        }
        collect(0, count);
        for (uint j = 0; mine && j < count; j++) {
            uvec4 e = Words4(table).at[route[r * 2 * k + min(from + j, k - 1)]];
            float weight = uintBitsToFloat(route[r * 2 * k + k + from + j]);
            acc = acc + weight * (total(j, me) * row_scale(e.zw, first + me));
        }
    }
    if (mine) y[r * y_stride + y_off + first + me] = finished(acc, r, first + me);
}

void sort_items(uint items) {
    uint me = gl_LocalInvocationIndex;
    for (uint i = me; i < items; i += LOCAL) experts[i] = route[i / K * 2 * K + i % K];
    barrier();
    for (uint i = me; i < items; i += LOCAL) {
        uint first = 0;
        while (experts[first] != experts[i]) first++;
        firsts[i] = first;
    }
    barrier();
    for (uint i = me; i < items; i += LOCAL) {
        uint before = 0;
        [[dont_unroll]] for (uint j = 0; j < items; j++) {
            if (firsts[j] < firsts[i] || (firsts[j] == firsts[i] && j < i)) before++;
        }
        sorted[before] = i;
    }
    barrier();
}

// Products of an expert with `n` items, from place `from` of the sorted ones on.
void multiply(uint from, uint n, uvec4 e, uint first, uint quad) {
    vec4 sums[8];
    float squares[8];
    if (n == 1) {
        vec4 only[1];
        float none[1];
        dots_1(1, uvec2[1](e.xy), uvec2[1](e.zw), uvec2(0), quad, ff, group, uint[1](sorted[from] * ff / 4), only, none);
        sums[0] = only[0];
    } else {
        uint x_at[8];
        [[unroll]] for (uint r = 0; r < 8; r++) x_at[r] = sorted[from + min(r, n - 1)] * ff / 4;
        dots_8(n, uvec2[1](e.xy), uvec2[1](e.zw), uvec2(0), quad, ff, group, x_at, sums, squares);
    }
    [[unroll]] for (uint r = 0; r < 8; r++) {
        if (r >= n) break;
        stage(r % BATCH, sums[r]);
        if (r % BATCH == BATCH - 1 || r == n - 1) collect(r / BATCH * BATCH, r % BATCH + 1);
    }
    for (uint i = gl_LocalInvocationIndex; i < OUTS * n; i += LOCAL) {
        uint at = first + i % OUTS;
        if (at < out_) products[sorted[from + i / OUTS] * OUTS + i % OUTS] = total(i / OUTS, i % OUTS) * row_scale(e.zw, at);
    }
}

// All rows, expert after expert, then each row rank after rank.
void all_rows(uint first, uint quad) {
    uint rows = step_rows();
    uint items = rows * K;
    sort_items(items);
    uint from = 0;
    [[dont_unroll]] while (from < items) {
        // The bound is for the driver that `one_row` speaks of.
        uint id = experts[sorted[min(from, items - 1)]];
        uint n = 1;
        while (n < 8 && from + n < items && experts[sorted[from + n]] == id) n++;
        multiply(from, n, Words4(table).at[id], first, quad);
        from += n;
    }
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < OUTS * rows; i += LOCAL) {
        uint at = first + i % OUTS;
        uint r = i / OUTS;
        if (at >= out_) continue;
        precise float acc = 0.0;
        for (uint j = 0; j < K; j++) {
            float weight = uintBitsToFloat(route[r * 2 * K + K + j]);
            acc = acc + weight * products[(r * K + j) * OUTS + i % OUTS];
        }
        y[r * y_stride + y_off + at] = finished(acc, r, at);
    }
}

void main() {
    prepare_format();
    uint first = OUTS * gl_WorkGroupID.x;
    uint quad = quad_of(first, out_);
    if (MANY == 0) {
        one_row(gl_WorkGroupID.y, first, quad);
    } else {
        all_rows(first, quad);
    }
}
