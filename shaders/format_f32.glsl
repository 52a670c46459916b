#define SCALES SCALES_NONE
#define CHUNK 8
#define WORDS 8

void fetch(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, out uvec4 f[WORDS]) {
    uint at = quad_at(quad, wide) + 32 * chunk;
    [[unroll]] for (uint i = 0; i < WORDS; i++) f[i] = Words4(w).at[at + 4 * i];
}

Eight decode(uvec4 f[WORDS], uint k, uint part) {
    return Eight(uintBitsToFloat(uvec4(f[0][k], f[1][k], f[2][k], f[3][k])),
                 uintBitsToFloat(uvec4(f[4][k], f[5][k], f[6][k], f[7][k])));
}
