#version 460
// The k positions with the largest scores, ties to the lowest, ascending. Exact: the k-th largest key is found by
// its bits, eleven at a time, by counting; then positions above it and the first of its equals are written in order. NaN
// has no place in that order: a row that has one to choose from selects nothing, and attention makes NaN of that.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint EVERY = 1;

#include "params.glsl"
#include "reduce.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Scores { float scores[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Sel { uint sel[]; };

layout(push_constant, std430) uniform Push {
    uint k;
    uint scores_stride;
};

const uint BINS = 2048;
// Positions an invocation looks at between two scans; 16 * 1024 fits the 16 bits that a packed count has.
const uint RUN = 16;

shared uint bins[BINS];
shared uint found_bin;
shared uint found_rank;
shared uint disordered;

// Number of this invocation in scan order.
uint me;

// Keys of four positions from t on, `stride` apart, loaded together; what lies past the end repeats the last. What follows the
// loads goes round four times, so that there is less code to read.
uvec4 four_keys(uint at, uint t, uint stride, uint n) {
    vec4 v;
    [[unroll]] for (uint i = 0; i < 4; i++) v[i] = scores[at + min(t + i * stride, n - 1)];
    uvec4 keys;
    [[dont_unroll]] for (uint i = 0; i < 4; i++) {
        keys = uvec4(keys.yzw, ordered(v.x));
        v = v.yzwx;
    }
    return keys;
}

// The highest bin that has at least `want` keys in it and above; `want` becomes the rank inside that bin.
uint find_bin(inout uint want) {
    const uint each = (BINS + LOCAL - 1) / LOCAL;
    // Invocations own runs of bins from the top down.
    uint from = BINS - min(BINS, me * each);
    uint to = BINS - min(BINS, (me + 1) * each);
    uint own = 0;
    [[dont_unroll]] for (uint b = to; b < from; b++) own += bins[b];
    uint all;
    uint above = workgroup_scan(own, all);
    if (above < want && want <= above + own) {
        uint b = from - 1;
        [[dont_unroll]] while (above + bins[b] < want) above += bins[b--];
        found_bin = b;
        found_rank = want - above;
    }
    barrier();
    want = found_rank;
    return found_bin;
}

void main() {
    uint r = gl_WorkGroupID.y;
    uint n = row_visible(r) / EVERY;
    uint at = r * scores_stride;
    uint to = r * (k + 1);
    if (gl_LocalInvocationIndex == 0) sel[to] = min(n, k);
    to++;
    if (n <= k) {
        [[dont_unroll]] for (uint t = gl_LocalInvocationIndex; t < n; t += LOCAL) sel[to + t] = t;
        return;
    }
    uint all;
    if (gl_LocalInvocationIndex == 0) disordered = 0;
    me = workgroup_scan(1, all);

    uint threshold = 0;
    uint known = 0;
    uint want = k;
    [[dont_unroll]] for (uint pass = 0; pass < 3; pass++) {
        uint shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
        uint mask = pass == 2 ? 1023 : 2047;
        [[dont_unroll]] for (uint b = gl_LocalInvocationIndex; b < BINS; b += LOCAL) bins[b] = 0;
        barrier();
        [[dont_unroll]] for (uint t = gl_LocalInvocationIndex; t < n; t += 4 * LOCAL) {
            uvec4 keys = four_keys(at, t, LOCAL, n);
            if (any(equal(keys, uvec4(NO_NUMBER)))) atomicOr(disordered, 1);
            [[dont_unroll]] for (uint p = t; p < min(n, t + 4 * LOCAL); p += LOCAL) {
                if ((keys.x & known) == threshold) atomicAdd(bins[(keys.x >> shift) & mask], 1);
                keys = keys.yzwx;
            }
        }
        barrier();
        threshold |= find_bin(want) << shift;
        known |= mask << shift;
    }
    if (disordered != 0) {
        if (gl_LocalInvocationIndex == 0) sel[to - 1] = 0;
        return;
    }

    // Now `want` of the keys equal to the threshold belong to the selection: the first ones.
    uint above = 0;
    uint equal = 0;
    [[dont_unroll]] for (uint first = 0; first < n && above + min(equal, want) < k; first += RUN * LOCAL) {
        uint from = first + me * RUN;
        uint end = min(from + RUN, n);
        uint found = 0;
        [[dont_unroll]] for (uint t = from; t < end; t += 4) {
            uvec4 keys = four_keys(at, t, 1, n);
            [[dont_unroll]] for (uint p = t; p < min(end, t + 4); p++) {
                found += keys.x > threshold ? 1 : keys.x == threshold ? 0x10000 : 0;
                keys = keys.yzwx;
            }
        }
        uint before = workgroup_scan(found, all);
        uint a = above + (before & 0xffff);
        uint e = equal + (before >> 16);
        if (found != 0) {
            [[dont_unroll]] for (uint t = from; t < end; t++) {
                uint key = ordered(scores[at + t]);
                if (key > threshold) {
                    sel[to + a + min(e, want)] = t;
                    a++;
                } else if (key == threshold) {
                    if (e < want) sel[to + a + e] = t;
                    e++;
                }
            }
        }
        above += all & 0xffff;
        equal += all >> 16;
    }
}
