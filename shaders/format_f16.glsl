#define SCALES SCALES_NONE
#define IN_FLIGHT 2

Eight codes8(uvec2 w, uint block) {
    uvec4 c = Words4(w).at[block];
    return Eight(vec4(unpackHalf2x16(c.x), unpackHalf2x16(c.y)), vec4(unpackHalf2x16(c.z), unpackHalf2x16(c.w)));
}
