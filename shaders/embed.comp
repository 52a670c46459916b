// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// A row of the embedding matrix per token, `repeat` times. Eight channels an invocation.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;

#include "params.glsl"
#include "format.glsl"

layout(set = 0, binding = 1, std430) writeonly buffer Y { vec4 y[]; };

layout(push_constant, std430) uniform Push {
    uvec2 w;
    uvec2 s;
    uint d;
    uint repeat;
    uint group;
};

void main() {
    uint r = gl_WorkGroupID.y;
    uint c = 8 * (gl_WorkGroupID.x * LOCAL + gl_LocalInvocationIndex);
    if (c >= d) return;
    Eight v = load8(w, s, row_token(r), d, c, group);
    for (uint i = 0; i < repeat; i++) {
        uint at = ((r * repeat + i) * d + c) / 4;
        y[at] = v.lo;
        y[at + 1] = v.hi;
    }
}
