// Part of linear.comp, for one number of rows.
#include "dots.glsl"

void BLOCK(uvec2 mine, uint first_row, uint n) {
    uint x_at[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = first_row + min(r, n - 1);
        if (GATHER == 1) row = output_row(row);
        x_at[r] = (row * x_stride + x_off) / 4;
    }
    const uint outs = min(OUTS, AT_ONCE);
    for (uint o = mine.x; o < mine.y; o += outs) {
        uint count = min(outs, mine.y - o);
        float sums[OUTS * ROWS];
        float squares[ROWS];
        DOTS(n, uvec2[1](w), uvec2[1](s), nw, o, count, inp, group, x_at, sums, squares);
        // All loads go before the first store: y may be the same memory as add.
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            float f = NORM != 0 ? inverse_rms(squares[r], inp, eps) : 1.0;
            [[unroll]] for (uint i = 0; i < outs; i++) {
                precise float v = sums[i * ROWS + r] * f;
                uint at = o + min(i, count - 1);
                if (BIAS == 1) v += Floats(bias).at[at];
                if (ADD == 1) v += add[(first_row + min(r, n - 1)) * add_stride + add_off + at];
                sums[i * ROWS + r] = v;
            }
        }
        if (lane == 0) {
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                [[unroll]] for (uint i = 0; i < outs; i++) {
                    if (r < n && i < count) y[(first_row + r) * y_stride + y_off + o + i] = sums[i * ROWS + r];
                }
            }
        }
    }
}
