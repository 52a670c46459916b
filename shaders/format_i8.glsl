// int8-row: a signed byte, times the row's factor.
#define SCALES SCALES_ROW
#include "words8.glsl"

// A byte b + 128 laid into the mantissa of 2^23 or 2^15 makes that power plus the byte: and, or, subtract, all
// exact. Conversions from integer run at a quarter of that rate on some devices.
vec4 bytes4(uint c) {
    c ^= 0x80808080u;
    uint d = c >> 16;
    return uintBitsToFloat(uvec4((c & 0xffu) | 0x4b000000u, (c & 0xff00u) | 0x47000000u, (d & 0xffu) | 0x4b000000u,
                                 (d & 0xff00u) | 0x47000000u)) -
           vec4(8388736.0, 32896.0, 8388736.0, 32896.0);
}

Eight decode(uvec4 f[WORDS], uint k, uint part) { return Eight(bytes4(f[0][k]), bytes4(f[1][k])); }

#define BYTES
#define CODE_UNIT 1.0

ivec2 decode_bytes(uvec4 f[WORDS], uint k, uint part) { return ivec2(f[0][k], f[1][k]); }
