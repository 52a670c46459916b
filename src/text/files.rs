//! Where the side files of a model come from: a folder, or bytes inside the program.

use super::Error;
use serde_json::{Map, Value};
use std::io;
use std::path::PathBuf;

/// A place with named files.
pub trait Files {
    /// The whole content of the file, or `None` if there is no such file.
    ///
    /// # Errors
    /// Any failure other than the file's absence.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, io::Error>;

    /// How messages name this place.
    fn label(&self) -> String;
}

/// Files of a folder on disk.
#[derive(Clone, Debug)]
pub struct DirFiles(pub PathBuf);

impl Files for DirFiles {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, io::Error> {
        match std::fs::read(self.0.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            // A missing folder must not look like a model that merely lacks one optional file.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.0.is_dir() => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let text = format!("there is no folder {}", self.0.display());
                Err(io::Error::new(io::ErrorKind::NotFound, text))
            }
            Err(e) => Err(e),
        }
    }

    fn label(&self) -> String {
        self.0.display().to_string()
    }
}

/// Files compiled into the program, as pairs of name and content.
#[derive(Clone, Copy, Debug)]
pub struct Embedded(pub &'static [(&'static str, &'static [u8])]);

impl Files for Embedded {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, io::Error> {
        let found = self.0.iter().find(|(have, _)| *have == name);
        Ok(found.map(|(_, bytes)| bytes.to_vec()))
    }

    fn label(&self) -> String {
        "the embedded model".to_owned()
    }
}

/// Reads a file and says in the error which file of which place it was.
pub(super) fn bytes(files: &dyn Files, name: &str) -> Result<Option<Vec<u8>>, Error> {
    files.read(name).map_err(|reason| Error::Read { file: name.to_owned(), from: files.label(), reason })
}

/// Reads a UTF-8 text file.
pub(super) fn text(files: &dyn Files, name: &str) -> Result<Option<String>, Error> {
    let Some(bytes) = bytes(files, name)? else {
        return Ok(None);
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(e) => Err(malformed(files, name, format!("not UTF-8 text: {e}"))),
    }
}

/// Reads a JSON file whose top level is an object; key order is kept.
pub(super) fn json(files: &dyn Files, name: &str) -> Result<Option<Map<String, Value>>, Error> {
    let Some(bytes) = bytes(files, name)? else {
        return Ok(None);
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(map)) => Ok(Some(map)),
        Ok(other) => {
            let reason = format!("its top level is {}, not an object", kind(&other));
            Err(malformed(files, name, reason))
        }
        Err(e) => Err(malformed(files, name, format!("not JSON: {e}"))),
    }
}

/// An [`Error::Malformed`] about a file of this place.
pub(super) fn malformed(files: &dyn Files, name: &str, reason: String) -> Error {
    Error::Malformed { file: name.to_owned(), from: files.label(), reason }
}

/// An [`Error::Key`] about a key of a file of this place.
pub(super) fn bad_key(files: &dyn Files, name: &str, key: &str, problem: String) -> Error {
    Error::Key { file: name.to_owned(), from: files.label(), key: key.to_owned(), problem }
}

/// What a JSON value is, in words, for messages.
pub(super) fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gives_files_and_absence() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.json"), b"{\"x\": 1}").unwrap();
        let files = DirFiles(dir.path().to_owned());
        assert_eq!(files.read("a.json").unwrap().unwrap(), b"{\"x\": 1}");
        assert!(files.read("b.json").unwrap().is_none());
        assert_eq!(json(&files, "a.json").unwrap().unwrap()["x"], 1);
    }

    #[test]
    fn a_missing_folder_is_an_error_not_an_absent_file() {
        let dir = tempfile::tempdir().unwrap();
        let files = DirFiles(dir.path().join("nowhere"));
        let message = text(&files, "config.json").unwrap_err().to_string();
        assert!(message.contains("config.json"), "{message}");
        assert!(message.contains("there is no folder"), "{message}");
    }

    #[test]
    fn embedded_files_read_alike() {
        let files = Embedded(&[("a", b"1"), ("bad", b"\xff")]);
        assert_eq!(text(&files, "a").unwrap().unwrap(), "1");
        assert!(text(&files, "c").unwrap().is_none());
        let message = text(&files, "bad").unwrap_err().to_string();
        assert!(message.contains("bad in the embedded model"), "{message}");
    }

    #[test]
    fn json_errors_name_the_file() {
        let files = Embedded(&[("list.json", b"[1]"), ("cut.json", b"{\"a\":")]);
        let list = json(&files, "list.json").unwrap_err().to_string();
        assert!(list.contains("list.json") && list.contains("a list"), "{list}");
        let cut = json(&files, "cut.json").unwrap_err().to_string();
        assert!(cut.contains("cut.json") && cut.contains("line 1"), "{cut}");
    }
}
