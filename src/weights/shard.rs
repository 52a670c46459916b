//! One safetensors file as bytes: mapped from disk or embedded in the program.

use std::fmt;
use std::fs::File;
use std::path::Path;

use super::Error;

/// The bytes of one file and the name messages call it by.
pub(super) struct Shard {
    label: String,
    bytes: Box<dyn AsRef<[u8]> + Send + Sync>,
}

impl Shard {
    /// Maps a file.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be opened or mapped, [`Error::NotAFile`] for anything that is
    /// not a regular file (opening a pipe would wait forever).
    pub(super) fn open(path: &Path) -> Result<Shard, Error> {
        let label = path.display().to_string();
        let io = |source| Error::Io { path: label.clone(), source };
        let metadata = std::fs::metadata(path).map_err(io)?;
        if !metadata.is_file() {
            return Err(Error::NotAFile { path: label });
        }
        if metadata.len() == 0 {
            // Not every platform maps empty files; the header check says what is wrong.
            return Ok(Shard::from_bytes(&label, Vec::new()));
        }
        let file = File::open(path).map_err(io)?;
        // SAFETY: the mapping is private and read-only, and lives as long as the slices handed out
        // (they borrow the shard). Another process that changes or shortens the file while it is in
        // use could still disturb the reads; weight files are treated as immutable, as every engine
        // that maps its weights must.
        let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file) }.map_err(io)?;
        Ok(Shard { label, bytes: Box::new(map) })
    }

    /// Wraps bytes that are already in memory.
    pub(super) fn from_bytes(label: &str, bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Shard {
        Shard { label: label.to_owned(), bytes: Box::new(bytes) }
    }

    /// The whole file.
    pub(super) fn bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// Path, or the label of embedded bytes.
    pub(super) fn label(&self) -> &str {
        &self.label
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shard({}, {} bytes)", self.label, self.bytes().len())
    }
}
