// Lanes of a subgroup, counted: the last subgroup of a workgroup may be partial.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

uint lane;
uint lanes;

void count_lanes() {
    lanes = subgroupAdd(1u);
    lane = subgroupExclusiveAdd(1u);
}

