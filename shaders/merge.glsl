// The parts that a split attention left of a row's head, each by its sum of weights relative to the largest score of all. The
// kernel names the sums SUMS (vec4) and WEIGHTS (vec2), and the two functions. A head's parts are `heads` apart from `at` on.
//
// Every fourth part is added for itself, and then the four: loads of four parts are under way together, and expand.comp, which has
// an invocation for each of the four, comes to the same bits.

// The largest score, or `top` if that is larger.
float LARGEST(uint at, uint heads, uint count, float top) {
    [[dont_unroll]] for (uint p = 0; p < count; p += 4) {
        // Behind the last the last is repeated.
        [[unroll]] for (uint i = 0; i < 4; i++) top = max(top, WEIGHTS[at + min(p + i, count - 1) * heads].x);
    }
    return top;
}

// Adds fours c of the channels, of c4, and the sums of weights.
void ADD_PARTS(uint at, uint heads, uint c, uint c4, uint count, float top, inout float total, inout vec4 sum) {
    float totals[4] = float[4](0.0, 0.0, 0.0, 0.0);
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    [[dont_unroll]] for (uint p = 0; p < count; p += 4) {
        [[unroll]] for (uint i = 0; i < 4; i++) {
            uint part = at + min(p + i, count - 1) * heads;
            vec2 w = WEIGHTS[part];
            float share = p + i < count ? exp(w.x - top) : 0.0;
            totals[i] = fma(w.y, share, totals[i]);
            sums[i] = fma(SUMS[part * c4 + c], vec4(share), sums[i]);
        }
    }
    [[unroll]] for (uint i = 0; i < 4; i++) {
        total += totals[i];
        sum += sums[i];
    }
}
