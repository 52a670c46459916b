// Formats of a nibble: eight columns are a word.
#define CHUNK 8
#define WORDS 1

void fetch(uvec2 w, uvec2 s, uint quad, uint wide, uint chunk, out uvec4 f[WORDS]) {
    f[0] = Words4(w).at[quad_at(quad, wide / 8) + 4 * chunk];
}
