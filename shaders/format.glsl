// Weights by device address, in the engine layout (docs/formats.md): a tile is 16 rows, and of each 32-bit word of
// codes the copies of its rows lie side by side. A *quad* is four rows of a tile, number row / 4; a load is one word
// of a quad. Rows are filled up to tiles and columns to 64 (`wide`) with codes of zero.
//
// Each format has
//   CHUNK                       columns that an invocation takes at once: whole words, and no two groups
//   WORDS                       words of a row in them
//   fetch(w, s, quad, wide, chunk, f) loads them for a quad
//   decode(f, k, part)          eight weights of row k of the quad: columns 8 part .. of the chunk
// SCALES says where the factor lies: in the code, one a row, or one a group of columns. A row's factor is applied
// once to a finished sum, not to each weight; those of a quad's groups come from `group_scales`. `prepare_format` runs
// once in an invocation, before the first weight, in uniform control flow.

#extension GL_EXT_control_flow_attributes : require

#include "address.glsl"

#define SCALES_NONE 0
#define SCALES_ROW 1
#define SCALES_GROUP 2

struct Eight {
    vec4 lo;
    vec4 hi;
};

// The first of `items` items of a quad, in loads of four rows; the next is four further on.
uint quad_at(uint quad, uint items) { return (quad / 4) * items * 4 + quad % 4; }

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

// The same eight weights as halves, exact for the formats that matrices take: columns 0 and 4 in a word, then 1 and 5, 2 and
// 6, 3 and 7, as masks find them in codes of a nibble. `halves.comp` puts inputs in the same order.
#if defined(MATRICES) && !defined(DECODES_HALVES)
uvec4 decode_halves(uvec4 f[WORDS], uint k, uint part) {
    Eight v = decode(f, k, part);
    return uvec4(packHalf2x16(vec2(v.lo.x, v.hi.x)), packHalf2x16(vec2(v.lo.y, v.hi.y)),
                 packHalf2x16(vec2(v.lo.z, v.hi.z)), packHalf2x16(vec2(v.lo.w, v.hi.w)));
}
#endif

// Columns with those that fill the last 64.
uint widened(uint cols) { return (cols + 63) & ~63u; }

// The factor of a whole row: 1 where the factors lie elsewhere.
float row_scale(uvec2 s, uint row) {
#if SCALES == SCALES_ROW
    return Floats(s).at[row];
#else
    return 1.0;
#endif
}

vec4 row_scales(uvec2 s, uint quad) {
#if SCALES == SCALES_ROW
    return Vec4s(s).at[quad];
#else
    return vec4(1.0);
#endif
}

// The factors of a quad's groups that hold the chunk. `group`: what `Push::Group` says of the format.
#if SCALES != SCALES_GROUP
vec4 group_scales(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, uint group) { return vec4(1.0); }
#endif

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
