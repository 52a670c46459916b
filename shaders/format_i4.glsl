// int4-row and int4-grouped: (nibble - 8), low nibble first, times the factor of the row or of the group.
#include "words4.glsl"
#include "nibbles.glsl"

Eight decode(uvec4 f[WORDS], uint k, uint part) { return nibbles(f[0][k], 8.0); }

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
