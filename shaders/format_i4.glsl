// int4-row and int4-grouped: (nibble - 8), low nibble first, times the factor of the row or of the group.
#ifdef FORMAT_I4G
#define SCALES SCALES_GROUP
#else
#define SCALES SCALES_ROW
#endif
#define IN_FLIGHT 4

// A nibble at bit p of the mantissa of 2^(23 - p) adds exactly its value, so one and-or replaces shift, mask and
// conversion; the subtraction takes the power and the 8 away, exactly. Nibbles 5..7 are brought down by one shift.
Eight codes8(uvec2 w, uint block) {
    uint c = Words(w).at[block];
    uint d = c >> 12;
    uvec4 lo = uvec4((c & 0xfu) | 0x4b000000u, (c & 0xf0u) | 0x49000000u, (c & 0xf00u) | 0x47000000u,
                     (c & 0xf000u) | 0x45000000u);
    uvec4 hi = uvec4((c & 0xf0000u) | 0x43000000u, (d & 0xf00u) | 0x47000000u, (d & 0xf000u) | 0x45000000u,
                     (d & 0xf0000u) | 0x43000000u);
    return Eight(uintBitsToFloat(lo) - vec4(8388616.0, 524296.0, 32776.0, 2056.0),
                 uintBitsToFloat(hi) - vec4(136.0, 32776.0, 2056.0, 136.0));
}
