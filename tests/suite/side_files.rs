//! Files that a conversion copies along with the weights.

use crate::convert::{Silent, open, options, tiny};
use coli::convert::{Error, Phase, Plan, Source, Watch};
use std::path::PathBuf;

/// Puts something else into a file when shards begin to be written.
struct Meddler(PathBuf);

impl Watch for Meddler {
    fn begin(&self, phase: Phase, _: u64) {
        if phase == Phase::Write {
            std::fs::write(&self.0, "other").unwrap();
        }
    }

    fn done(&self, _: u64) {}
}

/// What is copied along is what the receipt says, all of it.
#[test]
fn side_files_are_what_was_hashed() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tiny(&tmp.path().join("plain"), 256);
    let (notes, out) = (dir.join("notes.txt"), tmp.path().join("out"));
    std::fs::write(&notes, "these").unwrap();
    let model = open("qwen3_moe", &dir);
    let run = |watch: &dyn Watch| {
        let plan = Plan::new(&model.graph, &model.weights, &model.index, options("int8", "keep")).unwrap();
        coli::convert::run(&plan, Source { dir: &dir, graph: &model.graph }, &out, 1, watch)
    };
    let error = run(&Meddler(notes.clone())).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }) && error.to_string().contains("notes.txt"), "{error}");
    assert!(!out.join("notes.txt").exists());
    std::fs::write(&notes, "these").unwrap();
    assert!(run(&Silent).unwrap().kept > 0);
    assert_eq!(std::fs::read(out.join("notes.txt")).unwrap(), b"these");
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;
        std::fs::write(dir.join(std::ffi::OsStr::from_bytes(b"odd\xff.txt")), "x").unwrap();
        let error = run(&Silent).unwrap_err();
        assert!(matches!(error, Error::Name { .. }) && error.to_string().contains("not UTF-8"), "{error}");
    }
}
