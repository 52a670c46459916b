// MXFP4: e2m1, low nibble first, times two to the power of a byte for 32 columns.
#define SCALES SCALES_GROUP
#define IN_FLIGHT 4
#include "nibbles.glsl"

// Twice the magnitudes {0, .5, 1, 1.5, 2, 3, 4, 6} are whole numbers below 16: t, plus its two low bits where the
// third is set, plus 2 where all are. All eight nibbles are done at once.
Eight codes8(uvec2 w, uint block) {
    uint c = Words(w).at[block];
    uint t = c & 0x77777777u;
    uint third = (c >> 2) & 0x11111111u;
    uint all = third & (c >> 1) & c;
    Eight v = nibbles(t + (t & (third | (third << 1))) + (all << 1), 0.0);
    // No magnitude is negative, so a sign can be laid over it.
    uvec4 lo = uvec4(c << 28, c << 24, c << 20, c << 16) & 0x80000000u;
    uvec4 hi = uvec4(c << 12, c << 8, c << 4, c) & 0x80000000u;
    return Eight(uintBitsToFloat(floatBitsToUint(v.lo) | lo), uintBitsToFloat(floatBitsToUint(v.hi) | hi));
}

float group_scale(uvec2 w, uvec2 s, uint row, uint cols, uint col, uint group) {
    uint at = row * (cols / 32) + col / 32;
    uint e = (Words(s).at[at / 4] >> (8 * (at % 4))) & 0xffu;
    return 0.5 * uintBitsToFloat(e << 23);
}
