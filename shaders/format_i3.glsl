// int3-g64: 64 columns in four words of two low bits each and two words of one high bit each; (value - 4) times the
// factor of the 64.
#define SCALES SCALES_GROUP
#define CHUNK 32
#define WORDS 3
#include "nibbles.glsl"

void fetch(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, out uvec4 f[WORDS]) {
    uint at = quad_at(quad, wide / 64 * 6) + 24 * (chunk / 2);
    uint second = chunk % 2;
    f[0] = Words4(w).at[at + 8 * second];
    f[1] = Words4(w).at[at + 8 * second + 4];
    f[2] = Words4(w).at[at + 16 + 4 * second];
}

// Sixteen columns become two words of nibbles, the even columns and the odd ones.
Eight decode(uvec4 f[WORDS], uint k, uint part) {
    uint low = f[part / 2][k];
    uint high = f[2][k];
    high = part < 2 ? high & 0xffffu : high >> 16;
    // Two columns' high bits to the foot of each nibble.
    high = (high | (high << 8)) & 0x00ff00ffu;
    high = (high | (high << 4)) & 0x0f0f0f0fu;
    high = (high | (high << 2)) & 0x33333333u;
    Eight even = nibbles((low & 0x33333333u) | ((high << 2) & 0x44444444u), 4.0);
    Eight odd = nibbles(((low >> 2) & 0x33333333u) | ((high << 1) & 0x44444444u), 4.0);
    if (part % 2 == 0) return Eight(vec4(even.lo.x, odd.lo.x, even.lo.y, odd.lo.y), vec4(even.lo.z, odd.lo.z, even.lo.w, odd.lo.w));
    return Eight(vec4(even.hi.x, odd.hi.x, even.hi.y, odd.hi.y), vec4(even.hi.z, odd.hi.z, even.hi.w, odd.hi.w));
}

vec4 group_scales(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, uint group) {
    return Vec4s(s).at[quad_at(quad, wide / 64) + 4 * (chunk / 2)];
}
