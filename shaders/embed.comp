// formats: f32 bf16 f16 i8 i4 i4g i2 i3 mx fp8 fp8e
#version 460
// A row of the embedding matrix per token, `repeat` times. A chunk of channels an invocation.
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
    uint chunk = gl_WorkGroupID.x * LOCAL + gl_LocalInvocationIndex;
    if (CHUNK * chunk >= d) return;
    uint token = row_token(r);
    uint wide = widened(d);
    uvec4 f[WORDS];
    fetch(w, s, token / 4, wide, chunk, f);
    float factor = row_scale(s, token) * group_scales(w, s, token / 4, wide, chunk, group)[token % 4];
    [[unroll]] for (uint part = 0; part < CHUNK / 8; part++) {
        uint c = CHUNK * chunk + 8 * part;
        if (c >= d) break;
        Eight v = decode(f, token % 4, part);
        for (uint i = 0; i < repeat; i++) {
            uint at = ((r * repeat + i) * d + c) / 4;
            y[at] = v.lo * factor;
            y[at + 1] = v.hi * factor;
        }
    }
}
