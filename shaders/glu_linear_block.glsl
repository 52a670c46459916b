// Part of glu_linear.comp, for one number of rows.
#include "dots.glsl"

void BLOCK(uvec2 mine, uint first_row, uint n) {
    uint x_at[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) x_at[r] = ((first_row + min(r, n - 1)) * x_stride + x_off) / 4;
    const uint outs = min(OUTS, AT_ONCE);
    for (uint o = mine.x; o < mine.y; o += outs) {
        uint count = min(outs, mine.y - o);
        float sums[2 * OUTS * ROWS];
        float squares[ROWS];
        DOTS(n, uvec2[2](wg, wu), uvec2[2](sg, su), nw, o, count, inp, group, x_at, sums, squares);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            float f = NORM != 0 ? inverse_rms(squares[r], inp, eps) : 1.0;
            [[unroll]] for (uint i = 0; i < outs; i++) {
                precise float v = glu(KIND, sums[i * ROWS + r] * f, sums[(OUTS + i) * ROWS + r] * f, p0, p1);
                if (lane == 0 && r < n && i < count) y[(first_row + r) * y_stride + y_off + o + i] = v;
            }
        }
    }
}
