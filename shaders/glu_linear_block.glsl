// Part of glu_linear.comp, for one number of rows.
#include "dots.glsl"

void BLOCK(uint first_row, uint n) {
    uint x_at[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) x_at[r] = ((first_row + min(r, n - 1)) * x_stride + x_off) / 4;
    uint first = OUTS * gl_WorkGroupID.x;
    vec4 sums[2 * ROWS];
    float squares[ROWS];
    DOTS(n, uvec2[2](wg, wu), uvec2[2](sg, su), nw, quad_of(first, out_), inp, group, x_at, sums, squares);
    // Results in pairs, the gate's and the other's of a row.
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        if (r >= n) break;
        stage_squares(r, squares[r]);
        [[unroll]] for (uint m = 0; m < 2; m++) {
            uint i = 2 * r + m;
            stage(i % BATCH, sums[m * ROWS + r]);
            if (i % BATCH == BATCH - 1 || i == 2 * n - 1) collect(i / BATCH * BATCH, i % BATCH + 1);
        }
    }
    for (uint i = gl_LocalInvocationIndex; i < OUTS * n; i += LOCAL) {
        uint r = i / OUTS;
        uint at = first + i % OUTS;
        if (at >= out_) continue;
        float f = norm_factor(r, inp, eps);
        float gate = total(2 * r, i % OUTS) * row_scale(sg, at) * f;
        float up = total(2 * r + 1, i % OUTS) * row_scale(su, at) * f;
        precise float v = glu(KIND, gate, up, p0, p1);
        y[(first_row + r) * y_stride + y_off + at] = v;
    }
}
