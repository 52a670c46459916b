// E8: 256 columns in 98 bytes: an index into the codebook for four, a word of signs and a sub-scale for 32, a half.
#define SCALES SCALES_GROUP
#define IN_FLIGHT 2
#define PREPARED

#include "tables.glsl"

shared uint codebook[256];

void prepare_format() {
    for (uint i = gl_LocalInvocationIndex; i < 256; i += gl_WorkGroupSize.x) codebook[i] = E8_CODEBOOK[i];
    barrier();
}

// Blocks begin at even bytes, so words are put together from halves.
uint half_at(uvec2 w, uint at) {
    return (Words(w).at[at / 2] >> (16 * (at % 2))) & 0xffffu;
}

uint signs_at(uvec2 w, uint block) {
    uint at = 49 * (block / 32) + 32 + 2 * ((block % 32) / 4);
    return half_at(w, at) | (half_at(w, at + 1) << 16);
}

// Four magnitudes, doubled, with the signs of the bits from `first` on.
vec4 entry(uint index, uint signs, uint first) {
    uint g = codebook[index];
    uint h = g >> 16;
    vec4 v = uintBitsToFloat(uvec4((g & 0xffu) | 0x4b000000u, (g & 0xff00u) | 0x47000000u, (h & 0xffu) | 0x4b000000u,
                                   (h & 0xff00u) | 0x47000000u)) -
             vec4(8388608.0, 32768.0, 8388608.0, 32768.0);
    uvec4 sign = uvec4(signs << (31 - first), signs << (30 - first), signs << (29 - first), signs << (28 - first));
    return uintBitsToFloat(floatBitsToUint(v) | (sign & 0x80000000u));
}

Eight codes8(uvec2 w, uint block) {
    uint two = half_at(w, 49 * (block / 32) + block % 32);
    uint signs = (signs_at(w, block) >> (7 * (block % 4))) & 0x7fu;
    // An even number of the eight is negative.
    signs |= (bitCount(signs) & 1u) << 7;
    return Eight(entry(two & 0xffu, signs, 0), entry(two >> 8, signs, 4));
}

float group_scale(uvec2 w, uvec2 s, uint row, uint cols, uint col, uint group) {
    uint block = row * (cols / 8) + col / 8;
    float d = unpackHalf2x16(half_at(w, 49 * (block / 32) + 48)).x;
    // A quarter: half of the format's own, half since the codebook is doubled.
    return d * (0.5 + float(signs_at(w, block) >> 28)) * 0.25;
}
