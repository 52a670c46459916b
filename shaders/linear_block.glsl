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
        DOTS(n, uvec2[1](w), uvec2[1](s), nw, o, count, inp, group, x_at, eps, sums);
        for (uint i = lane; i < count * ROWS; i += lanes) {
            uint row = first_row + i % ROWS;
            if (row >= first_row + n) continue;
            uint at = o + i / ROWS;
            precise float v = PICK(sums, i);
            if (BIAS == 1) v += Floats(bias).at[at];
            if (ADD == 1) v += add[row * add_stride + add_off + at];
            y[row * y_stride + y_off + at] = v;
        }
    }
}
