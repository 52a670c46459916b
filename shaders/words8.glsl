// Formats of one byte: eight columns are two words.
#define CHUNK 8
#define WORDS 2

void fetch(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, out uvec4 f[WORDS]) {
    uint at = quad_at(quad, wide / 4) + 8 * chunk;
    [[unroll]] for (uint i = 0; i < WORDS; i++) f[i] = Words4(w).at[at + 4 * i];
}
