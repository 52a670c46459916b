// Formats of two bytes: eight columns are four words.
#define SCALES SCALES_NONE
#define CHUNK 8
#define WORDS 4

void fetch(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, out uvec4 f[WORDS]) {
    uint at = quad_at(quad, wide / 2) + 16 * chunk;
    [[unroll]] for (uint i = 0; i < WORDS; i++) f[i] = Words4(w).at[at + 4 * i];
}
