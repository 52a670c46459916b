//! The output directory: whose it is, and files that appear in it whole or not at all.

use super::error::Error;
use super::receipt::{RECEIPT, Receipt};
use sha2::{Digest, Sha256};
use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Foreign names that a message shows.
const SHOWN: usize = 4;

/// Bytes hashed at a time.
const CHUNK: usize = 1 << 20;

/// An output directory that this process alone writes to.
pub(super) struct Dest {
    dir: PathBuf,
    /// Locked until it is dropped; None where directories cannot be opened.
    _lock: Option<File>,
}

impl Dest {
    /// Makes the directory, or takes one that is empty or holds a conversion, with its receipt.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::Busy`], [`Error::Receipt`], [`Error::Io`].
    pub(super) fn open(dir: &Path) -> Result<(Dest, Option<Receipt>), Error> {
        fs::create_dir_all(dir).map_err(Error::io(dir))?;
        let dest = Dest { dir: dir.to_owned(), _lock: lock(dir)? };
        let path = dest.path(RECEIPT);
        match fs::read(&path) {
            Ok(text) => {
                let bad =
                    |why: serde_json::Error| Error::Receipt { path: path.display().to_string(), why: why.to_string() };
                Ok((dest, Some(serde_json::from_slice(&text).map_err(bad)?)))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                dest.check_empty()?;
                Ok((dest, None))
            }
            Err(e) => Err(Error::io(&path)(e)),
        }
    }

    fn check_empty(&self) -> Result<(), Error> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(Error::io(&self.dir))? {
            let name = entry.map_err(Error::io(&self.dir))?.file_name().display().to_string();
            // Killed before the first receipt had its name.
            if name != temporary(RECEIPT) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        names.sort();
        let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
        let more = match names.len() - shown.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Err(Error::Foreign { dir: self.dir.display().to_string(), found: shown.join(", ") + &more })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Where a file is written before it has its name.
    pub(super) fn temporary(&self, name: &str) -> PathBuf {
        self.dir.join(temporary(name))
    }

    /// Makes sure that there is room for `need` bytes before any of them is written.
    ///
    /// # Errors
    /// [`Error::Space`], [`Error::Io`].
    pub(super) fn check_space(&self, need: u64) -> Result<(), Error> {
        let available = fs4::available_space(&self.dir).map_err(Error::io(&self.dir))?;
        if available < need {
            return Err(Error::Space { dir: self.dir.display().to_string(), need, available });
        }
        Ok(())
    }

    /// Removes what a killed run has left of a file, whose room is needed.
    pub(super) fn clear(&self, name: &str) -> Result<(), Error> {
        let path = self.temporary(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&path)(e)),
            _ => Ok(()),
        }
    }

    /// Writes a small file so that it is there whole, or not at all, after a crash.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.temporary(name);
        let mut file = File::create(&path).map_err(Error::io(&path))?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::io(&path))?;
        self.publish(name)
    }

    /// Gives a file that is written and synced its name.
    pub(super) fn publish(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::rename(self.temporary(name), &path).map_err(Error::io(&path))?;
        // The name itself has to reach the disk. Where directories cannot be opened, the system takes care of it.
        match File::open(&self.dir) {
            Ok(dir) => dir.sync_all().map_err(Error::io(&self.dir)),
            Err(_) => Ok(()),
        }
    }
}

fn temporary(name: &str) -> String {
    format!("{name}.tmp")
}

fn lock(dir: &Path) -> Result<Option<File>, Error> {
    let Ok(file) = File::open(dir) else { return Ok(None) };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Error::Busy { dir: dir.display().to_string() }),
        // A file system without locks: nothing to hold.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(file)),
    }
}

/// SHA-256 in hex of bytes that `done` is told about as they pass.
pub(super) fn hash(bytes: &[u8], done: &dyn Fn(u64)) -> String {
    let mut hasher = Sha256::new();
    for chunk in bytes.chunks(CHUNK) {
        hasher.update(chunk);
        done(chunk.len() as u64);
    }
    hex(&hasher.finalize())
}

/// As [`hash`], of a file, with its size; None if there is no such file.
pub(super) fn hash_file(path: &Path, done: &dyn Fn(u64)) -> Result<Option<(u64, String)>, Error> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(path)(e)),
    };
    let (mut hasher, mut buffer, mut bytes) = (Sha256::new(), vec![0; CHUNK], 0);
    loop {
        let n = file.read(&mut buffer).map_err(Error::io(path))?;
        if n == 0 {
            return Ok(Some((bytes, hex(&hasher.finalize()))));
        }
        hasher.update(&buffer[..n]);
        bytes += n as u64;
        done(n as u64);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_counted_beforehand() {
        let dir = tempfile::tempdir().unwrap();
        let (dest, _) = Dest::open(&dir.path().join("out")).unwrap();
        dest.check_space(1).unwrap();
        let refused = dest.check_space(u64::MAX).unwrap_err();
        assert!(matches!(refused, Error::Space { need: u64::MAX, .. }));
        let text = refused.to_string();
        assert!(text.contains(&u64::MAX.to_string()) && text.contains("another disk"), "{text}");
        std::fs::write(dest.temporary("a"), "half").unwrap();
        dest.clear("a").unwrap();
        dest.clear("a").unwrap();
        assert!(!dest.temporary("a").exists());
    }
}
