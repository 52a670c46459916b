// Part of expand.comp, for one number of rows.
#include "dots.glsl"

void BLOCK(uvec2 mine, uint first_row, uint n) {
    const uint outs = min(OUTS, AT_ONCE);
    uint count;
    for (uint o = mine.x; o < mine.y; o += count) {
        uint head = o / v_dim;
        uint left = v_dim - o % v_dim;
        count = min(outs, min(left, mine.y - o));
        uint x_at[ROWS];
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            x_at[r] = ((first_row + min(r, n - 1)) * heads + head) * rank / 4;
        }
        float sums[OUTS * ROWS];
        uint row = head * (nope + v_dim) + nope + o % v_dim;
        DOTS(n, uvec2[1](w), uvec2[1](s), uvec2(0), row, count, rank, group, x_at, 0.0, sums);
        for (uint i = lane; i < count * ROWS; i += lanes) {
            if (i % ROWS < n) y[(first_row + i % ROWS) * heads * v_dim + o + i / ROWS] = PICK(sums, i);
        }
    }
}
