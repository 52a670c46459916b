// Part of glu_linear.comp, for one number of rows: stages and collects the products of all rows.
#include "dots.glsl"

void MULTIPLY(uint first_row, uint n, uint quad) {
    uint x_at[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) x_at[r] = input_at(first_row + min(r, n - 1));
    vec4 sums[2 * ROWS];
    float squares[ROWS];
    DOTS(n, uvec2[2](wg, wu), uvec2[2](sg, su), nw, quad, inp, group, x_at, sums, squares);
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        if (r >= n) break;
        stage_squares(r, squares[r]);
        [[unroll]] for (uint m = 0; m < 2; m++) {
            uint i = 2 * r + m;
            stage(i % BATCH, sums[m * ROWS + r]);
            if (i % BATCH == BATCH - 1 || i == 2 * n - 1) collect(i / BATCH * BATCH, i % BATCH + 1);
        }
    }
}
