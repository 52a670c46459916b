// Test kernel: reads through a buffer device address, scaled by a word of the parameter buffer.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
layout(constant_id = 1) const bool NEGATE = false;

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Floats { float at[]; };

layout(set = 0, binding = 0, std430) readonly buffer Params { uint factor; } params;
layout(set = 0, binding = 1, std430) writeonly buffer Target { float target[]; };

layout(push_constant) uniform Push {
    uint64_t source;
    uint count;
};

const float SIGN = NEGATE ? -1.0 : 1.0;

void main() {
    const uint at = gl_GlobalInvocationID.x;
    if (at < count) {
        target[at] = SIGN * float(params.factor) * Floats(source).at[at];
    }
}
