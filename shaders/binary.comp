#version 460
// y = f(a, b), value by value; 256 values of a row a workgroup. y may be the same memory as a or b.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint KIND = 0;

#include "params.glsl"
#include "glu.glsl"

layout(set = 0, binding = 1, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 2, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { float y[]; };

layout(push_constant, std430) uniform Push {
    uint n;
    uint a_stride;
    uint a_off;
    uint b_stride;
    uint b_off;
    uint y_stride;
    uint y_off;
    float p0;
    float p1;
};

const uint ADD = 0;
const uint MUL_SIGMOID = 1;
// 2 to 5 are the gated units of glu.glsl.
const uint SIGMOID = 6;
const uint COPY = 7;

float apply(float g, uint i) {
    if (KIND == COPY) return g;
    if (KIND == SIGMOID) return sigmoid(g);
    float u = b[i];
    if (KIND == ADD) return g + u;
    if (KIND == MUL_SIGMOID) return g * sigmoid(u);
    return glu(KIND - 2, g, u, p0, p1);
}

void main() {
    uint r = gl_WorkGroupID.y;
    uint first = 256 * gl_WorkGroupID.x;
    uint end = min(first + 256, n);
    for (uint i = first + gl_LocalInvocationIndex; i < end; i += LOCAL) {
        y[r * y_stride + y_off + i] = apply(a[r * a_stride + a_off + i], r * b_stride + b_off + i);
    }
}
