// Tiles of a product of decoded weights with rows in two halves (`halves.comp`), by cooperative matrices of SIDE x SIDE.
//
// A workgroup has OUTS matrix rows by ROWS input rows, and SUBGROUPS_M x SUBGROUPS_N subgroups of FRAGMENTS_M x FRAGMENTS_N
// matrices each. Thirty-two columns at a time lie in shared memory: weights as halves, which hold a code exactly, and both
// halves of the inputs; the next are on their way from memory meanwhile. Each 32 columns have sums of their own, which
// get the factors of their groups and are added to f32 sums outside: cooperative matrices may round their own sums down.
//
// The kernel declares
//   OUTS, ROWS         as above
//   x                  the inputs (uvec4)
//   row_begin(r)       where the high halves of the workgroup's row r begin in it, or ~0 for a row that is not there; the low
//                      halves lie a plane further on
//   FEW_ROWS           how many rows are there: the first ones; matrices of others alone are not multiplied. Left out where most
//                      workgroups are full: the branch costs more than it saves
//   weight_of(quad)    the matrix that a quad of the workgroup's OUTS rows belongs to, and its number there
//   REGIONS            how many matrices of results a subgroup puts down at once

#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require

// Columns at once; no group is shorter.
const uint COLS = 32;
// Loads of a row of a tile; one more keeps rows apart in the banks of shared memory.
const uint LOADS = COLS / 8;
const uint PITCH = LOADS + 1;

// A quad and eight columns each: the invocations that share a longer chunk fetch all of its words.
const uint WEIGHT_TASKS = (OUTS / 4) * LOADS;
const uint WEIGHTS_EACH = (WEIGHT_TASKS + LOCAL - 1) / LOCAL;
const uint INPUT_TASKS = ROWS * 2 * LOADS;
const uint INPUTS_EACH = (INPUT_TASKS + LOCAL - 1) / LOCAL;

shared uvec4 weight_tile[OUTS * PITCH];
shared uvec4 input_tile[2 * ROWS * PITCH];
#if SCALES == SCALES_GROUP
shared vec4 scale_tile[OUTS / 4];
#endif
shared float results[SUBGROUPS_M * SUBGROUPS_N * REGIONS * SIDE * SIDE];

#define MATRIX_A coopmat<float16_t, gl_ScopeSubgroup, SIDE, SIDE, gl_MatrixUseA>
#define MATRIX_B coopmat<float16_t, gl_ScopeSubgroup, SIDE, SIDE, gl_MatrixUseB>
#define MATRIX_SUM coopmat<float, gl_ScopeSubgroup, SIDE, SIDE, gl_MatrixUseAccumulator>

// What an invocation has on its way to shared memory.
struct Staged {
    uvec4 codes[WEIGHTS_EACH][WORDS];
    vec4 factors[WEIGHTS_EACH];
    uvec4 inputs[INPUTS_EACH];
};

uint weight_load(uint task) { return task % LOADS; }
uint weight_quad(uint task) { return task / LOADS; }

void load_weights(uint wide, uint col, uint group, inout Staged staged) {
    [[unroll]] for (uint i = 0; i < WEIGHTS_EACH; i++) {
        uint task = i * LOCAL + gl_LocalInvocationIndex;
        if (WEIGHT_TASKS % LOCAL != 0 && task >= WEIGHT_TASKS) break;
        Weight at = weight_of(weight_quad(task));
        uint chunk = (col + 8 * weight_load(task)) / CHUNK;
        fetch(at.w, at.s, at.quad, wide, chunk, staged.codes[i]);
#if SCALES == SCALES_GROUP
        if (weight_load(task) == 0) staged.factors[i] = group_scales(at.w, at.s, at.quad, wide, chunk, group);
#endif
    }
}

void load_inputs(uint plane, uint col, inout Staged staged) {
    [[unroll]] for (uint i = 0; i < INPUTS_EACH; i++) {
        uint task = i * LOCAL + gl_LocalInvocationIndex;
        if (INPUT_TASKS % LOCAL != 0 && task >= INPUT_TASKS) break;
        uint at = row_begin(task / LOADS % ROWS);
        staged.inputs[i] = at == ~0u ? uvec4(0) : x[at + (task / LOADS / ROWS) * plane + col / 8 + task % LOADS];
    }
}

void put(Staged staged) {
    [[unroll]] for (uint i = 0; i < WEIGHTS_EACH; i++) {
        uint task = i * LOCAL + gl_LocalInvocationIndex;
        if (WEIGHT_TASKS % LOCAL != 0 && task >= WEIGHT_TASKS) break;
        uint at = 4 * weight_quad(task) * PITCH + weight_load(task);
        uint part = weight_load(task) % (CHUNK / 8);
        [[unroll]] for (uint k = 0; k < 4; k++) weight_tile[at + k * PITCH] = decode_halves(staged.codes[i], k, part);
#if SCALES == SCALES_GROUP
        if (weight_load(task) == 0) scale_tile[weight_quad(task)] = staged.factors[i];
#endif
    }
    [[unroll]] for (uint i = 0; i < INPUTS_EACH; i++) {
        uint task = i * LOCAL + gl_LocalInvocationIndex;
        if (INPUT_TASKS % LOCAL != 0 && task >= INPUT_TASKS) break;
        input_tile[task / LOADS * PITCH + task % LOADS] = staged.inputs[i];
    }
}

// Where a region of this subgroup begins in the results.
uint region_at(uint region) { return (gl_SubgroupID * REGIONS + region) * SIDE * SIDE; }

uint subgroup_m() { return gl_SubgroupID % SUBGROUPS_M; }
uint subgroup_n() { return gl_SubgroupID / SUBGROUPS_M; }

// The first of the workgroup's rows in this subgroup's matrices n.
uint fragment_row(uint n) { return SIDE * (subgroup_n() * FRAGMENTS_N + n); }

MATRIX_SUM sums[FRAGMENTS_M * FRAGMENTS_N];

// Adds the products of what lies in shared memory, with their factors, to `sums`.
void multiply() {
    MATRIX_SUM part[FRAGMENTS_M * FRAGMENTS_N];
    [[unroll]] for (uint i = 0; i < FRAGMENTS_M * FRAGMENTS_N; i++) part[i] = MATRIX_SUM(0.0);
    [[unroll]] for (uint k = 0; k < COLS / SIDE; k++) {
        MATRIX_A a[FRAGMENTS_M];
        [[unroll]] for (uint m = 0; m < FRAGMENTS_M; m++) {
            uint row = SIDE * (subgroup_m() * FRAGMENTS_M + m);
            coopMatLoad(a[m], weight_tile, row * PITCH + k * SIDE / 8, PITCH, gl_CooperativeMatrixLayoutRowMajor);
        }
        [[unroll]] for (uint half_ = 0; half_ < 2; half_++) {
            [[unroll]] for (uint n = 0; n < FRAGMENTS_N; n++) {
#ifdef FEW_ROWS
                if (fragment_row(n) >= FEW_ROWS) break;
#endif
                uint row = half_ * ROWS + fragment_row(n);
                MATRIX_B b;
                coopMatLoad(b, input_tile, row * PITCH + k * SIDE / 8, PITCH, gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint m = 0; m < FRAGMENTS_M; m++) {
                    part[m * FRAGMENTS_N + n] = coopMatMulAdd(a[m], b, part[m * FRAGMENTS_N + n]);
                }
            }
        }
    }
    [[unroll]] for (uint m = 0; m < FRAGMENTS_M; m++) {
#if SCALES == SCALES_GROUP
        // The same factor along a matrix row: a stride of zero.
        MATRIX_SUM factors;
        uint row = SIDE * (subgroup_m() * FRAGMENTS_M + m);
        coopMatLoad(factors, scale_tile, row / 4, 0, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint n = 0; n < FRAGMENTS_N; n++) sums[m * FRAGMENTS_N + n] += part[m * FRAGMENTS_N + n] * factors;
#else
        [[unroll]] for (uint n = 0; n < FRAGMENTS_N; n++) sums[m * FRAGMENTS_N + n] += part[m * FRAGMENTS_N + n];
#endif
    }
}

// Makes `sums` those of the workgroup's tile.
void product(uint cols, uint group) {
    uint wide = widened(cols);
    [[unroll]] for (uint i = 0; i < FRAGMENTS_M * FRAGMENTS_N; i++) sums[i] = MATRIX_SUM(0.0);
    Staged staged;
    load_weights(wide, 0, group, staged);
    load_inputs(wide / 8, 0, staged);
    [[dont_unroll]] for (uint col = 0; col < wide; col += COLS) {
        barrier();
        put(staged);
        barrier();
        if (col + COLS < wide) {
            load_weights(wide, col + COLS, group, staged);
            load_inputs(wide / 8, col + COLS, staged);
        }
        multiply();
    }
}

// Puts matrix (m, n) of the sums down: this subgroup's region has value (o, r) at r * SIDE + o.
void put_down(uint region, uint m, uint n) {
    coopMatStore(sums[m * FRAGMENTS_N + n], results, region_at(region), SIDE, gl_CooperativeMatrixLayoutColumnMajor);
}
