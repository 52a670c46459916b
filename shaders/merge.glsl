// The parts of `latent_split.comp` put together: each by its sum of weights, relative to the largest score of all. The
// kernel declares the sums `parts` (vec4) and `weights` (vec2).

// Channels 4 c .. 4 c + 3 of a row's head, of `count` parts. Nothing in sight gives 0.
vec4 merge_parts(uint r, uint head, uint c, uint heads, uint c4, uint count) {
    uint at = r * PARTS * heads + head;
    float top = -3.4e38;
    for (uint p = 0; p < count; p++) top = max(top, weights[at + p * heads].x);
    float total = 0.0;
    vec4 sum = vec4(0.0);
    for (uint p = 0; p < count; p++) {
        vec2 w = weights[at + p * heads];
        float share = exp(w.x - top);
        total = fma(w.y, share, total);
        sum = fma(parts[(at + p * heads) * c4 + c], vec4(share), sum);
    }
    return sum * (total == 0.0 ? 0.0 : 1.0 / total);
}
