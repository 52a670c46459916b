// formats: f32 i4g
// Test kernel: everything that the build has to reflect, in two variants that push different constants.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(local_size_x = 4, local_size_y = 2) in;
layout(constant_id = 3) const uint KIND = 0;
layout(constant_id = 8) const bool FLIP = true;

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Words { uint at[]; };

layout(set = 0, binding = 2, std430) buffer Both { uint both[]; };
layout(set = 1, binding = 0, std430) readonly buffer Mixed { uint count; uint rest[]; } source;
layout(set = 1, binding = 7, std430) buffer Half { readonly uint size; uint target[]; } half_declared;

layout(push_constant) uniform Push {
    Words words;
    uint n;
#if FORMAT_I4G
    // An array of vectors, behind padding.
    layout(offset = 16) uvec2 pairs[6];
#endif
};

const uint STEP = FLIP ? KIND + 1 : KIND * 2;
const bool ODD = KIND == 3u && !FLIP;

void main() {
    const uint at = gl_GlobalInvocationID.x * STEP;
    if (at >= n || at >= half_declared.size) {
        return;
    }
    uint value = words.at[at] + source.rest[at] + source.count;
#if FORMAT_I4G
    value += pairs[at % 6].x;
#elif !FORMAT_F32
#error no format
#endif
    both[at] += ODD ? value : STEP;
    half_declared.target[at] = value;
}
