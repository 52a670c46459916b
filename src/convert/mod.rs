//! Rewriting a model's weights in other formats.
//!
//! 1. [`Options`] say what each role of weight becomes; [`Plan::new`] turns a graph and its bound weights into the
//!    list of tensors to write, with names, sizes and offsets. Everything that can be refused is refused here.
//! 2. [`run`] writes the plan's shards one after another into a directory, each under a temporary name until it is
//!    complete and on disk. The receipt ([`Receipt`]) lists the finished ones, so that a run which was killed goes on
//!    after the last of them.
//!
//! Memory: a thread holds [`ROWS`] rows of one matrix as f32 and as the bytes made from them, and nothing else that
//! grows with the model but the plan. Sources are mapped, outputs are written at offsets known beforehand.
//!
//! The bytes depend on the source, the graph and the options, not on the number of threads or on interruptions.
//! `docs/convert.md` has the user's view.

mod block;
mod dest;
mod error;
mod layout;
mod options;
mod plan;
mod receipt;
mod run;
mod shard;

pub use block::ROWS;
pub use error::Error;
pub use layout::{Piece, Shard};
pub use options::{Options, Target};
pub use plan::{Part, Plan, Planned, parts};
pub use receipt::{FileRecord, RECEIPT, Receipt, ShardRecord, TensorRecord};
pub use run::{Outcome, Phase, Source, Watch, run};
