// How attention over n positions is split: by the positions alone, so that a row's bits do not depend on others.

// At most so many parts.
const uint PARTS = 32;

// Positions of a part, in sixty-fours.
uint blocks_of(uint n) { return max(1, (n + 64 * PARTS - 1) / (64 * PARTS)); }

uint stretch_of(uint n) { return 64 * blocks_of(n); }

// By floats, which take less code: 2^21 sixty-fours and fewer are as exact as whole numbers, as a half keeps quotients off them.
uint parts_of(uint n) {
    uint blocks = blocks_of(n);
    return max(1, uint((float((n + 63) / 64 + blocks - 1) + 0.5) / float(blocks)));
}
