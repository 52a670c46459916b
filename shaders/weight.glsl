// A quad of a matrix with its codes and factors, as `coop.glsl` asks the kernel for it.
struct Weight {
    uvec2 w;
    uvec2 s;
    uint quad;
};

// Quads behind a matrix's last tile are the last: their results are not kept.
Weight quad_of_matrix(uvec2 w, uvec2 s, uint quad, uint rows) { return Weight(w, s, min(quad, 4 * ((rows + 15) / 16) - 1)); }
