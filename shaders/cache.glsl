// Rows of caches: of f32, or with CACHES_F16 of f16, two in a word, the first in its low half. Sums are of f32 either way.

#if CACHES_F16
// Four values as they are stored.
#define CACHED uvec2

vec4 cached(uvec2 four) { return vec4(unpackHalf2x16(four.x), unpackHalf2x16(four.y)); }

// Bits of the f16 nearest to x, of two the even one. What is too large becomes NaN, as what is no number: an infinite key
// could have a weight of 0 and pass unseen, and NaN has none. By bits, since Vulkan leaves open how packHalf2x16 rounds.
uint half_bits(float x) {
    uint bits = floatBitsToUint(x);
    uint sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    // From 65520 on, which is as near to 65536.
    if (bits >= 0x477ff000u) return 0x7e00u;
    // 2^-14 and more: the exponent begins 112 later. Rounding up may carry into it.
    if (bits >= 0x38800000u) return sign | bits - 0x38000000u + 0xfffu + (bits >> 13 & 1u) >> 13;
    // Multiples of 2^-24; below half of one, nothing is left.
    if (bits < 0x33000000u) return sign;
    uint shift = 126u - (bits >> 23);
    bits = bits & 0x7fffffu | 0x800000u;
    return sign | bits + (1u << shift - 1u) - 1u + (bits >> shift & 1u) >> shift;
}
#else
#define CACHED vec4

vec4 cached(vec4 four) { return four; }
#endif
