// int2-row: (field - 2), four fields a byte, the lowest first, times the row's factor.
#define SCALES SCALES_ROW
#define IN_FLIGHT 4

// As nibbles are decoded: a field at bit p of the mantissa of 2^(23 - p) adds its value.
Eight codes8(uvec2 w, uint block) {
    uint c = Words(w).at[block / 2] >> (16 * (block % 2));
    uvec4 lo = uvec4((c & 0x3u) | 0x4b000000u, (c & 0xcu) | 0x4a000000u, (c & 0x30u) | 0x49000000u,
                     (c & 0xc0u) | 0x48000000u);
    uvec4 hi = uvec4((c & 0x300u) | 0x47000000u, (c & 0xc00u) | 0x46000000u, (c & 0x3000u) | 0x45000000u,
                     (c & 0xc000u) | 0x44000000u);
    return Eight(uintBitsToFloat(lo) - vec4(8388610.0, 2097154.0, 524290.0, 131074.0),
                 uintBitsToFloat(hi) - vec4(32770.0, 8194.0, 2050.0, 514.0));
}
