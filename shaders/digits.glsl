// Products of quads of matrix rows with input rows by dot products of bytes, for formats whose codes are small integers (BYTES
// in format_*.glsl). What `dots.glsl` does for the others; included once, behind `stripes.glsl`.
//
// A *block* is 32 columns. An input row's block becomes integers of 23 bits with a common power of two, cut into three digits of
// eight bits with signs, so that four products with codes are one instruction, and sums over a block are exact. What is lost is
// below 2^-22 of the largest input of a block, about what rounding loses in a sum of f32.
//
// An invocation has one of four quads (QUADS is 4) and one of STRIPES stripes, every STRIPES-th block. Those of a stripe are neighbours
// in a subgroup: each makes the digits of a quarter of the block, and sees the others' through shared memory.
//
// The kernel declares MATS matrices a call, NORM as in `dots.glsl`, FINE (factors may change within a block), and the input `x` or
// another INPUT; for `multiply` also MANY (there may be more than one row), BATCH_ROWS of them that fit into shared memory together, and
// input_at(row), where an input row begins, in vec4.
//
// A sum runs over the blocks of a stripe in order and then over stripes, whatever the number of rows.

#extension GL_EXT_integer_dot_product : require

#ifndef INPUT
#define INPUT(at) x[at]
#endif

const uint BLOCK = 32;
// Eight columns, of which an invocation makes the digits.
const uint UNITS = BLOCK / 8;
// Units of a stripe lie in different banks.
const uint PADDED = STRIPES + 2;
shared uvec2 low_digits[UNITS * PADDED];
shared uvec2 middle_digits[UNITS * PADDED];
shared uvec2 high_digits[UNITS * PADDED];
// The largest magnitude of each invocation's unit.
shared uint tops[LOCAL];

// 2^23, whose mantissa takes an integer, plus what makes all three digits positive: 64 of the highest, 128 of the others.
const float CARRIER = 8388608.0 + 4194304.0 + 32896.0;

// Byte i of each of four words, in the place i of the result.
uint bytes_of(uvec4 v, uint i) {
    uvec4 turned = uvec4(v.x >> 8 * i, i == 0 ? v.y << 8 : v.y >> 8 * (i - 1), i == 2 ? v.z : v.z << 8 * (2 - i), v.w << 8 * (3 - i));
    uint two = turned.x & 0xffu | turned.y & ~0xffu;
    uint three = two & 0xffffu | turned.z & ~0xffffu;
    return three & 0xffffffu | turned.w & ~0xffffffu;
}

// The three digits of four integers in the mantissa of CARRIER, with their signs.
uvec3 cut(vec4 carried) {
    uvec4 v = floatBitsToUint(carried);
    uint high = (bytes_of(v, 2) | 0x80808080u) - 0x40404040u;
    return uvec3(bytes_of(v, 0), bytes_of(v, 1), high) ^ 0x80808080u;
}

// The bits of the largest magnitude: of what is no number, more than any number's.
uint largest(uvec4 bits) {
    bits &= 0x7fffffffu;
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// Lets the invocations of a stripe see what they put into shared memory.
void meet() {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
}

// This invocation's unit of a block of the input row that begins at `at`; 0 behind the last column.
Eight load_unit(uint at, uint block, uint cols, uvec2 nw) {
    uint eight = UNITS * block + my_quad();
    if (8 * eight >= cols) return Eight(vec4(0.0), vec4(0.0));
    Eight v = Eight(INPUT(at + 2 * eight), INPUT(at + 2 * eight + 1));
    if (NORM == 2) v = Eight(v.lo * Vec4s(nw).at[2 * eight], v.hi * Vec4s(nw).at[2 * eight + 1]);
    return v;
}

// Puts the digits of this invocation's unit down and lets its stripe see them; the power of two that all of the block have.
float put_digits(Eight v) {
    tops[ME] = max(largest(floatBitsToUint(v.lo)), largest(floatBitsToUint(v.hi)));
    meet();
    uint top = 0;
    [[unroll]] for (uint i = 0; i < UNITS; i++) top = max(top, tops[my_stripe() * UNITS + i]);
    // Times 2^(148 - e) the block's largest is below 2^22, and so far below that what CARRIER adds to lower digits does not carry out of
    // the highest: an exponent more for mantissas from 1.984 on.
    uint e = clamp(top + 0x20400u >> 23, 22u, 254u);
    float up = uintBitsToFloat((275 - e) << 23);
#ifdef DIGITS_BY_PARITY
    v = Eight(vec4(v.lo.xz, v.hi.xz), vec4(v.lo.yw, v.hi.yw));
#endif
    uvec3 a = cut(fma(v.lo, vec4(up), vec4(CARRIER)));
    uvec3 b = cut(fma(v.hi, vec4(up), vec4(CARRIER)));
    uint at = my_quad() * PADDED + my_stripe();
    low_digits[at] = uvec2(a.x, b.x);
    middle_digits[at] = uvec2(a.y, b.y);
    high_digits[at] = uvec2(a.z, b.z);
    meet();
    // Infinities and what is no number have no digits: their sums are no numbers either.
    return top >= 0x7f800000u ? uintBitsToFloat(0x7fc00000u) : uintBitsToFloat((e - 21) << 23) * CODE_UNIT;
}

// Sums begin at the bits of this number: they are the mantissa of its sum with them, without a conversion.
const float ORIGIN = 12582912.0;

// Adds the products of a block of digits with the codes of a block, [unit][row of the quad], times `power` and the factors that are not
// the row's.
vec4 add_block(vec4 sum, ivec2 codes[UNITS][4], vec4 factors[UNITS], float power) {
    ivec4 low = ivec4(floatBitsToInt(ORIGIN)), middle = low, high = low;
    [[unroll]] for (uint unit = 0; unit < UNITS; unit++) {
        uint at = unit * PADDED + my_stripe();
        ivec2 l = ivec2(low_digits[at]), m = ivec2(middle_digits[at]), h = ivec2(high_digits[at]);
        [[unroll]] for (uint k = 0; k < 4; k++) {
            ivec2 c = codes[unit][k];
            low[k] += dotPacked4x8EXT(c.x, l.x);
            low[k] += dotPacked4x8EXT(c.y, l.y);
            middle[k] += dotPacked4x8EXT(c.x, m.x);
            middle[k] += dotPacked4x8EXT(c.y, m.y);
            high[k] += dotPacked4x8EXT(c.x, h.x);
            high[k] += dotPacked4x8EXT(c.y, h.y);
        }
        if (FINE == 0 && unit < UNITS - 1) continue;
        vec4 v = fma(intBitsToFloat(high) - ORIGIN, vec4(65536.0),
                     fma(intBitsToFloat(middle) - ORIGIN, vec4(256.0), intBitsToFloat(low) - ORIGIN));
#if SCALES == SCALES_GROUP
        sum = fma(factors[unit] * power, v, sum);
#else
        sum = fma(vec4(power), v, sum);
#endif
        low = middle = high = ivec4(floatBitsToInt(ORIGIN));
    }
    return sum;
}

// The words and factors of a quad's block.
void fetch_block(uvec2 w, uvec2 s, uint quad, uint wide, uint block, uint group, out uvec4 f[BLOCK / CHUNK][WORDS],
                 out vec4 factors[UNITS]) {
    [[unroll]] for (uint c = 0; c < BLOCK / CHUNK; c++) fetch(w, s, quad, wide, block * (BLOCK / CHUNK) + c, f[c]);
    // Without FINE only the last is used.
    [[unroll]] for (uint unit = 0; unit < UNITS; unit++) {
        factors[unit] = vec4(1.0);
#if SCALES == SCALES_GROUP
        if (FINE == 1 || unit == UNITS - 1) {
            factors[unit] = group_scales(w, s, quad, wide, block * (BLOCK / CHUNK) + 8 * unit / CHUNK, group);
        }
#endif
    }
}

void decode_block(uvec4 f[BLOCK / CHUNK][WORDS], out ivec2 codes[UNITS][4]) {
    [[unroll]] for (uint unit = 0; unit < UNITS; unit++) {
        [[unroll]] for (uint k = 0; k < 4; k++) codes[unit][k] = decode_bytes(f[unit * 8 / CHUNK], k, unit % (CHUNK / 8));
    }
}

// Adds the products of this stripe of the input row at `at` with all matrices, without row factors and norms.
void add_row(uint at, uvec2 w[MATS], uvec2 s[MATS], uvec2 nw, uint quad, uint cols, uint group, inout vec4 sums[MATS]) {
    uint wide = widened(cols);
    uint blocks = (cols + BLOCK - 1) / BLOCK;
    // Stripes that have no block left add nothing: a subgroup may hold several, and meets as a whole.
    [[dont_unroll]] for (uint from = 0; from < blocks; from += STRIPES) {
        uint block = from + my_stripe();
        uvec4 f[MATS][BLOCK / CHUNK][WORDS];
        vec4 factors[MATS][UNITS];
        [[unroll]] for (uint m = 0; m < MATS; m++) {
            fetch_block(w[m], s[m], quad, wide, min(block, blocks - 1), group, f[m], factors[m]);
        }
        float power = put_digits(load_unit(at, block, cols, nw));
        [[unroll]] for (uint m = 0; m < MATS; m++) {
            ivec2 codes[UNITS][4];
            decode_block(f[m], codes);
            sums[m] = add_block(sums[m], codes, factors[m], power);
        }
        meet();
    }
}

#ifdef BATCH_ROWS
// Puts the squares of `count` input rows from `first` on down, for `norm_factor`.
void square(uint first, uint count, uint cols) {
    if (NORM == 0) return;
    [[dont_unroll]] for (uint r = 0; r < count; r++) {
        uint at = input_at(first + r);
        float squares = 0.0;
        [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < cols / 8; i += LOCAL) {
            Eight v = Eight(INPUT(at + 2 * i), INPUT(at + 2 * i + 1));
            squares = dot8(v, v, squares);
        }
        put_squares(r, squares);
    }
}

// The same of `count` input rows from `first` on, whose codes are read once. Sums lie in shared memory, where the loop over rows can
// stay a loop: MATS a row, as `stage` leaves them.
void stage_rows(uint first, uint count, uvec2 w[MATS], uvec2 s[MATS], uvec2 nw, uint quad, uint cols, uint group) {
    uint wide = widened(cols);
    [[dont_unroll]] for (uint i = 0; i < count * MATS; i++) stage(i, vec4(0.0));
    uint blocks = (cols + BLOCK - 1) / BLOCK;
    // Stripes that have no block left add nothing: a subgroup may hold several, and meets as a whole.
    [[dont_unroll]] for (uint from = 0; from < blocks; from += STRIPES) {
        uint block = from + my_stripe();
        uvec4 f[MATS][BLOCK / CHUNK][WORDS];
        vec4 factors[MATS][UNITS];
        [[unroll]] for (uint m = 0; m < MATS; m++) {
            fetch_block(w[m], s[m], quad, wide, min(block, blocks - 1), group, f[m], factors[m]);
        }
        Eight v = load_unit(input_at(first), block, cols, nw);
        ivec2 codes[MATS][UNITS][4];
        [[unroll]] for (uint m = 0; m < MATS; m++) decode_block(f[m], codes[m]);
        [[dont_unroll]] for (uint r = 0; r < count; r++) {
            float power = put_digits(v);
            // The next row's on its way while this one is multiplied.
            if (r + 1 < count) v = load_unit(input_at(first + r + 1), block, cols, nw);
            [[unroll]] for (uint m = 0; m < MATS; m++) {
                stage(r * MATS + m, add_block(staged(r * MATS + m), codes[m], factors[m], power));
            }
            meet();
        }
    }
}

// Stages and collects the products of `n` input rows from `first` on with all matrices: MATS results a row.
void multiply(uint first, uint n, uvec2 w[MATS], uvec2 s[MATS], uvec2 nw, uint quad, uint cols, uint group) {
    square(first, n, cols);
    if (MANY == 0) {
        vec4 sums[MATS];
        [[unroll]] for (uint m = 0; m < MATS; m++) sums[m] = vec4(0.0);
        add_row(input_at(first), w, s, nw, quad, cols, group, sums);
        [[unroll]] for (uint m = 0; m < MATS; m++) stage(m, sums[m]);
        collect(0, MATS);
    } else {
        for (uint from = 0; from < n; from += BATCH_ROWS) {
            uint count = min(BATCH_ROWS, n - from);
            stage_rows(first + from, count, w, s, nw, quad, cols, group);
            collect(from * MATS, count * MATS);
        }
    }
}
#endif
