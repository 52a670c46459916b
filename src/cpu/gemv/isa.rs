//! What the kernels need of an instruction set: operations on 16 lanes, one lane an output.

/// 16 lanes of 32 bits, and the operations that kernels are written in.
///
/// # Safety
/// Every method may only run on a processor with the instruction set that the type stands for. Pointers must be
/// valid for the bytes that the method says it reads or writes, at any alignment.
pub(super) trait Isa: Copy {
    /// 16 words, or 64 bytes: four in each lane.
    type I: Copy;
    /// 16 f32.
    type F: Copy;
    /// Reads 64 bytes.
    unsafe fn load(p: *const u8) -> Self::I;
    unsafe fn splat(v: u32) -> Self::I;
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn shl<const N: u32>(a: Self::I) -> Self::I;
    unsafe fn shr<const N: u32>(a: Self::I) -> Self::I;
    /// Shifts copies of the sign in.
    unsafe fn sar<const N: u32>(a: Self::I) -> Self::I;
    /// Adds words, wrapping.
    unsafe fn add32(a: Self::I, b: Self::I) -> Self::I;
    /// Adds bytes.
    unsafe fn add8(a: Self::I, b: Self::I) -> Self::I;
    /// `table[byte]` for every byte; bytes below 16.
    unsafe fn lut(table: &[u8; 16], a: Self::I) -> Self::I;
    /// The byte of `value` where `a & bits` is not zero in that byte, which has one bit set in `bits`; else zero.
    unsafe fn flag(a: Self::I, bits: Self::I, value: Self::I) -> Self::I;
    /// Bytes `[0, 0, 1, 1]` of every word, or `[2, 2, 3, 3]` if `HIGH`.
    unsafe fn twice<const HIGH: bool>(a: Self::I) -> Self::I;
    /// `acc + sum of u[k] s[k]` over the four bytes of a word: `u` unsigned, `s` signed and the same in every lane.
    /// Bytes of `u` must lie below 128 unless `LARGE`, and the sum of two neighbouring products must fit into an i16
    /// unless `WIDE`.
    unsafe fn dot<const LARGE: bool, const WIDE: bool>(acc: Self::I, u: Self::I, s: i32) -> Self::I;
    /// The signed integers of the lanes.
    unsafe fn to_f(a: Self::I) -> Self::F;
    /// The lanes' bits, read as f32.
    unsafe fn bits(a: Self::I) -> Self::F;
    unsafe fn splat_f(v: f32) -> Self::F;
    /// Reads 16 f32.
    unsafe fn load_f(p: *const f32) -> Self::F;
    /// Writes 16 f32.
    unsafe fn store_f(p: *mut f32, a: Self::F);
    unsafe fn add_f(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul_f(a: Self::F, b: Self::F) -> Self::F;
    /// `a b + c`, rounded once where the processor can.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The two f16 of every word: low ones, high ones.
    unsafe fn halves(a: Self::I) -> [Self::F; 2];
    /// Reads 16 f16.
    unsafe fn load_halves(p: *const u8) -> Self::F;
    /// Reads 16 bytes, one a lane.
    unsafe fn load_bytes(p: *const u8) -> Self::I;
    /// Asks for the cache line at `p`, which may be any address.
    unsafe fn prefetch(p: *const u8);

    /// The bytes `codes[order[..]]`; places below 64.
    #[inline(always)]
    unsafe fn arrange(order: &[u8; 64], codes: &[i8; 64]) -> [i32; 16] {
        let mut out = [0; 16];
        for (step, places) in out.iter_mut().zip(order.as_chunks::<4>().0) {
            *step = i32::from_le_bytes(places.map(|c| codes[usize::from(c & 63)] as u8));
        }
        out
    }

    /// `out[w][r]` = word `w` of the 64 bytes at `rows[r]`. Reads 16 x 64 bytes, writes 1024.
    #[inline(always)]
    unsafe fn transpose(rows: &[*const u8; 16], out: *mut u32) {
        for (r, row) in rows.iter().enumerate() {
            for w in 0..16 {
                // SAFETY: the caller's promise: 64 bytes at each row, 256 words at `out`.
                unsafe { out.add(w * 16 + r).write(row.add(4 * w).cast::<u32>().read_unaligned()) };
            }
        }
    }

    /// Magnitudes with signs, plus 64, of 32 E8 columns: `a` and `b` hold the eight codebook indices, `signs` the
    /// word of sign bits. The order of the columns is that of [`super::order::E8`].
    #[inline(always)]
    unsafe fn lattice(a: Self::I, b: Self::I, signs: Self::I) -> [Self::I; 8] {
        // SAFETY: the caller's promise is that of `lattice`.
        unsafe { super::lattice::general::<Self>(a, b, signs) }
    }

    /// `table[byte 0 of the lane]`.
    unsafe fn gather(table: &[u32; 256], a: Self::I) -> Self::I;
}

/// Methods of [`Isa`] that work on values alone. Their bodies are safe code, compiled with the features: there the
/// compiler lets intrinsics through that touch registers, and refuses those that take pointers.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! registers {
    ($features:literal; $(
        $(#[$attribute:meta])*
        fn $name:ident $(<$(const $n:ident: $t:ty),+>)? ($($a:ident: $of:ty),*) -> $out:ty $body:block
    )*) => { $(
        #[inline(always)]
        $(#[$attribute])*
        unsafe fn $name $(<$(const $n: $t),+>)? ($($a: $of),*) -> $out {
            #[inline]
            #[target_feature(enable = $features)]
            fn with $(<$(const $n: $t),+>)? ($($a: $of),*) -> $out $body
            // SAFETY: `with` needs these features and no more, and they are what the caller promises.
            unsafe { with $(::<$($n),+>)? ($($a),*) }
        }
    )* };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use registers;
