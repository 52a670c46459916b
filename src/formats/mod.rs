//! Weight formats: how the stored bytes of a matrix become numbers.
//!
//! [`Format`] says how a `[rows, cols]` matrix is laid out and how many bytes it takes; [`View`]
//! borrows those bytes and decodes them one row at a time. Nothing here allocates, and nothing here
//! asks for aligned input, because tensors inside a safetensors file start at any byte.
//!
//! All formats are row-major, rows are outputs, columns are inputs, multi-byte values are
//! little-endian. One file per family:
//!
//! | family | formats |
//! |---|---|
//! | `float` | `f32`, `f16`, `bf16` |
//! | `int` | `i32`, `i64` tables; `int8-row`, `int4-row`, `int4-gN` quantised weights |
//! | `mxfp4` | `mxfp4` |
//! | `fp8` | `fp8-b128`, `fp8-b128-ue8m0` |
//!
//! Source: formats.md sections 0 to 5 and 7.

mod float;
mod format;
mod fp8;
#[cfg(test)]
mod golden;
mod int;
mod mxfp4;
mod nibble;
mod view;

pub use format::{BlockScale, Format};
pub use view::{View, ViewError};
