//! The report while it grows: what is known, what was left out and why, and the time that is left.

use crate::cli::failure::Failure;
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// A report in its file.
pub struct Sheet {
    document: Map<String, Value>,
    left_out: Vec<Value>,
    file: File,
    path: String,
    start: Instant,
    limit: Duration,
}

impl Sheet {
    /// Opens the file, so that a path which cannot be written is known before anything is measured. What is in it stays
    /// until the first [`save`](Self::save).
    pub fn open(path: &Path, limit: Duration) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let opened = OpenOptions::new().create(true).write(true).truncate(false).open(path);
        let file = opened.map_err(|source| Failure::File { path: name.clone(), source })?;
        Ok(Self { document: Map::new(), left_out: vec![], file, path: name, start: Instant::now(), limit })
    }

    /// Adds a part.
    pub fn put(&mut self, key: &str, value: Value) {
        self.document.insert(key.into(), value);
    }

    /// Notes that something is not in the report, and says so.
    pub fn leave_out(&mut self, what: &str, why: &str) {
        self.say(&format!("left out: {what}: {why}"));
        self.left_out.push(json!({"what": what, "why": why}));
    }

    /// How many things are not in the report.
    pub fn missing(&self) -> usize {
        self.left_out.len()
    }

    /// Adds a part that was measured, or the reason why it could not be.
    pub fn put_or_leave_out(&mut self, key: &str, measured: Result<Value, Failure>) {
        match measured {
            Ok(value) => self.put(key, value),
            Err(why) => {
                self.put(key, Value::Null);
                self.leave_out(key, &why.to_string());
            }
        }
    }

    /// Tells the user what happens.
    pub fn say(&self, what: &str) {
        eprintln!("{:6.1} s  {what}", self.start.elapsed().as_secs_f64());
    }

    /// Seconds that are left until a share of the time is spent.
    pub fn left(&self, share: f64) -> f64 {
        self.limit.as_secs_f64() * share - self.start.elapsed().as_secs_f64()
    }

    /// Writes what there is so far: a device that takes the system with it leaves a report of how far it came.
    pub fn save(&mut self, complete: bool) -> Result<(), Failure> {
        let seconds = json!({"limit": self.limit.as_secs_f64(), "used": self.start.elapsed().as_secs_f64()});
        self.put("complete", complete.into());
        self.put("seconds", seconds);
        self.put("left_out", self.left_out.clone().into());
        let write = || -> std::io::Result<()> {
            let mut file = &self.file;
            file.rewind()?;
            let text = serde_json::to_string_pretty(&self.document)? + "\n";
            // A device such as /dev/stdout has no length to set.
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            file.write_all(text.as_bytes())?;
            file.flush()
        };
        write().map_err(|source| Failure::File { path: self.path.clone(), source })
    }
}
