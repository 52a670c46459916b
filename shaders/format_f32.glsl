#define SCALES SCALES_NONE
#define IN_FLIGHT 1

Eight codes8(uvec2 w, uint block) { return Eight(Vec4s(w).at[2 * block], Vec4s(w).at[2 * block + 1]); }
