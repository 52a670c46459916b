// Part of expand.comp, for one number of rows.
#include "dots.glsl"

void BLOCK(uint first_row, uint n) {
    // Quads are numbered through all heads: a workgroup may hold the end of one and the start of the next.
    uint first = OUTS * gl_WorkGroupID.x;
    uint out_at = min(first + 4 * my_quad(), heads * v_dim - 4);
    uint head = out_at / v_dim;
    uint quad = (head * (nope + v_dim) + nope + out_at % v_dim) / 4;
    uint x_at[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) x_at[r] = ((first_row + min(r, n - 1)) * heads + head) * rank / 4;
    if (MERGE == 1) {
        uint c4 = rank / 4;
        x_at[0] = 0;
        uint count = parts_of(SELECT == 1 ? sel[first_row * (sel_k + 1)] : row_visible(first_row));
        uint at = first_row * PARTS * heads + head;
        float top = largest(at, heads, count, LOWEST);
        for (uint c = gl_LocalInvocationIndex; c < c4; c += LOCAL) {
            float total = 0.0;
            vec4 sum = vec4(0.0);
            add_parts(at, heads, c, c4, count, top, total, sum);
            merged[c] = sum * (total == 0.0 ? 0.0 : 1.0 / total);
        }
        barrier();
    }
    vec4 sums[ROWS];
    float squares[ROWS];
    DOTS(n, uvec2[1](w), uvec2[1](s), uvec2(0), quad, rank, group, x_at, sums, squares);
    vec4 scales = row_scales(s, quad);
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        if (r >= n) break;
        stage(r % BATCH, sums[r] * scales);
        if (r % BATCH == BATCH - 1 || r == n - 1) collect(r / BATCH * BATCH, r % BATCH + 1);
    }
    for (uint i = gl_LocalInvocationIndex; i < OUTS * n; i += LOCAL) {
        uint at = first + i % OUTS;
        if (at < heads * v_dim) y[(first_row + i / OUTS) * heads * v_dim + at] = total(i / OUTS, i % OUTS);
    }
}
