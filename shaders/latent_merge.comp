#version 460
// The parts that `latent_split.comp` or `attn_split.comp` left put together, of one segment or two, in one softmax. Four
// channels of a head an invocation.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;
// What rows see of each segment, as for the kernel that split it. EVERY_1 is 0 if there is no second.
layout(constant_id = 1) const uint SELECT_0 = 0;
layout(constant_id = 2) const uint WINDOW_0 = 0;
layout(constant_id = 3) const uint EVERY_0 = 1;
layout(constant_id = 4) const uint SELECT_1 = 0;
layout(constant_id = 5) const uint WINDOW_1 = 0;
layout(constant_id = 6) const uint EVERY_1 = 0;
layout(constant_id = 7) const uint SINK = 0;

#include "params.glsl"
#include "address.glsl"
#include "split.glsl"
#include "lowest.glsl"
#include "sight.glsl"

layout(set = 0, binding = 1, std430) readonly buffer Parts { vec4 parts[]; };
layout(set = 0, binding = 2, std430) readonly buffer Weights { vec2 weights[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 4, std430) readonly buffer Sel { uint sel[]; };
layout(set = 0, binding = 5, std430) readonly buffer Parts1 { vec4 parts_1[]; };
layout(set = 0, binding = 6, std430) readonly buffer Weights1 { vec2 weights_1[]; };
layout(set = 0, binding = 7, std430) readonly buffer Sel1 { uint sel_1[]; };

layout(push_constant, std430) uniform Push {
    uvec2 sinks;
    uint heads;
    uint rank;
    uint sel_k;
    uint sel_k_1;
    uint row_parts;
    uint row_parts_1;
};

#define SUMS parts
#define WEIGHTS weights
#define LARGEST largest
#define ADD_PARTS add_parts
#include "merge.glsl"
#undef SUMS
#undef WEIGHTS
#undef LARGEST
#undef ADD_PARTS
#define SUMS parts_1
#define WEIGHTS weights_1
#define LARGEST largest_1
#define ADD_PARTS add_parts_1
#include "merge.glsl"

// Rows that a row sees.
uint length_of(uvec2 seen) { return seen.y - seen.x; }

void main() {
    uint r = gl_WorkGroupID.y;
    uint c4 = rank / 4;
    uint i = gl_WorkGroupID.x * LOCAL + gl_LocalInvocationIndex;
    if (i >= heads * c4) return;
    uint head = i / c4;
    uint at = r * row_parts * heads + head;
    uint at_1 = r * row_parts_1 * heads + head;
    uint count = parts_of(SELECT_0 == 1 ? sel[r * (sel_k + 1)] : length_of(sight(r, WINDOW_0, EVERY_0)));
    float sink = SINK == 1 ? Floats(sinks).at[head] : LOWEST;
    float top = largest(at, heads, count, max(sink, LOWEST));
    uint count_1 = 0;
    if (EVERY_1 > 0) {
        count_1 = parts_of(SELECT_1 == 1 ? sel_1[r * (sel_k_1 + 1)] : length_of(sight(r, WINDOW_1, EVERY_1)));
        top = largest_1(at_1, heads, count_1, top);
    }
    float total = SINK == 1 ? exp(sink - top) : 0.0;
    vec4 sum = vec4(0.0);
    add_parts(at, heads, i % c4, c4, count, top, total, sum);
    if (EVERY_1 > 0) add_parts_1(at_1, heads, i % c4, c4, count_1, top, total, sum);
    // Nothing in sight gives 0.
    y[r * heads * c4 + i] = sum * (total == 0.0 ? 0.0 : 1.0 / total);
}
