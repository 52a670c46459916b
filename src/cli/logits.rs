//! `--logits-out`: a safetensors file that grows while the model runs.

use super::failure::Failure;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Room for the header, which is known only at the end; the rest is spaces, as the format allows.
const HEADER: usize = 512;

/// Writes `logits` f32 [positions, vocab] and `tokens` i32.
pub struct LogitsFile {
    path: PathBuf,
    out: BufWriter<File>,
    vocab: usize,
    positions: usize,
}

impl LogitsFile {
    pub fn create(path: &Path, vocab: usize) -> Result<Self, Failure> {
        let open = || -> std::io::Result<BufWriter<File>> {
            let mut out = BufWriter::new(File::create(path)?);
            out.write_all(&(HEADER as u64).to_le_bytes())?;
            out.write_all(&[b' '; HEADER])?;
            Ok(out)
        };
        let out = open().map_err(|source| Failure::File { path: path.display().to_string(), source })?;
        Ok(Self { path: path.into(), out, vocab, positions: 0 })
    }

    fn failed(&self, source: std::io::Error) -> Failure {
        Failure::File { path: self.path.display().to_string(), source }
    }

    /// Appends rows of logits.
    pub fn push(&mut self, logits: &[f32]) -> Result<(), Failure> {
        for x in logits {
            if let Err(e) = self.out.write_all(&x.to_le_bytes()) {
                return Err(self.failed(e));
            }
        }
        self.positions += logits.len() / self.vocab;
        Ok(())
    }

    /// Appends the tokens and fills in the header.
    pub fn finish(mut self, tokens: &[u32]) -> Result<(), Failure> {
        let end = self.positions * self.vocab * 4;
        let header = serde_json::json!({
            "logits": {"dtype": "F32", "shape": [self.positions, self.vocab], "data_offsets": [0, end]},
            "tokens": {"dtype": "I32", "shape": [tokens.len()], "data_offsets": [end, end + 4 * tokens.len()]},
        })
        .to_string();
        let mut write = || -> std::io::Result<()> {
            for t in tokens {
                self.out.write_all(&(*t as i32).to_le_bytes())?;
            }
            self.out.seek(SeekFrom::Start(8))?;
            self.out.write_all(header.as_bytes())?;
            self.out.flush()
        };
        write().map_err(|source| Failure::File { path: self.path.display().to_string(), source })
    }
}
