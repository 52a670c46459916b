// What a row sees of a cache with a row for `every` positions: rows x .. y. `window` is how many of them at most; 0 stands
// for all.

uvec2 sight(uint r, uint window, uint every) {
    uint end = row_visible(r) / max(every, 1);
    return uvec2(window == 0 ? 0 : end - min(end, window), end);
}
