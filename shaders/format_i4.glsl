// int4-row and int4-grouped: (nibble - 8), low nibble first, times the factor of the row or of the group.
#define IN_FLIGHT 4
#include "nibbles.glsl"

Eight codes8(uvec2 w, uint block) {
    return nibbles(Words(w).at[block], 8.0);
}

#ifdef FORMAT_I4G
#define SCALES SCALES_GROUP
float group_scale(uvec2 w, uvec2 s, uint row, uint cols, uint col, uint group) {
    return Floats(s).at[row * ((cols + group - 1) / group) + col / group];
}
#else
#define SCALES SCALES_ROW
#endif
