// Test kernel: out = in * 3 + 1, so that a chain shows which passes ran, and in which order.
#version 460

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;

layout(set = 0, binding = 0, std430) readonly buffer Source { float source[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Target { float target[]; };

layout(push_constant) uniform Push { uint count; };

void main() {
    const uint at = gl_GlobalInvocationID.x;
    if (at < count) {
        target[at] = source[at] * 3.0 + 1.0;
    }
}
