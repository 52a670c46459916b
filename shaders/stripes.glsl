// The workgroup behind `dots.glsl` and `digits.glsl`: who has which quad and stripe, and the sums over stripes. The kernel declares
// LOCAL, QUADS, which divides it, NORM, ROWS_MOST input rows, and RESULTS: how many results of a workgroup's rows it
// keeps at once; with DIGITS (`digits.glsl`) also BATCH.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

const uint STRIPES = LOCAL / QUADS;
// Matrix rows of a workgroup.
const uint OUTS = 4 * QUADS;
#ifdef DIGITS
// The invocations of a stripe exchange digits, so they must be neighbours in a subgroup: Vulkan promises that of no other number.
// Subgroups are full.
#define ME (gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID)
#else
#define ME gl_LocalInvocationIndex
// Results whose stripes are added in one go: 8 KiB of shared memory hold them.
const uint BATCH = LOCAL >= 512 ? 1 : 512 / LOCAL;
#endif

shared vec4 parts[BATCH * LOCAL];
// [result][row][quarter of the stripes]
shared vec4 quarters[RESULTS * OUTS];
// [input row][subgroup]
shared float square_parts[NORM == 0 ? 1 : ROWS_MOST * (LOCAL / 4)];

uint my_quad() { return ME % QUADS; }
uint my_stripe() { return ME / QUADS; }

// This invocation's quad of the workgroup's rows from `first` on: the last one for those that lie behind `rows`.
uint quad_of(uint first, uint rows) { return min(first / 4 + my_quad(), 4 * ((rows + 15) / 16) - 1); }

// Puts this invocation's part of result number `i` of the batch down.
void stage(uint i, vec4 sum) { parts[i * LOCAL + ME] = sum; }

vec4 staged(uint i) { return parts[i * LOCAL + ME]; }

// Adds the stripes of `count` staged results up, the first of which is result `first`. In uniform control flow.
void collect(uint first, uint count) {
    barrier();
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < count * OUTS * 4; i += LOCAL) {
        uint quarter = i % 4;
        uint row = i / 4 % OUTS;
        uint b = i / 4 / OUTS;
        float sum = 0.0;
        [[dont_unroll]] for (uint s = quarter; s < STRIPES; s += 4) sum += parts[b * LOCAL + s * QUADS + row / 4][row % 4];
        quarters[(first + b) * OUTS + row][quarter] = sum;
    }
    barrier();
}

// A whole result, without the factors of row and norm.
float total(uint result, uint row) {
    vec4 q = quarters[result * OUTS + row];
    return (q.x + q.y) + (q.z + q.w);
}

// Puts this invocation's part of the squares of input row r down. In uniform control flow.
void put_squares(uint r, float squares) {
    float part = subgroupAdd(squares);
    if (subgroupElect()) square_parts[r * (LOCAL / 4) + gl_SubgroupID] = part;
}

// The same of a stripe's squares, which are the same for all quads.
void stage_squares(uint r, float squares) {
    if (NORM != 0) put_squares(r, my_quad() == 0 ? squares : 0.0);
}

// The factor that the norm gives input row r, after a `collect`.
float norm_factor(uint r, uint cols, float eps) {
    if (NORM == 0) return 1.0;
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += square_parts[r * (LOCAL / 4) + i];
    return inverse_rms(sum, cols, eps);
}
