// fp8 e4m3: a byte a column, times the factor of a square of 128; FORMAT_FP8E has factors that are exponent bytes.
#define SCALES SCALES_GROUP
#include "words8.glsl"

// Exponent and mantissa of e4m3 at those of an f16 make the value times 2^-8, subnormals and all: the factor has the
// power. Bytes 0 and 2 of `c` become `even`, 1 and 3 `odd`.
void halves(uint c, out vec2 even, out vec2 odd) {
    uint d = c << 8;
    odd = unpackHalf2x16((c & 0x80008000u) | ((c >> 1) & 0x3f803f80u));
    even = unpackHalf2x16((d & 0x80008000u) | ((d >> 1) & 0x3f803f80u));
    // All ones are no number, and rare: one more at the foot of such a byte carries to its top.
    uint none = ((c & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
    if (none != 0) {
        const float nan = uintBitsToFloat(0x7fc00000u);
        if ((none & 0x00000080u) != 0) even.x = nan;
        if ((none & 0x00008000u) != 0) odd.x = nan;
        if ((none & 0x00800000u) != 0) even.y = nan;
        if ((none & 0x80000000u) != 0) odd.y = nan;
    }
}

Eight decode(uvec4 f[WORDS], uint k, uint part) {
    vec2 a, b, c, d;
    halves(f[0][k], a, b);
    halves(f[1][k], c, d);
    return Eight(vec4(a.x, b.x, a.y, b.y), vec4(c.x, d.x, c.y, d.y));
}

// One factor for the whole tile.
vec4 group_scales(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, uint group) {
    uint at = (quad / 4) * ((wide + 127) / 128) + chunk / 16;
#ifdef FORMAT_FP8E
    uint e = (Words(s).at[at / 4] >> (8 * (at % 4))) & 0xffu;
    return vec4(uintBitsToFloat(e == 0xffu ? 0x7fc00000u : e << 23) * 256.0);
#else
    return vec4(Floats(s).at[at] * 256.0);
#endif
}
