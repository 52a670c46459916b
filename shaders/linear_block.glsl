// Part of linear.comp, for one number of rows.
#include "dots.glsl"

void BLOCK(uint first_row, uint n) {
    uint x_at[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = first_row + min(r, n - 1);
        if (GATHER == 1) row = output_row(row);
        x_at[r] = (row * x_stride + x_off) / 4;
    }
    uint first = OUTS * gl_WorkGroupID.x;
    vec4 sums[ROWS];
    float squares[ROWS];
    DOTS(n, uvec2[1](w), uvec2[1](s), nw, quad_of(first, out_), inp, group, x_at, sums, squares);
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        if (r >= n) break;
        stage_squares(r, squares[r]);
        stage(r % BATCH, sums[r]);
        if (r % BATCH == BATCH - 1 || r == n - 1) collect(r / BATCH * BATCH, r % BATCH + 1);
    }
    for (uint i = gl_LocalInvocationIndex; i < OUTS * n; i += LOCAL) {
        uint at = first + i % OUTS;
        if (at >= out_) continue;
        uint row = first_row + i / OUTS;
        precise float v = total(i / OUTS, i % OUTS) * row_scale(s, at) * norm_factor(i / OUTS, inp, eps);
        if (BIAS == 1) v += Floats(bias).at[at];
        if (ADD == 1) v += add[row * add_stride + add_off + at];
        y[row * y_stride + y_off + at] = v;
    }
}
