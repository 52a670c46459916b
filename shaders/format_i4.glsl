// int4-row and int4-grouped: (nibble - 8), low nibble first, times the factor of the row or of the group.
#include "words4.glsl"
#include "nibbles.glsl"

Eight decode(uvec4 f[WORDS], uint k, uint part) { return nibbles(f[0][k], 8.0); }

// The same as signed bytes, times 16: columns 0, 2, 4, 6 and then 1, 3, 5, 7. A nibble with its highest bit turned is its value less 8 in
// two's complement.
#define BYTES
#define DIGITS_BY_PARITY
#define CODE_UNIT 0.0625

ivec2 decode_bytes(uvec4 f[WORDS], uint k, uint part) {
    uint c = f[0][k];
    return ivec2(uvec2(c << 4, c) & 0xf0f0f0f0u ^ 0x80808080u);
}

#ifdef MATRICES
#define DECODES_HALVES
// As `nibbles`, two at a time: at the foot of the mantissa of 2^10, or four bits up in that of 2^6.
uvec4 decode_halves(uvec4 f[WORDS], uint k, uint part) {
    uint c = f[0][k];
    uint d = c >> 8;
    uvec4 v = uvec4((c & 0x000f000fu) | 0x64006400u, (c & 0x00f000f0u) | 0x54005400u, (d & 0x000f000fu) | 0x64006400u,
                    (d & 0x00f000f0u) | 0x54005400u);
    const f16vec2 foot = f16vec2(1032.0hf);
    const f16vec2 up = f16vec2(72.0hf);
    return uvec4(packFloat2x16(unpackFloat2x16(v.x) - foot), packFloat2x16(unpackFloat2x16(v.y) - up),
                 packFloat2x16(unpackFloat2x16(v.z) - foot), packFloat2x16(unpackFloat2x16(v.w) - up));
}
#endif

#ifdef FORMAT_I4G
#define SCALES SCALES_GROUP

// x / group, by the upper half of a product: `inverse` is 2^32 / group, rounded up, and x is a column.
uint divided(uint x, uint inverse) {
    uint high, low;
    umulExtended(x, inverse, high, low);
    return high;
}

vec4 group_scales(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, uint group) {
    uint groups = divided(wide - 1, group) + 1;
    return Vec4s(s).at[quad_at(quad, groups) + 4 * divided(CHUNK * chunk, group)];
}
#else
#define SCALES SCALES_ROW
#endif
