// Sums and scans over a workgroup, for any subgroup size. Lanes are counted, not assumed: the last subgroup may
// be partial. `me` numbers invocations in scan order; only it may be used with the scans.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "order.glsl"

// Workgroups of 1024, subgroups of 4.
shared uint subgroup_parts[256];

float workgroup_sum(float v) {
    float part = subgroupAdd(v);
    if (subgroupElect()) subgroup_parts[gl_SubgroupID] = floatBitsToUint(part);
    barrier();
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += uintBitsToFloat(subgroup_parts[i]);
    barrier();
    return sum;
}

uint workgroup_max(uint v) {
    uint part = subgroupMax(v);
    if (subgroupElect()) subgroup_parts[gl_SubgroupID] = part;
    barrier();
    uint most = 0;
    for (uint i = 0; i < gl_NumSubgroups; i++) most = max(most, subgroup_parts[i]);
    barrier();
    return most;
}

// Sum of v over the invocations before this one, and over all.
uint workgroup_scan(uint v, out uint total) {
    uint before = subgroupExclusiveAdd(v);
    uint part = subgroupAdd(v);
    if (subgroupElect()) subgroup_parts[gl_SubgroupID] = part;
    barrier();
    total = 0;
    for (uint i = 0; i < gl_NumSubgroups; i++) {
        if (i == gl_SubgroupID) before += total;
        total += subgroup_parts[i];
    }
    barrier();
    return before;
}
