#version 460
// y = sum over ranks of weight * product, in rank order, for a slice of the outputs; each product is a rounded f32.
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 256;
layout(constant_id = 1) const uint ADD0 = 0;
layout(constant_id = 2) const uint ADD1 = 0;

layout(set = 0, binding = 1, std430) readonly buffer Products { float products[]; };
layout(set = 0, binding = 2, std430) readonly buffer Route { uint route[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 4, std430) readonly buffer Add0 { float add0[]; };
layout(set = 0, binding = 5, std430) readonly buffer Add1 { float add1[]; };

layout(push_constant, std430) uniform Push {
    uint k;
    uint out_;
    uint from;
    uint slice;
    uint y_stride;
    uint y_off;
};

void main() {
    uint r = gl_WorkGroupID.y;
    uint o = gl_WorkGroupID.x * LOCAL + gl_LocalInvocationIndex;
    uint at = from + o;
    if (o >= slice || at >= out_) return;
    precise float v = 0.0;
    for (uint j = 0; j < k; j++) {
        v = v + uintBitsToFloat(route[r * 2 * k + k + j]) * products[(r * k + j) * slice + o];
    }
    if (ADD0 == 1) v += add0[r * out_ + at];
    if (ADD1 == 1) v += add1[r * out_ + at];
    y[r * y_stride + y_off + at] = v;
}
