// Products of quads of matrix rows with input rows, spread over a workgroup. Included once for each number of rows
// that a kernel needs, as functions STEP and DOTS; arrays of fixed size stay in registers.
//
// An invocation has one of QUADS quads and one of STRIPES stripes of columns: every STRIPES-th chunk. Neighbours have
// neighbouring quads, so that a workgroup reads whole tiles in order. `stripes.glsl` adds the stripes up.
//
// The kernel declares the input `x` (vec4) or another INPUT, and the constants DEPTH and NORM: 0, or 1 for the root-mean-square norm of
// the input, or 2 for that with weights `nw`.
//
// n: how many input rows there are; of the results for others, some are computed from rows that x_at repeats.
// quad: this invocation's, of each of MATS matrices of `cols` columns.
// x_at: where each input row begins, in vec4.
// sums: [mat][row], four matrix rows each, of this stripe alone, without row factors and norms.
// squares: of each input row over this stripe, if NORM.
//
// A sum runs over the chunks of a stripe in order and then over stripes: the same operations for every ROWS, so a
// row's bits do not depend on how many others there are.

#ifndef INPUT
#define INPUT(at) x[at]
#endif

// Adds one chunk.
void STEP(uint n, uvec2 w[MATS], uvec2 s[MATS], uvec2 nw, uint quad, uint chunk, uint cols, uint group,
          uint x_at[ROWS], inout vec4 sums[MATS * ROWS], inout float squares[ROWS]) {
    uint wide = widened(cols);
    uvec4 f[MATS][WORDS];
    vec4 factors[MATS];
    [[unroll]] for (uint m = 0; m < MATS; m++) {
        fetch(w[m], s[m], quad, wide, chunk, f[m]);
        factors[m] = group_scales(w[m], s[m], quad, wide, chunk, group);
    }
    [[unroll]] for (uint part = 0; part < CHUNK / 8; part++) {
        uint b = chunk * (CHUNK / 8) + part;
        // A chunk may reach beyond the input; eights never do in part.
        if (CHUNK > 8 && 8 * b >= cols) continue;
        Eight c[MATS * 4];
        [[unroll]] for (uint m = 0; m < MATS; m++) {
            [[unroll]] for (uint k = 0; k < 4; k++) c[m * 4 + k] = decode(f[m], k, part);
        }
        Eight norm = Eight(vec4(1.0), vec4(1.0));
        if (NORM == 2) norm = Eight(Vec4s(nw).at[2 * b], Vec4s(nw).at[2 * b + 1]);
        // Rows in pairs: a pair's loads go together, and pairs that are not there cost nothing.
        [[unroll]] for (uint pair = 0; pair < ROWS; pair += 2) {
            if (pair != 0 && pair >= n) continue;
            [[unroll]] for (uint r = pair; r < min(ROWS, pair + 2); r++) {
                Eight v = Eight(INPUT(x_at[r] + 2 * b), INPUT(x_at[r] + 2 * b + 1));
                if (NORM != 0) squares[r] = dot8(v, v, squares[r]);
                if (NORM == 2) v = Eight(v.lo * norm.lo, v.hi * norm.hi);
                [[unroll]] for (uint m = 0; m < MATS; m++) {
                    [[unroll]] for (uint k = 0; k < 4; k++) {
#if SCALES == SCALES_GROUP
                        sums[m * ROWS + r][k] =
                            fma(factors[m][k], dot8(c[m * 4 + k], v, 0.0), sums[m * ROWS + r][k]);
#else
                        sums[m * ROWS + r][k] = dot8(c[m * 4 + k], v, sums[m * ROWS + r][k]);
#endif
                    }
                }
            }
        }
    }
}

void DOTS(uint n, uvec2 w[MATS], uvec2 s[MATS], uvec2 nw, uint quad, uint cols, uint group, uint x_at[ROWS],
          out vec4 sums[MATS * ROWS], out float squares[ROWS]) {
    [[unroll]] for (uint i = 0; i < MATS * ROWS; i++) sums[i] = vec4(0.0);
    [[unroll]] for (uint r = 0; r < ROWS; r++) squares[r] = 0.0;
    uint chunks = (cols + CHUNK - 1) / CHUNK;
    uint c = my_stripe();
    // Several chunks under way where a stripe has many. Loops stay loops: a kernel's instructions are read anew for
    // every dispatch, and long ones take longer than short ones, whatever they do.
#if ROWS == 1
    if (DEPTH > 1) {
        [[dont_unroll]] for (; c + (DEPTH - 1) * STRIPES < chunks; c += DEPTH * STRIPES) {
            [[unroll]] for (uint i = 0; i < DEPTH; i++) {
                STEP(n, w, s, nw, quad, c + i * STRIPES, cols, group, x_at, sums, squares);
            }
        }
    }
#endif
    [[dont_unroll]] for (; c < chunks; c += STRIPES) {
        STEP(n, w, s, nw, quad, c, cols, group, x_at, sums, squares);
    }
}
