// Reads of a query that is rotated on the way: four channels at a time, in the layout of halves that rotated keys have.
//
// The kernel declares ROPE: 0 none, 1 pairs (2j, 2j+1) in memory, 2 pairs (j, j + dims/2); the query `q` (vec4), the rotations `rope`,
// and `rope_at` and `rope_dims`: multiples of 4 and of 8.

// Channels 4 c .. 4 c + 3 of the head that begins at `at`, in fours, for row r.
vec4 rotated(uint r, uint at, uint c) {
    uint t = 4 * c - rope_at;
    // Below the range t wraps to above it.
    if (ROPE == 0 || t >= rope_dims) return q[at + c];
    uint pairs = rope_dims / 2;
    uint j = t < pairs ? t : t - pairs;
    uint from = at + rope_at / 4;
    vec4 lo = q[from + (ROPE == 2 ? j / 4 : j / 2)];
    vec4 hi = q[from + (ROPE == 2 ? (j + pairs) / 4 : j / 2 + 1)];
    vec4 a = ROPE == 2 ? lo : vec4(lo.xz, hi.xz);
    vec4 b = ROPE == 2 ? hi : vec4(lo.yw, hi.yw);
    vec4 cosine;
    vec4 sine;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        vec2 cs = rope[r * pairs + j + i];
        cosine[i] = cs.x;
        sine[i] = cs.y;
    }
    return t < pairs ? fma(a, cosine, -(b * sine)) : fma(b, cosine, a * sine);
}
