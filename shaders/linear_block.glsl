// Part of linear.comp, for one number of rows: stages and collects the products of all rows.
#include "dots.glsl"

void MULTIPLY(uint first_row, uint n, uint quad) {
    uint x_at[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) x_at[r] = input_at(first_row + min(r, n - 1));
    vec4 sums[ROWS];
    float squares[ROWS];
    DOTS(n, uvec2[1](w), uvec2[1](s), nw, quad, inp, group, x_at, sums, squares);
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        if (r >= n) break;
        stage_squares(r, squares[r]);
        stage(r % BATCH, sums[r]);
        if (r % BATCH == BATCH - 1 || r == n - 1) collect(r / BATCH * BATCH, r % BATCH + 1);
    }
}
