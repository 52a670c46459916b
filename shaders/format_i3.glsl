// int3-g64: 64 columns in 16 bytes of two low bits each and 8 bytes of one high bit each; (value - 4) times the
// factor of the 64.
#define SCALES SCALES_GROUP
#define IN_FLIGHT 2
#include "nibbles.glsl"

Eight codes8(uvec2 w, uint block) {
    uint base = 6 * (block / 8);
    uint j = block % 8;
    uint low = (Words(w).at[base + j / 2] >> (16 * (j % 2))) & 0xffffu;
    uint high = (Words(w).at[base + 4 + j / 4] >> (8 * (j % 4))) & 0xffu;
    // Two bits and one bit to a nibble each.
    low = (low | (low << 8)) & 0x00ff00ffu;
    low = (low | (low << 4)) & 0x0f0f0f0fu;
    low = (low | (low << 2)) & 0x33333333u;
    high = (high | (high << 12)) & 0x000f000fu;
    high = (high | (high << 6)) & 0x03030303u;
    high = (high | (high << 3)) & 0x11111111u;
    return nibbles(low | (high << 2), 4.0);
}

float group_scale(uvec2 w, uvec2 s, uint row, uint cols, uint col, uint group) {
    return Floats(s).at[row * (cols / 64) + col / 64];
}
