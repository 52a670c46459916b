// Lanes of a subgroup, counted: the last subgroup of a workgroup may be partial.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

uint lane;
uint lanes;

void count_lanes() {
    lanes = subgroupAdd(1u);
    lane = subgroupExclusiveAdd(1u);
}

// The outputs of this subgroup, of `rpw` that the workgroup has from `from` on, below `end`.
uvec2 subgroup_share(uint from, uint rpw, uint end) {
    uint each = (rpw + gl_NumSubgroups - 1) / gl_NumSubgroups;
    uint first = from + gl_SubgroupID * each;
    return uvec2(first, min(min(first + each, from + rpw), end));
}
