// The parts that a split attention left of a row's head, each by its sum of weights relative to the largest score of all. The
// kernel names the sums SUMS (vec4) and WEIGHTS (vec2), and the two functions. A head's parts are `heads` apart from `at` on.

// The largest score, or `top` if that is larger.
float LARGEST(uint at, uint heads, uint count, float top) {
    for (uint p = 0; p < count; p++) top = max(top, WEIGHTS[at + p * heads].x);
    return top;
}

// Adds fours c of the channels, of c4, and the sums of weights.
void ADD_PARTS(uint at, uint heads, uint c, uint c4, uint count, float top, inout float total, inout vec4 sum) {
    for (uint p = 0; p < count; p++) {
        vec2 w = WEIGHTS[at + p * heads];
        float share = exp(w.x - top);
        total = fma(w.y, share, total);
        sum = fma(SUMS[(at + p * heads) * c4 + c], vec4(share), sum);
    }
}
