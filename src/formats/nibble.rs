//! Two four-bit codes per byte, the even column in the low nibble: shared by int4 and MXFP4.

/// Values of both codes of every byte, low nibble first.
///
/// One eight-byte load per stored byte is faster than two lookups or any shifting.
pub(super) type Pairs = [[f32; 2]; 256];

/// The table for codes worth `values`.
pub(super) const fn pairs(values: [f32; 16]) -> Pairs {
    let mut table = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [values[byte & 15], values[byte >> 4]];
        byte += 1;
    }
    table
}

/// Writes `value * scale` for the codes in `bytes`, which start at an even column.
///
/// With an odd number of `out` values the last high nibble is padding (writers fill it with 0 or
/// 8) and is not looked at.
pub(super) fn scaled(table: &Pairs, bytes: &[u8], scale: f32, out: &mut [f32]) {
    let (whole, tail) = out.as_chunks_mut::<2>();
    for (pair, &byte) in whole.iter_mut().zip(bytes) {
        let [low, high] = table[usize::from(byte)];
        *pair = [low * scale, high * scale];
    }
    if let ([value], Some(&byte)) = (tail, bytes.last()) {
        *value = table[usize::from(byte)][0] * scale;
    }
}
