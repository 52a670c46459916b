// How attention over n positions is split: by the positions alone, so that a row's bits do not depend on others.

// At most so many parts.
const uint PARTS = 32;

// Positions of a part: a multiple of 64.
uint stretch_of(uint n) { return 64 * max(1, (n + 64 * PARTS - 1) / (64 * PARTS)); }

uint parts_of(uint n) { return max(1, (n + stretch_of(n) - 1) / stretch_of(n)); }
