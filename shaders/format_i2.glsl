// int2-row: (field - 2), four fields a byte, the lowest first, times the row's factor.
#define SCALES SCALES_ROW
#define CHUNK 16
#define WORDS 1

void fetch(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, out uvec4 f[WORDS]) {
    f[0] = Words4(w).at[quad_at(quad, wide / 16) + 4 * chunk];
}

// As nibbles are decoded: a field at bit p of the mantissa of 2^(23 - p) adds its value.
Eight decode(uvec4 f[WORDS], uint k, uint part) {
    uint c = f[0][k] >> (16 * part);
    uvec4 lo = uvec4((c & 0x3u) | 0x4b000000u, (c & 0xcu) | 0x4a000000u, (c & 0x30u) | 0x49000000u,
                     (c & 0xc0u) | 0x48000000u);
    uvec4 hi = uvec4((c & 0x300u) | 0x47000000u, (c & 0xc00u) | 0x46000000u, (c & 0x3000u) | 0x45000000u,
                     (c & 0xc000u) | 0x44000000u);
    return Eight(uintBitsToFloat(lo) - vec4(8388610.0, 2097154.0, 524290.0, 131074.0),
                 uintBitsToFloat(hi) - vec4(32770.0, 8194.0, 2050.0, 514.0));
}
