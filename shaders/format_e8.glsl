// E8: of 256 columns sixteen words of indices into the codebook, four columns a byte, then eight words of signs and a
// sub-scale for 32 columns each, then a half: three planes.
#define SCALES SCALES_GROUP
#define CHUNK 32
#define WORDS 3
#define PREPARED

#include "tables.glsl"

shared uint codebook[256];
// The signs of four weights by their four bits.
shared uvec4 sign_bits[16];
// The same as bytes of ones.
shared uint sign_bytes[16];

void prepare_format() {
    for (uint i = gl_LocalInvocationIndex; i < 256; i += gl_WorkGroupSize.x) codebook[i] = E8_CODEBOOK[i];
    for (uint i = gl_LocalInvocationIndex; i < 16; i += gl_WorkGroupSize.x) {
        sign_bits[i] = uvec4(i << 31, i << 30, i << 29, i << 28) & 0x80000000u;
        sign_bytes[i] = (i & 1u | i << 7 & 0x100u | i << 14 & 0x10000u | i << 21 & 0x1000000u) * 255;
    }
    barrier();
}

// The plane of signs is `s` and lies behind that of indices.
void fetch(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, out uvec4 f[WORDS]) {
    uint at = quad_at(quad, wide / 16) + 8 * chunk;
    f[0] = Words4(w).at[at];
    f[1] = Words4(w).at[at + 4];
    f[2] = Words4(s).at[quad_at(quad, wide / 32) + 4 * chunk];
}

// Four magnitudes, doubled, with the signs of the bits from `first` on.
vec4 entry(uint index, uint signs, uint first) {
    uint g = codebook[index];
    uint h = g >> 16;
    vec4 v = uintBitsToFloat(uvec4((g & 0xffu) | 0x4b000000u, (g & 0xff00u) | 0x47000000u, (h & 0xffu) | 0x4b000000u,
                                   (h & 0xff00u) | 0x47000000u)) -
             vec4(8388608.0, 32768.0, 8388608.0, 32768.0);
    return uintBitsToFloat(floatBitsToUint(v) | sign_bits[(signs >> first) & 0xfu]);
}

Eight decode(uvec4 f[WORDS], uint k, uint part) {
    uint two = f[part / 2][k] >> (16 * (part % 2));
    uint signs = (f[2][k] >> (7 * part)) & 0x7fu;
    // An even number of the eight is negative.
    signs |= (bitCount(signs) & 1u) << 7;
    return Eight(entry(two & 0xffu, signs, 0), entry((two >> 8) & 0xffu, signs, 4));
}

// As signed bytes, doubled.
#define BYTES
#define CODE_UNIT 1.0

// Four magnitudes with the signs of the lowest four bits. None is zero, so a negative one's two's complement carries nothing.
uint entry_bytes(uint index, uint signs) {
    uint turn = sign_bytes[signs & 0xfu];
    return (codebook[index] ^ turn) + (turn & 0x01010101u);
}

ivec2 decode_bytes(uvec4 f[WORDS], uint k, uint part) {
    uint two = f[part / 2][k] >> (16 * (part % 2));
    uint signs = (f[2][k] >> (7 * part)) & 0x7fu;
    // An even number of the eight is negative.
    signs |= (bitCount(signs) & 1u) << 7;
    return ivec2(entry_bytes(two & 0xffu, signs), entry_bytes(two >> 8 & 0xffu, signs >> 4));
}

// The plane of super-scales lies behind that of signs, which has half the bytes of that of indices.
vec4 group_scales(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, uint group) {
    uvec4 signs = Words4(s).at[quad_at(quad, wide / 32) + 4 * chunk];
    uint behind = (s.x - w.x) / 2;
    uvec2 d = Words2(s).at[behind / 8 + quad_at(quad, wide / 256) + 4 * (chunk / 8)];
    vec4 super_scales = vec4(unpackHalf2x16(d.x), unpackHalf2x16(d.y));
    // A quarter: half of the format's own, half since the codebook is doubled.
    return super_scales * (vec4(0.5) + vec4(signs >> 28)) * 0.25;
}
