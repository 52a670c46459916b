//! Weight formats: how the stored bytes of a matrix become numbers, and numbers such bytes.
//!
//! [`Format`] says how a `[rows, cols]` matrix is laid out and how many bytes it takes; [`View`]
//! borrows those bytes and decodes them one row at a time; an [`Encoder`] makes them from rows of f32. A [`Matrix`] is
//! such a view, or the same matrix in the engine layout ([`layout`]).
//! Decoding does not allocate, and asks for no alignment, because tensors inside a safetensors file
//! start at any byte.
//!
//! All formats are row-major, rows are outputs, columns are inputs, multi-byte values are
//! little-endian. One file per family:
//!
//! | family | formats |
//! |---|---|
//! | `float` | `f32`, `f16`, `bf16` |
//! | `int` | `i32`, `i64` tables; `int8-row`, `int4-row`, `int4-gN` quantised weights |
//! | `planes` | `int2-row`, `int3-g64` |
//! | `e8` | `e8-iq3-lattice`, whose rows are stored after the [`rotation`] |
//! | `mxfp4` | `mxfp4` |
//! | `fp8` | `fp8-b128`, `fp8-b128-ue8m0` |
//!
//! `docs/formats.md` has the byte layouts and the errors in a table. Source: formats.md sections 0 to 7.

pub mod activation;
mod codebook;
mod e8;
mod encode;
mod float;
mod format;
mod fp8;
#[cfg(test)]
mod golden;
mod int;
mod integers;
pub mod layout;
mod matrix;
mod mxfp4;
mod nibble;
mod planes;
pub mod rotation;
mod spelling;
#[cfg(test)]
pub(crate) mod tests;
mod view;

pub use codebook::CODEBOOK;
pub use encode::{EncodeError, Encoded, Encoder, encode};
pub use format::{BlockScale, Format};
pub use integers::Integers;
pub use matrix::Matrix;
pub use spelling::SPELLINGS;
pub use view::{View, ViewError};
