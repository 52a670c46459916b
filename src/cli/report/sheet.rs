//! The report while it grows: what is known, what was left out and why, and the time that is left.

use crate::cli::failure::Failure;
use serde_json::{Map, Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where a report goes.
enum Place {
    /// A regular file, behind all links.
    File(PathBuf),
    /// Anything else, such as a pipe: what is written there cannot be replaced.
    Stream(File),
}

/// A report in its file.
pub struct Sheet {
    document: Map<String, Value>,
    left_out: Vec<Value>,
    to: Place,
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
        let place = opened.and_then(|file| match file.metadata()?.is_file() {
            true => Ok(Place::File(fs::canonicalize(path)?)),
            false => Ok(Place::Stream(file)),
        });
        let to = place.map_err(|source| Failure::File { path: name.clone(), source })?;
        Ok(Self { document: Map::new(), left_out: vec![], to, path: name, start: Instant::now(), limit })
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

    /// Writes what there is so far: a device that takes the system with it leaves a report of how far it came. What is no
    /// regular file gets the complete report only.
    pub fn save(&mut self, complete: bool) -> Result<(), Failure> {
        let seconds = json!({"limit": self.limit.as_secs_f64(), "used": self.start.elapsed().as_secs_f64()});
        self.put("complete", complete.into());
        self.put("seconds", seconds);
        self.put("left_out", self.left_out.clone().into());
        let write = || -> std::io::Result<()> {
            let text = serde_json::to_string_pretty(&self.document)? + "\n";
            match &self.to {
                Place::File(path) => replace(path, text.as_bytes()),
                Place::Stream(file) if complete => (&*file).write_all(text.as_bytes()),
                Place::Stream(_) => Ok(()),
            }
        };
        write().map_err(|source| Failure::File { path: self.path.clone(), source })
    }
}

/// Writes a file so that it is there as it was or as it is to be, whenever the system goes down.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let mut file = File::create(&name)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&name, path)?;
    // The name itself has to reach the disk. Where directories cannot be opened, the system takes care of it.
    match path.parent().map(File::open) {
        Some(Ok(dir)) => dir.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// Whatever has the file of before keeps it whole, and nothing else is left.
    #[test]
    fn a_report_is_replaced_and_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let (path, before) = (dir.path().join("gpu.json"), dir.path().join("before.json"));
        let mut sheet = Sheet::open(&path, Duration::from_secs(1)).unwrap();
        sheet.put("first", 1.into());
        sheet.save(false).unwrap();
        assert_eq!(read(&path)["complete"], false);
        fs::hard_link(&path, &before).unwrap();
        sheet.save(true).unwrap();
        assert_eq!((&read(&before)["complete"], &read(&path)["complete"]), (&false.into(), &true.into()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        #[cfg(unix)]
        {
            let link = dir.path().join("link.json");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            Sheet::open(&link, Duration::from_secs(1)).unwrap().save(false).unwrap();
            assert!(link.is_symlink() && read(&path)["complete"] == false);
        }
    }
}
