#version 460
// Chooses experts for a row and weighs them. A workgroup per row.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const uint K = 1;
layout(constant_id = 2) const uint EXPERTS = 4;
layout(constant_id = 3) const uint SCORE = 0;
layout(constant_id = 4) const uint BIAS = 0;
layout(constant_id = 5) const uint RENORM = 0;
layout(constant_id = 6) const uint GROUPS = 1;
layout(constant_id = 7) const uint TOP_GROUPS = 1;
layout(constant_id = 8) const uint GROUP_MAX = 0;

#include "params.glsl"
#include "address.glsl"
#include "glu.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Z { float z[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Route { uint chosen_route[]; };

layout(push_constant, std430) uniform Push {
    uvec2 bias;
    float sum_eps;
    float scale;
};

#include "choose.glsl"

void main() { choose(gl_WorkGroupID.y, K, true); }
