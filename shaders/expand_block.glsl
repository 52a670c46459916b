// Part of expand.comp, for one number of rows.
#include "dots.glsl"

void BLOCK(uint first_row, uint n) {
    // Quads are numbered through all heads: a workgroup may hold the end of one and the start of the next.
    uint first = OUTS * gl_WorkGroupID.x;
    uint out_at = min(first + 4 * my_quad(), heads * V_DIM - 4);
    uint head = (MERGE == 1 ? first : out_at) / V_DIM;
    uint quad = (head * nope + nope + out_at) / 4;
    uint x_at[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) x_at[r] = ((first_row + min(r, n - 1)) * heads + head) * rank / 4;
    if (MERGE == 1) {
        x_at[0] = 0;
        merge(first_row, head);
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
        if (at < heads * V_DIM) y[(first_row + i / OUTS) * heads * V_DIM + at] = total(i / OUTS, i % OUTS);
    }
}
