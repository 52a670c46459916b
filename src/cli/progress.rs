//! Bars on stderr; they hide themselves where stderr is not a terminal.

use crate::run::Model;
use indicatif::{ProgressBar, ProgressStyle};

pub struct Progress;

const STYLE: &str = "{msg} [{bar:30}] {pos}/{len} {elapsed}";
const BYTES: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {elapsed}";

const ETA: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} {elapsed}, {eta} left";

fn bar(len: u64, style: &str, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(len).with_message(what);
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

impl Progress {
    pub fn new() -> Self {
        Progress
    }

    /// Reads the weights that every token needs into memory, so that the first token does not wait for the disk.
    pub fn load(&self, model: &Model) {
        let bar = bar(model.resident_bytes(), BYTES, "load");
        model.warm(&mut |bytes| bar.inc(bytes));
        bar.finish_and_clear();
    }

    /// Work that is measured in bytes and may take hours.
    pub fn bytes(&self, total: u64, what: &'static str) -> ProgressBar {
        bar(total, ETA, what)
    }

    pub fn prefill(&self, tokens: usize) -> ProgressBar {
        bar(tokens as u64, STYLE, "prefill")
    }
}
