//! Weight files: finding, checking and naming the tensors of a checkpoint.
//!
//! The path of a tensor through this module:
//!
//! 1. `shard` maps one safetensors file, `header` checks everything its header claims.
//! 2. `index` gathers the shards of a directory, `logical` joins the stored parts of a weight
//!    (codes and scales are separate tensors on disk) under one name.
//! 3. `bind` takes the [`Request`]s of a model graph and answers with [`Tensor`]s, or with every
//!    [`Problem`] it met; `resolve` and `infer` work out each tensor's [`Format`].
//! 4. `stored` shows tensors as they lie in the files, for whoever copies or lists them without a graph.
//! 5. A [`Tensor`] lends a [`Matrix`] of the mapped bytes; nothing is copied. `tiles` is what files say of matrices
//!    in the engine layout.
//!
//! [`Format`]: crate::formats::Format
//! [`Matrix`]: crate::formats::Matrix

mod bind;
mod dtype;
mod error;
mod header;
mod index;
mod infer;
mod json;
mod logical;
mod problem;
mod resolve;
mod shard;
mod stored;
mod tensor;
#[cfg(test)]
mod tests;
mod tiles;

pub use bind::{Bound, Request};
pub use error::Error;
pub use header::HeaderError;
pub use index::Index;
pub use infer::stamp_for;
pub use problem::Problem;
pub use stored::{Stored, Summary};
pub use tensor::Tensor;
pub use tiles::{PADDING, TILES, TileStamp, TiledShape};
