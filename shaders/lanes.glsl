// Lanes of a subgroup, counted: the last subgroup of a workgroup may be partial.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require

uint lane;
uint lanes;

void count_lanes() {
    uvec4 all = subgroupBallot(true);
    lanes = subgroupBallotBitCount(all);
    lane = subgroupBallotExclusiveBitCount(all);
}

