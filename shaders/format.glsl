// Weights by device address, eight at a time.
//
// Each format has `codes8(w, block)`, where block = (row * cols + col) / 8: an index of 32 bits reaches 2^34
// weights. SCALES says where the factor lies: in the code, one a row, or one a group of columns. A row's factor
// is applied once to a finished sum, not to each weight; a group's comes from `group_scale`, and a group never ends
// inside a block. IN_FLIGHT blocks of a row are worth loading ahead. `prepare_format` runs once in an invocation,
// before the first weight, in uniform control flow.

#extension GL_EXT_control_flow_attributes : require

#include "address.glsl"

#define SCALES_NONE 0
#define SCALES_ROW 1
#define SCALES_GROUP 2

struct Eight {
    vec4 lo;
    vec4 hi;
};

#if defined(FORMAT_F32)
#include "format_f32.glsl"
#elif defined(FORMAT_BF16)
#include "format_bf16.glsl"
#elif defined(FORMAT_F16)
#include "format_f16.glsl"
#elif defined(FORMAT_I8)
#include "format_i8.glsl"
#elif defined(FORMAT_I4) || defined(FORMAT_I4G)
#include "format_i4.glsl"
#elif defined(FORMAT_I2)
#include "format_i2.glsl"
#elif defined(FORMAT_I3)
#include "format_i3.glsl"
#elif defined(FORMAT_MX)
#include "format_mx.glsl"
#elif defined(FORMAT_FP8) || defined(FORMAT_FP8E)
#include "format_fp8.glsl"
#elif defined(FORMAT_E8)
#include "format_e8.glsl"
#endif

#ifndef PREPARED
void prepare_format() {}
#endif

// The factor of a whole row: 1 where the factors lie elsewhere.
float row_scale(uvec2 s, uint row) {
#if SCALES == SCALES_ROW
    return Floats(s).at[row];
#else
    return 1.0;
#endif
}

// The factor of the group that holds `col`.
#if SCALES != SCALES_GROUP
float group_scale(uvec2 w, uvec2 s, uint row, uint cols, uint col, uint group) {
    return 1.0;
}
#endif

// Eight decoded weights.
Eight load8(uvec2 w, uvec2 s, uint row, uint cols, uint col, uint group) {
    Eight v = codes8(w, row * (cols / 8) + col / 8);
    float f = row_scale(s, row) * group_scale(w, s, row, cols, col, group);
    return Eight(v.lo * f, v.hi * f);
}

// acc + a . b in a fixed order. Written with fma() so that every variant of a kernel rounds alike.
float dot8(Eight a, Eight b, float acc) {
    acc = fma(a.lo.x, b.lo.x, acc);
    acc = fma(a.lo.y, b.lo.y, acc);
    acc = fma(a.lo.z, b.lo.z, acc);
    acc = fma(a.lo.w, b.lo.w, acc);
    acc = fma(a.hi.x, b.hi.x, acc);
    acc = fma(a.hi.y, b.hi.y, acc);
    acc = fma(a.hi.z, b.hi.z, acc);
    return fma(a.hi.w, b.hi.w, acc);
}
