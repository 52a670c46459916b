#version 460
// The highest value of a stretch of a row and where it is, ties to the lowest place: of the values themselves, or of what
// an earlier pass found in the row's stretches. A value that is not finite beats all others, so that a row which has one says
// so, and says where the first is.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
// 0: x is rows of f32. 1: x is rows of (key, place).
layout(constant_id = 1) const uint FOUND = 0;

#include "params.glsl"
#include "reduce.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { uvec2 y[]; };

layout(push_constant, std430) uniform Push {
    uint n;
    uint stretch;
};

// Above the key of every number: that of a NaN whose bits are all ones, which `ordered` does not give out.
const uint NOT_FINITE = 0xffffffffu;

// Bits, not floats: a device may take a NaN or a denormal for something else.
uint key(uint bits, uint place) {
    uint size = bits & 0x7fffffffu;
    if (size >= 0x7f800000u) return NOT_FINITE;
    // Below the key of every number: places that may not be chosen.
    if (place >= step_choices()) return 0;
    // As `ordered` has it, but -0 is as high as +0.
    return (bits & 0x80000000u) == 0 || size == 0 ? size | 0x80000000u : ~bits;
}

uvec2 candidate(uint row, uint i) {
    uint at = row * n + i;
    return FOUND == 1 ? uvec2(x[2 * at], x[2 * at + 1]) : uvec2(key(x[at], i), i);
}

void main() {
    uint row = gl_WorkGroupID.y;
    uint first = gl_WorkGroupID.x * stretch;
    uint end = min(first + stretch, n);
    // Places rise from one turn to the next, so the first of equals stays.
    uvec2 best = uvec2(0, 0xffffffffu);
    for (uint i = first + gl_LocalInvocationIndex; i < end; i += LOCAL) {
        uvec2 found = candidate(row, i);
        if (found.x > best.x || best.y == 0xffffffffu) best = found;
    }
    uint top = workgroup_max(best.x);
    uint place = ~workgroup_max(best.x == top ? ~best.y : 0);
    if (gl_LocalInvocationIndex == 0) y[row * gl_NumWorkGroups.x + gl_WorkGroupID.x] = uvec2(top, place);
}
