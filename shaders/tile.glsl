// Products of tiles in f32: BLOCKS blocks of 64 matrix rows by ROWS input rows. DEPTH columns at a time lie in shared memory,
// weights decoded once for all input rows. An invocation has a patch of four matrix rows of each block by four input
// rows; all patches need 4 ROWS invocations, which are LOCAL.
//
// The kernel declares LOCAL, BLOCKS, ROWS, the inputs x (vec4), and
//   row_begin(r)        where row r of the tile begins in x, in values; asked for rows that are there
//   SPLIT               1, or CHUNK / 8: how many invocations share the weights of a quad's chunk
//   DECODERS            LOCAL: all invocations stage weights, then inputs; or fewer: the others stage inputs meanwhile

const uint OUTS = 64;
const uint DEPTH = 32;
const uint QUADS = BLOCKS * OUTS / 4;
const uint FEEDERS = DECODERS == LOCAL ? LOCAL : LOCAL - DECODERS;

// Column-major: four neighbours are one load.
shared vec4 tile_w[DEPTH][QUADS];
shared vec4 tile_x[DEPTH][ROWS / 4];

// This invocation's patch.
uint patch_out() { return gl_LocalInvocationIndex % (OUTS / 4); }
uint patch_row() { return gl_LocalInvocationIndex / (OUTS / 4); }

// Stages weights: of each block, from quad `first` of a matrix with `quads` of them on.
void stage_weights(uvec2 w[BLOCKS], uvec2 s[BLOCKS], uint first[BLOCKS], uint quads, uint wide, uint col, uint group) {
    for (uint i = gl_LocalInvocationIndex; i < QUADS * (DEPTH / CHUNK) * SPLIT; i += DECODERS) {
        uint o = i % QUADS;
        uint local_chunk = i / QUADS / SPLIT;
        uint piece = i / QUADS % SPLIT;
        uint chunk = col / CHUNK + local_chunk;
        bool behind = BLOCKS == 2 && o >= OUTS / 4;
        uvec2 wb = behind ? w[BLOCKS - 1] : w[0];
        uvec2 sb = behind ? s[BLOCKS - 1] : s[0];
        // Rows behind the last are repeated; their results are not kept.
        uint quad = min((behind ? first[BLOCKS - 1] : first[0]) + o % (OUTS / 4), quads - 1);
        uvec4 f[WORDS];
        vec4 factors = vec4(0.0);
        [[unroll]] for (uint k = 0; k < WORDS; k++) f[k] = uvec4(0);
        if (CHUNK * chunk < wide) {
            fetch(wb, sb, quad, wide, chunk, f);
            factors = group_scales(wb, sb, quad, wide, chunk, group);
        }
        [[unroll]] for (uint part = 0; part < CHUNK / 8; part++) {
            if (part / (CHUNK / 8 / SPLIT) == piece) {
                uint c = CHUNK * local_chunk + 8 * part;
                Eight v[4];
                [[unroll]] for (uint k = 0; k < 4; k++) {
                    v[k] = decode(f, k, part);
                    v[k] = Eight(v[k].lo * factors[k], v[k].hi * factors[k]);
                }
                [[unroll]] for (uint k = 0; k < 4; k++) {
                    tile_w[c + k][o] = vec4(v[0].lo[k], v[1].lo[k], v[2].lo[k], v[3].lo[k]);
                    tile_w[c + 4 + k][o] = vec4(v[0].hi[k], v[1].hi[k], v[2].hi[k], v[3].hi[k]);
                }
            }
        }
    }
}

// Stages inputs, four rows by four columns an invocation. Fours of rows that are not there stay as they are: nobody reads them.
void stage_inputs(uint rows, uint cols, uint col) {
    for (uint i = gl_LocalInvocationIndex - (LOCAL - FEEDERS); i < (ROWS / 4) * (DEPTH / 4); i += FEEDERS) {
        uint r = i % (ROWS / 4);
        uint c = 4 * (i / (ROWS / 4));
        if (4 * r >= rows) continue;
        vec4 v[4];
        [[unroll]] for (uint k = 0; k < 4; k++) {
            uint row = 4 * r + k;
            v[k] = vec4(0.0);
            if (row < rows && col + c < cols) v[k] = x[(row_begin(row) + col + c) / 4];
        }
        [[unroll]] for (uint k = 0; k < 4; k++) tile_x[c + k][r] = vec4(v[0][k], v[1][k], v[2][k], v[3][k]);
    }
}

// Adds the products of what lies in shared memory.
void multiply(uint rows, inout vec4 sums[4 * BLOCKS]) {
    // A sum of its own for each tile keeps the rounding error that of a short sum.
    vec4 part[4 * BLOCKS];
    [[unroll]] for (uint i = 0; i < 4 * BLOCKS; i++) part[i] = vec4(0.0);
    uint po = patch_out();
    uint pr = patch_row();
    if (4 * pr < rows) {
        // Four at a time: enough loads in flight, and few registers.
        [[dont_unroll]] for (uint c4 = 0; c4 < DEPTH; c4 += 4) {
            [[unroll]] for (uint c = c4; c < c4 + 4; c++) {
                vec4 b = tile_x[c][pr];
                [[unroll]] for (uint m = 0; m < BLOCKS; m++) {
                    vec4 a = tile_w[c][m * (OUTS / 4) + po];
                    [[unroll]] for (uint r = 0; r < 4; r++) part[4 * m + r] = fma(a, vec4(b[r]), part[4 * m + r]);
                }
            }
        }
    }
    [[unroll]] for (uint i = 0; i < 4 * BLOCKS; i++) sums[i] += part[i];
}

// The sums of this invocation's patch, [block][input row] of four matrix rows, without row factors. `rows` are there of the
// tile's input rows; the blocks begin at matrix rows `first` of `outs`, with `cols` columns. In uniform control flow.
void product(uint rows, uvec2 w[BLOCKS], uvec2 s[BLOCKS], uint first[BLOCKS], uint outs, uint cols, uint group,
             out vec4 sums[4 * BLOCKS]) {
    [[unroll]] for (uint i = 0; i < 4 * BLOCKS; i++) sums[i] = vec4(0.0);
    uint quad[BLOCKS];
    [[unroll]] for (uint m = 0; m < BLOCKS; m++) quad[m] = first[m] / 4;
    for (uint col = 0; col < cols; col += DEPTH) {
        barrier();
        if (gl_LocalInvocationIndex < DECODERS) {
            stage_weights(w, s, quad, 4 * ((outs + 15) / 16), widened(cols), col, group);
            if (DECODERS == LOCAL) stage_inputs(rows, cols, col);
        } else {
            stage_inputs(rows, cols, col);
        }
        barrier();
        multiply(rows, sums);
    }
}

// Input row r of a block of the patch: chosen, not indexed, so that sums stay in registers.
vec4 sum_of(vec4 sums[4 * BLOCKS], uint m, uint r) {
    vec4 first = r == 0 ? sums[0] : r == 1 ? sums[1] : r == 2 ? sums[2] : sums[3];
    if (BLOCKS == 1) return first;
    const uint last = 4 * (BLOCKS - 1);
    vec4 second = r == 0 ? sums[last] : r == 1 ? sums[last + 1] : r == 2 ? sums[last + 2] : sums[last + 3];
    return m == 0 ? first : second;
}
