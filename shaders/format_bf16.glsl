#define SCALES SCALES_NONE
#define IN_FLIGHT 2

Eight codes8(uvec2 w, uint block) {
    uvec4 c = Words4(w).at[block];
    uvec4 even = c << 16;
    uvec4 odd = c & 0xffff0000u;
    return Eight(uintBitsToFloat(uvec4(even.x, odd.x, even.y, odd.y)), uintBitsToFloat(uvec4(even.z, odd.z, even.w, odd.w)));
}
