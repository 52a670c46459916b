// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// y = W x (+ bias) (+ add) for many rows: 64 outputs of 64 rows a workgroup, weights decoded once into shared memory.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 256;
layout(constant_id = 2) const uint BIAS = 0;
layout(constant_id = 3) const uint ADD = 0;
layout(constant_id = 4) const uint GATHER = 0;

#include "params.glsl"
#include "format.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 3, std430) readonly buffer Add { float add[]; };

layout(push_constant, std430) uniform Push {
    uvec2 w;
    uvec2 s;
    uvec2 nw;
    uvec2 bias;
    uint inp;
    uint out_;
    uint x_stride;
    uint x_off;
    uint y_stride;
    uint y_off;
    uint add_stride;
    uint add_off;
    uint group;
    float eps;
};

const uint OUTS = 64;
const uint ROWS = 64;
const uint DEPTH = 32;

// Column-major: four neighbours are one load.
shared vec4 tile_w[DEPTH][OUTS / 4];
shared vec4 tile_x[DEPTH][ROWS / 4];

// Invocations that stage weights; the others stage inputs meanwhile.
const uint DECODERS = LOCAL / 4;

// A quad by a chunk of columns an invocation.
void stage_weights(uint first, uint col) {
    uint wide = widened(inp);
    uint quads = 4 * ((out_ + 15) / 16);
    for (uint i = gl_LocalInvocationIndex; i < (OUTS / 4) * (DEPTH / CHUNK); i += DECODERS) {
        uint o = i % (OUTS / 4);
        uint local_chunk = i / (OUTS / 4);
        uint chunk = col / CHUNK + local_chunk;
        // Rows behind the last are repeated; their results are not kept.
        uint quad = min(first / 4 + o, quads - 1);
        uvec4 f[WORDS];
        vec4 factors = vec4(0.0);
        [[unroll]] for (uint k = 0; k < WORDS; k++) f[k] = uvec4(0);
        if (CHUNK * chunk < wide) {
            fetch(w, s, quad, wide, chunk, f);
            factors = group_scales(w, s, quad, wide, chunk, group);
        }
        [[unroll]] for (uint part = 0; part < CHUNK / 8; part++) {
            uint c = CHUNK * local_chunk + 8 * part;
            Eight v[4];
            [[unroll]] for (uint k = 0; k < 4; k++) {
                v[k] = decode(f, k, part);
                v[k] = Eight(v[k].lo * factors[k], v[k].hi * factors[k]);
            }
            [[unroll]] for (uint k = 0; k < 4; k++) {
                tile_w[c + k][o] = vec4(v[0].lo[k], v[1].lo[k], v[2].lo[k], v[3].lo[k]);
                tile_w[c + 4 + k][o] = vec4(v[0].hi[k], v[1].hi[k], v[2].hi[k], v[3].hi[k]);
            }
        }
    }
}

// Four rows by four columns an invocation.
void stage_inputs(uint first_row, uint rows, uint col) {
    for (uint i = gl_LocalInvocationIndex - DECODERS; i < (ROWS / 4) * (DEPTH / 4); i += LOCAL - DECODERS) {
        uint r = i % (ROWS / 4);
        uint c = 4 * (i / (ROWS / 4));
        vec4 v[4];
        [[unroll]] for (uint k = 0; k < 4; k++) {
            uint row = first_row + 4 * r + k;
            v[k] = vec4(0.0);
            if (row < rows && col + c < inp) {
                if (GATHER == 1) row = output_row(row);
                v[k] = x[(row * x_stride + x_off + col + c) / 4];
            }
        }
        [[unroll]] for (uint k = 0; k < 4; k++) tile_x[c + k][r] = vec4(v[0][k], v[1][k], v[2][k], v[3][k]);
    }
}

void main() {
    uint rows = GATHER == 1 ? step_outputs() : step_rows();
    uint first_row = ROWS * gl_WorkGroupID.y;
    if (first_row >= rows) return;
    uint first = OUTS * gl_WorkGroupID.x;
    // This invocation's patch: four outputs of four rows. All patches need 256 invocations.
    uint po = gl_LocalInvocationIndex % (OUTS / 4);
    uint pr = gl_LocalInvocationIndex / (OUTS / 4);
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    for (uint col = 0; col < inp; col += DEPTH) {
        barrier();
        if (gl_LocalInvocationIndex < DECODERS) {
            stage_weights(first, col);
        } else {
            stage_inputs(first_row, rows, col);
        }
        barrier();
        // A sum of its own for each tile keeps the rounding error that of a short sum.
        vec4 part[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
        if (first_row + 4 * pr < rows) {
            // Four at a time: enough loads in flight, and few registers.
            [[dont_unroll]] for (uint c4 = 0; c4 < DEPTH; c4 += 4) {
                [[unroll]] for (uint c = c4; c < c4 + 4; c++) {
                    vec4 a = tile_w[c][po];
                    vec4 b = tile_x[c][pr];
                    [[unroll]] for (uint r = 0; r < 4; r++) part[r] = fma(a, vec4(b[r]), part[r]);
                }
            }
        }
        [[unroll]] for (uint r = 0; r < 4; r++) sums[r] += part[r];
    }
    for (uint r = 0; r < 4; r++) {
        uint row = first_row + 4 * pr + r;
        if (row >= rows) break;
        // Chosen, not indexed: sums stay in registers.
        vec4 sum = r == 0 ? sums[0] : r == 1 ? sums[1] : r == 2 ? sums[2] : sums[3];
        for (uint k = 0; k < 4; k++) {
            uint o = first + 4 * po + k;
            if (o >= out_) break;
            float v = (k == 0 ? sum.x : k == 1 ? sum.y : k == 2 ? sum.z : sum.w) * row_scale(s, o);
            if (BIAS == 1) v += Floats(bias).at[o];
            if (ADD == 1) v += add[row * add_stride + add_off + o];
            y[row * y_stride + y_off + o] = v;
        }
    }
}
