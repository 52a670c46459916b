// Part of glu_linear.comp, for one number of rows.
#include "dots.glsl"

void BLOCK(uvec2 mine, uint first_row, uint n) {
    uint x_at[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) x_at[r] = ((first_row + min(r, n - 1)) * x_stride + x_off) / 4;
    const uint outs = min(OUTS, AT_ONCE);
    for (uint o = mine.x; o < mine.y; o += outs) {
        uint count = min(outs, mine.y - o);
        float sums[2 * OUTS * ROWS];
        DOTS(n, uvec2[2](wg, wu), uvec2[2](sg, su), nw, o, count, inp, group, x_at, eps, sums);
        for (uint i = lane; i < count * ROWS; i += lanes) {
            uint row = first_row + i % ROWS;
            if (row >= first_row + n) continue;
            precise float v = glu(KIND, PICK(sums, i), PICK(sums, OUTS * ROWS + i), p0, p1);
            y[row * y_stride + y_off + o + i / ROWS] = v;
        }
    }
}
