// Softmax attention of one query in tiles of positions, with a running maximum: what attn.comp and attn_latent.comp
// share. The kernel declares the caches and names them KEYS and VALUES (vec4), fills `query`, and stages where the
// rows of a tile begin. The order of all sums follows from the positions alone.

const uint TILE = 128;
// Positions whose loads are under way together.
const uint AT_ONCE = 8;
// rank + rope of a latent row, or the channels of a head.
const uint MAX_WIDTH = 576;
// Places for sums: value channels in fours, times the parts of a tile that are summed side by side.
const uint MAX_SUMS = 512;
const float LOWEST = -3.4e38;

// Two tiles: the last may still be read while the next is staged.
shared uint key_rows[2][TILE];
shared uint value_rows[2][TILE];
shared vec4 query[MAX_WIDTH / 4];
shared vec4 tile_scores[TILE / 4];
shared vec4 tile_weights[TILE / 4];
shared vec4 sums[MAX_SUMS];

// Of all tiles so far: largest score, sum of weights. The start is finite, so that no infinity meets another.
float top = LOWEST;
float total = 0.0;
// Parts of a tile that are summed side by side, if a value has c4 fours.
uint parts;

void start_sums(uint c4) {
    parts = clamp(min(LOCAL, MAX_SUMS) / c4, 1, TILE / AT_ONCE);
    for (uint i = gl_LocalInvocationIndex; i < parts * c4; i += LOCAL) sums[i] = vec4(0.0);
}

// A subgroup scores AT_ONCE positions; places of a tile past `count` get LOWEST.
void score_tile(uint tile, uint count, uint width4, float scale) {
    for (uint t = AT_ONCE * gl_SubgroupID; t < TILE; t += AT_ONCE * gl_NumSubgroups) {
        float score[AT_ONCE];
        [[unroll]] for (uint k = 0; k < AT_ONCE; k++) score[k] = LOWEST;
        if (t < count) {
            vec4 part[AT_ONCE];
            [[unroll]] for (uint k = 0; k < AT_ONCE; k++) part[k] = vec4(0.0);
            for (uint c = lane; c < width4; c += lanes) {
                vec4 q = query[c];
                [[unroll]] for (uint k = 0; k < AT_ONCE; k++) part[k] = fma(q, KEYS[key_rows[tile][t + k] + c], part[k]);
            }
            [[unroll]] for (uint k = 0; k < AT_ONCE; k++) {
                float sum = subgroupAdd((part[k].x + part[k].y) + (part[k].z + part[k].w));
                if (t + k < count) score[k] = sum * scale;
            }
        }
        if (lane == 0) {
            [[unroll]] for (uint k = 0; k < AT_ONCE; k += 4) {
                tile_scores[(t + k) / 4] = vec4(score[k], score[k + 1], score[k + 2], score[k + 3]);
            }
        }
    }
}

// Turns scores into weights relative to the largest so far; returns what older sums are worth now.
float weigh_tile(uint count) {
    float old = top;
    vec4 most = vec4(top);
    [[unroll]] for (uint i = 0; i < TILE / 4; i++) most = max(most, tile_scores[i]);
    top = max(max(most.x, most.y), max(most.z, most.w));
    for (uint i = gl_LocalInvocationIndex; i < TILE / 4; i += LOCAL) {
        vec4 weight = exp(tile_scores[i] - top);
        tile_weights[i] = mix(vec4(0.0), weight, lessThan(uvec4(0, 1, 2, 3) + 4 * i, uvec4(count)));
    }
    barrier();
    float decay = exp(old - top);
    vec4 sum = vec4(0.0);
    [[unroll]] for (uint i = 0; i < TILE / 4; i++) sum += tile_weights[i];
    total = fma(total, decay, (sum.x + sum.y) + (sum.z + sum.w));
    return decay;
}

void sum_tile(uint tile, uint count, uint c4, float decay) {
    for (uint i = gl_LocalInvocationIndex; i < parts * c4; i += LOCAL) {
        uint c = i % c4;
        vec4 sum = sums[i] * decay;
        for (uint t = AT_ONCE * (i / c4); t < count; t += AT_ONCE * parts) {
            [[unroll]] for (uint k = 0; k < AT_ONCE; k++) {
                sum = fma(vec4(tile_weights[(t + k) / 4][k % 4]), VALUES[value_rows[tile][t + k] + c], sum);
            }
        }
        sums[i] = sum;
    }
}

// One staged tile. Rows of places past `count` repeat the last position's; their weight is 0.
void attend_tile(uint tile, uint count, uint width4, uint c4, float scale) {
    barrier();
    score_tile(tile, count, width4, scale);
    barrier();
    float decay = weigh_tile(count);
    sum_tile(tile, count, c4, decay);
}

// The result's channels 4 c .. 4 c + 3, after the last tile and a barrier. Nothing in sight gives 0.
vec4 attended(uint c, uint c4) {
    vec4 sum = sums[c];
    for (uint part = 1; part < parts; part++) sum += sums[part * c4 + c];
    return sum * (total == 0.0 ? 0.0 : 1.0 / total);
}
