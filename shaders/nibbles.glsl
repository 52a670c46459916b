// Eight nibbles of a word, the lowest first, less `less`.
//
// A nibble at bit p of the mantissa of 2^(23 - p) adds exactly its value, so one and-or replaces shift, mask and
// conversion; the subtraction takes the power and `less` away, exactly. Nibbles 5..7 are brought down by one shift.
Eight nibbles(uint c, float less) {
    uint d = c >> 12;
    uvec4 lo = uvec4((c & 0xfu) | 0x4b000000u, (c & 0xf0u) | 0x49000000u, (c & 0xf00u) | 0x47000000u,
                     (c & 0xf000u) | 0x45000000u);
    uvec4 hi = uvec4((c & 0xf0000u) | 0x43000000u, (d & 0xf00u) | 0x47000000u, (d & 0xf000u) | 0x45000000u,
                     (d & 0xf0000u) | 0x43000000u);
    return Eight(uintBitsToFloat(lo) - (vec4(8388608.0, 524288.0, 32768.0, 2048.0) + less),
                 uintBitsToFloat(hi) - (vec4(128.0, 32768.0, 2048.0, 128.0) + less));
}
