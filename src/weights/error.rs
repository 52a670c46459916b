//! Reasons why a set of weight files cannot be opened at all.

use super::header::HeaderError;

/// A checkpoint that cannot be opened. Every message names the file and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{path}: {source}; check that the path exists and is readable")]
    Io {
        /// The file or directory.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The path is a device, a pipe or something else that cannot hold weights.
    #[error("{path} is neither a regular file nor a directory; give a model directory or a .safetensors file")]
    NotAFile {
        /// The path given or found.
        path: String,
    },
    /// A directory without weights.
    #[error("{dir} holds no .safetensors file; give the directory the model was downloaded to")]
    NoShards {
        /// The directory.
        dir: String,
    },
    /// The index file promises a shard that is not there.
    #[error(
        "{index} lists the shard {shard}, which is missing; finish the download, or delete the \
         index file if it belongs to another copy of the model"
    )]
    MissingShard {
        /// Path of `model.safetensors.index.json`.
        index: String,
        /// File name of the shard.
        shard: String,
    },
    /// The index file cannot be used.
    #[error(
        "{index} is not a usable shard index: {why}; download it again, or delete it to read every .safetensors file"
    )]
    BadIndex {
        /// Path of `model.safetensors.index.json`.
        index: String,
        /// What is wrong.
        why: String,
    },
    /// A damaged or foreign safetensors file.
    #[error("{file}: {source}; download or convert the file again")]
    Header {
        /// The file.
        file: String,
        /// What is wrong.
        source: HeaderError,
    },
    /// One name in two files: no telling which one is meant.
    #[error("tensor `{name}` is in both {first} and {second}; remove the file that does not belong to the model")]
    Duplicate {
        /// Stored name.
        name: String,
        /// One file.
        first: String,
        /// The other file.
        second: String,
    },
    /// Two different format stamps for one tensor.
    #[error(
        "tensor `{name}` is stamped both {first} and {second} by the `colibri.fmt` metadata \
         (last seen in {file}); convert the model again"
    )]
    StampConflict {
        /// Stored name.
        name: String,
        /// One stamp.
        first: String,
        /// The other stamp.
        second: String,
        /// File of the second stamp.
        file: String,
    },
    /// A reading that was asked for and cannot be given.
    #[error("--read-as {rule}: {why}")]
    ReadAs {
        /// The rule as `NAME=FORMAT`.
        rule: String,
        /// What stands against it.
        why: String,
    },
}
