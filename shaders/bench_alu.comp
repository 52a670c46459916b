#version 460
// A chain of multiply-adds in which each waits for the one before: how long one takes, and with many workgroups how many
// the device does. With `rounds` of 0 it is the smallest dispatch there is.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LOCAL = 64;

layout(set = 0, binding = 0, std430) writeonly buffer Y { float y[]; };

layout(push_constant, std430) uniform Push {
    // Of 32 multiply-adds each.
    uint rounds;
    // Not known to the compiler, so that it cannot shorten the chain.
    float a;
    float b;
};

void main() {
    // All workgroups share one line of results: memory is not what is measured.
    uint at = gl_LocalInvocationIndex;
    float x = float(at);
    for (uint i = 0; i < rounds; i++) {
        for (uint k = 0; k < 32; k++) x = fma(x, a, b);
    }
    // No input gives this value, which no compiler knows.
    if (x == -1.0) y[at] = x;
}
