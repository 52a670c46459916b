//! Writing one file: threads take blocks of rows in order and write what they make at its place.

use super::block::{self, ROWS, Scratch, Sums};
use super::error::Error;
use super::layout::{Piece, Shard};
use super::options::Target;
use super::plan::{Plan, Planned};
use super::run::Watch;
use crate::formats::layout::{self, TILE};
use crate::formats::{Format, Matrix, View};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes of a copy that are written at a time.
const CHUNK: usize = 8 << 20;

/// A piece of work, small enough that threads end together.
enum Job {
    /// Rows to encode, to tile, or both.
    Rows { tensor: usize, rows: Range<usize> },
    /// Stored bytes to copy, of one piece, without padding.
    Copy { tensor: usize, piece: usize, bytes: Range<usize> },
}

/// Writes the file's bytes, all of them, and syncs it. Returns a relative error per tensor, None for copies.
///
/// # Errors
/// [`Error::Values`] and [`Error::Io`]; the file is then incomplete.
pub(super) fn write(
    plan: &Plan,
    shard: &Shard,
    path: &Path,
    threads: usize,
    watch: &dyn Watch,
) -> Result<Vec<Option<f64>>, Error> {
    let file = File::create(path).map_err(Error::io(path))?;
    // Padding is what nobody writes: zeros.
    file.set_len(shard.bytes).map_err(Error::io(path))?;
    let writer = Writer { plan, path, file: Mutex::new(file), watch };
    writer.put(&shard.header, 0)?;
    let jobs = jobs(plan, shard);
    let sums = writer.run(&jobs, threads)?;
    let file = writer.file.into_inner().unwrap_or_else(PoisonError::into_inner);
    file.sync_all().map_err(Error::io(path))?;
    // Summed in the order of rows, so that the last digit does not depend on who was first.
    let mut total = vec![Sums::default(); shard.tensors.len()];
    for (job, sums) in jobs.iter().zip(&sums) {
        if let Job::Rows { tensor, .. } = job {
            total[*tensor - shard.tensors.start].add(*sums);
        }
    }
    let tensors = &plan.tensors[shard.tensors.clone()];
    Ok(tensors.iter().zip(total).map(|(t, sums)| t.to.map(|_| sums.relative())).collect())
}

fn jobs(plan: &Plan, shard: &Shard) -> Vec<Job> {
    let mut jobs = Vec::new();
    for tensor in shard.tensors.clone() {
        let planned = &plan.tensors[tensor];
        match &planned.tensor {
            Some(source) if planned.to.is_some() || planned.is_tiled() && !source.is_tiled() => {
                let rows = source.rows();
                jobs.extend((0..rows).step_by(ROWS).map(|r| Job::Rows { tensor, rows: r..(r + ROWS).min(rows) }));
            }
            _ => {
                for (piece, stored) in planned.pieces.iter().enumerate() {
                    let len = stored.data as usize;
                    let chunks = (0..len).step_by(CHUNK).map(|at| at..(at + CHUNK).min(len));
                    jobs.extend(chunks.map(|bytes| Job::Copy { tensor, piece, bytes }));
                }
            }
        }
    }
    jobs
}

struct Writer<'a> {
    plan: &'a Plan,
    path: &'a Path,
    file: Mutex<File>,
    watch: &'a dyn Watch,
}

impl Writer<'_> {
    /// Does every job, each once; the sums of each, in order.
    fn run(&self, jobs: &[Job], threads: usize) -> Result<Vec<Sums>, Error> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (sums, failed) = (Mutex::new(vec![Sums::default(); jobs.len()]), Mutex::new(None));
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, jobs.len().max(1)) {
                scope.spawn(|| {
                    let mut scratch = Scratch::default();
                    while !stop.load(Ordering::Relaxed) {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(job) = jobs.get(at) else { break };
                        match self.job(job, &mut scratch) {
                            Ok(done) => sums.lock().unwrap_or_else(PoisonError::into_inner)[at] = done,
                            Err(e) => {
                                stop.store(true, Ordering::Relaxed);
                                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                            }
                        }
                    }
                });
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(sums.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn job(&self, job: &Job, scratch: &mut Scratch) -> Result<Sums, Error> {
        match job {
            Job::Copy { tensor, piece, bytes } => {
                let planned = &self.plan.tensors[*tensor];
                let stored = self.plan.index.stored(&planned.name);
                self.put(&stored[*piece].bytes[bytes.clone()], planned.pieces[*piece].at + bytes.start as u64)?;
                self.watch.done(bytes.len() as u64);
                Ok(Sums::default())
            }
            Job::Rows { tensor, rows } => {
                let planned = &self.plan.tensors[*tensor];
                match &planned.tensor {
                    Some(source) => self.rows(planned, source.matrix(), rows, scratch),
                    // No such job is made.
                    None => Ok(Sums::default()),
                }
            }
        }
    }

    fn rows(
        &self,
        planned: &Planned,
        source: Matrix,
        rows: &Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<Sums, Error> {
        let Some(format) = planned.to else {
            if let Matrix::Rows(view) = source {
                block::tile(&view.part(rows.clone()), &mut scratch.tiles);
                self.tiles(planned, &source, source.format(), rows, &scratch.tiles)?;
            }
            return Ok(Sums::default());
        };
        let sums = block::encode(source, format, rows.clone(), scratch).map_err(|why| Error::Values {
            name: planned.name.clone(),
            target: Target::Format(format).to_string(),
            why,
        })?;
        let cols = source.cols();
        if planned.is_tiled() {
            let view = View { format, rows: rows.len(), cols, data: &scratch.data, scales: &scratch.scales };
            block::tile(&view, &mut scratch.tiles);
            self.tiles(planned, &source, format, rows, &scratch.tiles)?;
        } else {
            self.file_order(planned, format, rows.start as u64, cols as u64, scratch)?;
        }
        Ok(sums)
    }

    /// Writes the tiles of some rows: a piece of each plane.
    fn tiles(
        &self,
        planned: &Planned,
        source: &Matrix,
        format: Format,
        rows: &Range<usize>,
        tiles: &[u8],
    ) -> Result<(), Error> {
        let planes = |rows: usize| layout::planes(format, rows, source.cols()).unwrap_or_default();
        for piece in &planned.pieces {
            for (whole, part) in planes(source.rows()).iter().zip(planes(rows.len())) {
                let at = whole.at + rows.start / TILE * whole.tile_bytes();
                self.put(&tiles[part.at..][..part.bytes], piece.at + at as u64)?;
                self.watch.done(part.bytes as u64);
            }
        }
        Ok(())
    }

    /// Writes codes and scales of the rows behind `before` others.
    fn file_order(
        &self,
        planned: &Planned,
        format: Format,
        before: u64,
        cols: u64,
        scratch: &Scratch,
    ) -> Result<(), Error> {
        let place = |piece: &Piece, bytes: u64| piece.at + bytes;
        if let Some(codes) = planned.pieces.first() {
            self.put(&scratch.data, place(codes, format.data_bytes(before, cols)))?;
        }
        if let Some(scales) = planned.pieces.get(1) {
            // The tag of E8 belongs to the whole matrix: every block makes it, the first one's is written.
            if !format.rotates() {
                self.put(&scratch.scales, place(scales, format.scale_bytes(before, cols)))?;
            } else if before == 0 {
                self.put(&scratch.scales, scales.at)?;
            }
        }
        self.watch.done((scratch.data.len() + scratch.scales.len()) as u64);
        Ok(())
    }

    fn put(&self, bytes: &[u8], at: u64) -> Result<(), Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes));
        written.map_err(Error::io(self.path))
    }
}
