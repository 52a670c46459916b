// MXFP4: e2m1, low nibble first, times two to the power of a byte for 32 columns.
#define SCALES SCALES_GROUP
#include "words4.glsl"

// Exponent and mantissa of e2m1 at those of an f16 make the value times 2^-14, subnormals and all: the factor has
// the power. Nibbles i and i + 4 of a word become the two halves of one.
vec2 halves(uint c, int left) {
    uint magnitude = (left < 0 ? c >> -left : c << left) & 0x0e000e00u;
    int up = left + 3;
    uint sign = (up < 0 ? c >> -up : c << up) & 0x80008000u;
    return unpackHalf2x16(magnitude | sign);
}

Eight decode(uvec4 f[WORDS], uint k, uint part) {
    uint c = f[0][k];
    vec2 a = halves(c, 9);
    vec2 b = halves(c, 5);
    vec2 d = halves(c, 1);
    vec2 e = halves(c, -3);
    return Eight(vec4(a.x, b.x, d.x, e.x), vec4(a.y, b.y, d.y, e.y));
}

vec4 group_scales(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, uint group) {
    uint c = Words(s).at[quad_at(quad, wide / 32) + 4 * (chunk / 4)];
    uvec4 e = uvec4(c, c >> 8, c >> 16, c >> 24) & 0xffu;
    // 2^(e - 127), then the power that `halves` left out. Weights of 2^113 and more, which e above 240 would make,
    // are infinite here: no f32 sum has room for them either.
    return uintBitsToFloat(e << 23) * 16384.0;
}
