// What attend.glsl loads from the caches of one segment: KEYS and VALUES. It names the functions.

// This invocation's part of a chunk of channels that begins at four `first`; 0 behind the last.
void LOAD_CHANNELS(uint first, uint width4, out vec4 v[SCORE_LOADS]) {
    [[unroll]] for (uint i = 0; i < SCORE_LOADS; i++) {
        uint item = gl_LocalInvocationIndex + i * LOCAL;
        uint row = item / DEPTH;
        uint c = first + item % DEPTH;
        v[i] = vec4(0.0);
        if (row < QUERIES + TILE && c < width4) {
            if (row < QUERIES) {
                v[i] = query_at(row, c);
            } else {
                v[i] = cached(KEYS[key_at[row - QUERIES] + c]);
            }
        }
    }
}

// This invocation's part of the values of a chunk of positions that begins at place `from`.
void LOAD_VALUES(uint from, out vec4 v[VALUE_LOADS]) {
    [[unroll]] for (uint i = 0; i < VALUE_LOADS; i++) {
        uint item = gl_LocalInvocationIndex + i * LOCAL;
        v[i] = vec4(0.0);
        if (item < CHUNK * C4) v[i] = cached(VALUES[value_at[from + item / C4] + item % C4]);
    }
}
