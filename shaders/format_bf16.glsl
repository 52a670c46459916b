#include "words16.glsl"

Eight decode(uvec4 f[WORDS], uint k, uint part) {
    uvec4 c = uvec4(f[0][k], f[1][k], f[2][k], f[3][k]);
    uvec4 even = c << 16;
    uvec4 odd = c & 0xffff0000u;
    return Eight(uintBitsToFloat(uvec4(even.x, odd.x, even.y, odd.y)), uintBitsToFloat(uvec4(even.z, odd.z, even.w, odd.w)));
}
