// Part of experts_up.comp, for one number of items.
#include "dots.glsl"

// Items mates[from .. from + n] of an expert with matrices g and u, or `mine` alone without MANY.
void BLOCK(uvec4 g, uvec4 u, uint first, uint mine, uint from, uint n) {
    uint x_at[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint item = MANY == 0 ? mine : mates[from + min(r, n - 1)];
        x_at[r] = (item / K * x_stride + x_off) / 4;
    }
    vec4 sums[2 * ROWS];
    float squares[ROWS];
    DOTS(n, uvec2[2](g.xy, u.xy), uvec2[2](g.zw, u.zw), nw, quad_of(first, ff), inp, group, x_at, sums, squares);
    // Results in pairs, the gate's and the other's of an item.
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
        if (at >= ff) continue;
        uint item = MANY == 0 ? mine : mates[from + r];
        float f = norm_factor(r, inp, eps);
        float a = total(2 * r, i % OUTS) * row_scale(g.zw, at) * f;
        float b = total(2 * r + 1, i % OUTS) * row_scale(u.zw, at) * f;
        y[item * ff + at] = glu(KIND, a, b, p0, p1);
    }
    // The next block stages over what this one has read.
    if (MANY == 1) barrier();
}
