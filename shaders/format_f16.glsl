#include "words16.glsl"

Eight decode(uvec4 f[WORDS], uint k, uint part) {
    return Eight(vec4(unpackHalf2x16(f[0][k]), unpackHalf2x16(f[1][k])), vec4(unpackHalf2x16(f[2][k]), unpackHalf2x16(f[3][k])));
}
