// fp8 e4m3: a byte a column, times the factor of a square of 128; FORMAT_FP8E has factors that are exponent bytes.
#define SCALES SCALES_GROUP
#define IN_FLIGHT 2

// The bits of exponent and mantissa on top of 2^-7 make the magnitude v where the exponent is not zero. Where it is,
// 2v - 2^-6 is right and the smaller of the two; everywhere else v is.
vec4 e4m3(uint c) {
    uvec4 magnitude = (uvec4(c, c >> 8, c >> 16, c >> 24) & 0x7fu);
    vec4 v = uintBitsToFloat((magnitude << 20) + 0x3c000000u);
    v = min(v, fma(v, vec4(2.0), vec4(-0.015625)));
    uvec4 bits = floatBitsToUint(v) | (uvec4(c << 24, c << 16, c << 8, c) & 0x80000000u);
    // All ones are no number.
    bits = mix(bits, uvec4(0x7fc00000u), equal(magnitude, uvec4(0x7fu)));
    return uintBitsToFloat(bits);
}

Eight codes8(uvec2 w, uint block) {
    uvec2 c = Words2(w).at[block];
    return Eight(e4m3(c.x), e4m3(c.y));
}

float group_scale(uvec2 w, uvec2 s, uint row, uint cols, uint col, uint group) {
    uint at = (row / 128) * ((cols + 127) / 128) + col / 128;
#ifdef FORMAT_FP8E
    uint e = (Words(s).at[at / 4] >> (8 * (at % 4))) & 0xffu;
    return uintBitsToFloat(e == 0xffu ? 0x7fc00000u : e << 23);
#else
    return Floats(s).at[at];
#endif
}
