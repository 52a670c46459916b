// Dot products of a subgroup: OUTS rows of each of MATS matrices with up to ROWS input rows. Included once for each
// size that a kernel needs, as functions STEP, DOTS and PICK; arrays of fixed size stay in registers. The kernel
// declares the input `x` (vec4) and the constants NORM and AT_ONCE; only AT_ONCE of OUTS are done.
//
// n: how many input rows there are; of the results for others, some are computed from rows that x_at repeats.
// first, count: the first matrix row and how many are wanted; surplus results repeat the last.
// x_at: where each input row begins, in vec4.
// sums: [mat][out][row], reduced over lanes, times the matrix row's factor and, if NORM, the input row's.
//
// Each sum runs over the blocks of a lane in order and then over lanes: the same operations for every OUTS and
// ROWS, so a row's bits do not depend on how many others there are.

// Adds block b.
void STEP(uint n, uvec2 w[MATS], uvec2 s[MATS], uvec2 nw, uint row[OUTS], uint b, uint cols, uint group,
          uint x_at[ROWS], inout float sums[MATS * OUTS * ROWS], inout float squares[ROWS]) {
    const uint outs = min(OUTS, AT_ONCE);
    Eight c[MATS * OUTS];
    float f[MATS * OUTS];
    [[unroll]] for (uint m = 0; m < MATS; m++) {
        [[unroll]] for (uint o = 0; o < outs; o++) {
            c[m * OUTS + o] = codes8(w[m], row[o] * (cols / 8) + b);
            f[m * OUTS + o] = group_scale(w[m], s[m], row[o], cols, 8 * b, group);
        }
    }
    Eight norm = Eight(vec4(1.0), vec4(1.0));
    if (NORM == 2) norm = Eight(Vec4s(nw).at[2 * b], Vec4s(nw).at[2 * b + 1]);
    // Rows in pairs: a pair's loads go together, and pairs that are not there cost nothing.
    [[unroll]] for (uint pair = 0; pair < ROWS; pair += 2) {
        if (pair != 0 && pair >= n) continue;
        [[unroll]] for (uint r = pair; r < min(ROWS, pair + 2); r++) {
            Eight v = Eight(x[x_at[r] + 2 * b], x[x_at[r] + 2 * b + 1]);
            if (NORM != 0) squares[r] = dot8(v, v, squares[r]);
            if (NORM == 2) v = Eight(v.lo * norm.lo, v.hi * norm.hi);
            [[unroll]] for (uint m = 0; m < MATS; m++) {
                [[unroll]] for (uint o = 0; o < outs; o++) {
                    uint i = (m * OUTS + o) * ROWS + r;
#if SCALES == SCALES_GROUP
                    sums[i] = fma(f[m * OUTS + o], dot8(c[m * OUTS + o], v, 0.0), sums[i]);
#else
                    sums[i] = dot8(c[m * OUTS + o], v, sums[i]);
#endif
                }
            }
        }
    }
}

void DOTS(uint n, uvec2 w[MATS], uvec2 s[MATS], uvec2 nw, uint first, uint count, uint cols, uint group,
          uint x_at[ROWS], float eps, out float sums[MATS * OUTS * ROWS]) {
    const uint outs = min(OUTS, AT_ONCE);
    float squares[ROWS];
    uint row[OUTS];
    [[unroll]] for (uint o = 0; o < OUTS; o++) row[o] = first + min(o, count - 1);
    [[unroll]] for (uint i = 0; i < MATS * OUTS * ROWS; i++) sums[i] = 0.0;
    [[unroll]] for (uint r = 0; r < ROWS; r++) squares[r] = 0.0;

    uint blocks = cols / 8;
    uint b = lane;
#if ROWS == 1 && IN_FLIGHT > 1
    // With one row little is computed per load, so that several must be under way.
    for (uint end = IN_FLIGHT * lanes; end <= blocks; end += IN_FLIGHT * lanes) {
        [[unroll]] for (uint i = 0; i < IN_FLIGHT; i++) {
            STEP(n, w, s, nw, row, b + i * lanes, cols, group, x_at, sums, squares);
        }
        b += IN_FLIGHT * lanes;
    }
#endif
    for (; b < blocks; b += lanes) STEP(n, w, s, nw, row, b, cols, group, x_at, sums, squares);

    [[unroll]] for (uint r = 0; r < ROWS; r++) squares[r] = NORM != 0 ? inverse_rms(subgroupAdd(squares[r]), cols, eps) : 1.0;
    [[unroll]] for (uint m = 0; m < MATS; m++) {
        [[unroll]] for (uint o = 0; o < outs; o++) {
            float f = row_scale(s[m], row[o]);
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                uint i = (m * OUTS + o) * ROWS + r;
                sums[i] = subgroupAdd(sums[i]) * f * squares[r];
            }
        }
    }
}

// sums[i] for an i that differs between lanes, without indexing registers: results are finished a lane each.
float PICK(float sums[MATS * OUTS * ROWS], uint i) {
    float v = sums[0];
    [[unroll]] for (uint k = 1; k < MATS * OUTS * ROWS; k++) v = i == k ? sums[k] : v;
    return v;
}
