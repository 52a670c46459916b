//! Why a conversion is refused or fails.

use crate::formats::EncodeError;

/// A conversion that cannot be planned or finished. Every message names the tensor or file and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// E8 for weights that no operator rotates the input of.
    #[error(
        "{flag} e8: only experts may be e8, whose rows are stored rotated; take int4-g64 or int3-g64 for {flag} and \
         give e8 to --experts"
    )]
    Rotated {
        /// The option that asked for it.
        flag: &'static str,
    },
    /// Rows that the format has no layout for.
    #[error("tensor `{name}` cannot become {target}: {why}; take {instead} for {flag} instead")]
    Shape {
        /// Logical name.
        name: String,
        /// The format asked for, as the option spells it.
        target: String,
        /// What the encoder says.
        why: EncodeError,
        /// A format that fits.
        instead: String,
        /// The option to change.
        flag: &'static str,
    },
    /// Values that the format cannot hold, or that are no numbers.
    #[error("tensor `{name}` cannot become {target}: {why}")]
    Values {
        /// Logical name.
        name: String,
        /// The format asked for.
        target: String,
        /// What the encoder says; rows count from the first of the tensor.
        why: EncodeError,
    },
    /// Two tensors under one name in the output.
    #[error("two tensors would be named `{name}` in the output; rename one in the source")]
    Clash {
        /// The stored name.
        name: String,
    },
    /// Output over input.
    #[error("SRC and DST are both {dir}; give another directory for the output")]
    Same {
        /// The directory.
        dir: String,
    },
    /// A directory that is not this conversion's.
    #[error("{dir} is not empty and not a conversion of coli's: it holds {found}; give a new or empty directory")]
    Foreign {
        /// The directory.
        dir: String,
        /// The first few names.
        found: String,
    },
    /// The conversion in the directory was started differently.
    #[error("{dir} holds a conversion that was started differently; start again in another directory, or change back:\n  {}", differences.join("\n  "))]
    Differs {
        /// The directory.
        dir: String,
        /// One line a difference.
        differences: Vec<String>,
    },
    /// A receipt that is not readable.
    #[error("{path} cannot be read as a receipt: {why}; remove the directory and start again")]
    Receipt {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// Another process at work.
    #[error("another conversion is writing to {dir}; wait for it, or end it")]
    Busy {
        /// The directory.
        dir: String,
    },
    /// Not enough room.
    #[error(
        "{dir} has {available} bytes free, but {need} more are to be written; make room, or give a DST on another disk"
    )]
    Space {
        /// The directory.
        dir: String,
        /// Bytes that are still to be written.
        need: u64,
        /// Bytes that the file system has for this user.
        available: u64,
    },
    /// A finished file that is not what was written.
    #[error("{path} has {found} bytes after it was written, not {need}; check the disk")]
    Written {
        /// The file.
        path: String,
        /// Bytes that belong there.
        need: u64,
        /// Bytes found.
        found: u64,
    },
    /// A file of the source that is not what was hashed at the start.
    #[error(
        "{path} changed while the conversion ran; put it back and run the same command again, or start again in another \
         directory"
    )]
    Changed {
        /// The file.
        path: String,
    },
    /// A file to be copied whose name the receipt cannot have.
    #[error("the name of {path} is not UTF-8, so that it cannot be copied along; rename it, or take it out of SRC")]
    Name {
        /// The file, with the odd bytes replaced.
        path: String,
    },
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
}

impl Error {
    /// For `map_err` on what happens to a file.
    pub(super) fn io(path: &std::path::Path) -> impl Fn(std::io::Error) -> Error {
        let path = path.display().to_string();
        move |source| Error::Io { path: path.clone(), source }
    }

    /// Whether the user's arguments are at fault, and not the model or the disk.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Error::Rotated { .. }
                | Error::Shape { .. }
                | Error::Same { .. }
                | Error::Foreign { .. }
                | Error::Differs { .. }
                | Error::Busy { .. }
        )
    }
}
