//! Products of stored matrices with input rows: 16 outputs at a time, for every weight format.
//!
//! Everything is written for 16 lanes, one output each ([`isa::Isa`]): a word of 16 weight rows is one load, an
//! input is the same for all of them, and nothing is added across lanes. The engine layout
//! ([`crate::formats::layout`]) stores words like that; rows of a file are transposed 64 bytes at a time on the way,
//! after which the same kernel runs. So a matrix gives the same bits in either order.
//!
//! - Integer codes (`ints`) meet inputs as bytes: f32 inputs in four digits, int8 inputs in one; see [`input`].
//!   All sums over a group are integers and what follows rounds one operation at a time, so these products have
//!   **the same bits on every instruction set**.
//! - Floats (`floats`) meet f32 inputs by fused multiply-add in four sums, column `i` in sum `i mod 4`, added as
//!   `(s0 + s2) + (s1 + s3)`. AVX-512, AVX2 and NEON agree in bits; a processor without fused multiply-add rounds
//!   differently.
//!
//! An output's operations are its own row's and input's alone: the same bits alone and among other rows, whatever the
//! number of threads.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod floats;
pub mod input;
mod ints;
mod isa;
mod lattice;
#[cfg(target_arch = "aarch64")]
mod neon;
mod order;
mod portable;
mod source;
mod table;
#[cfg(test)]
mod tests;

pub use input::Input;
pub use table::{Kernels, available, kernels};
