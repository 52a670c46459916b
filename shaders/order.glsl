// Total order of floats as unsigned numbers: -inf < ... < -0 < +0 < ... < +inf. NaN lies below all of them, so
// it is never preferred to a number; bits are tested because compilers may assume that NaN does not occur.

// NaN.
const uint NO_NUMBER = 1;

uint ordered(float v) {
    uint bits = floatBitsToUint(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return NO_NUMBER;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

float from_ordered(uint key) {
    return uintBitsToFloat(key == NO_NUMBER ? 0x7fc00000u : (key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}
