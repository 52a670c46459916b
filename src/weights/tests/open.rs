//! Opening files and directories, and every reason not to.

use std::fs;
use std::path::Path;

use tempfile::tempdir;

use super::{Entry, file, file_with, floats, open, raw};
use crate::weights::{Error, HeaderError, Index};

fn one(name: &str) -> Vec<u8> {
    file(&[(name, "F32", &[2], floats(&[1.0, 2.0]))])
}

/// The header error of a file with this header text and 8 data bytes.
fn header_error(header: &str) -> HeaderError {
    match open(raw(header, &[0; 8])) {
        Err(Error::Header { file, source }) => {
            assert_eq!(file, "test");
            source
        }
        other => panic!("expected a header error, got {other:?}"),
    }
}

fn tensor(dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#"{{"t": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}}}"#)
}

#[test]
fn a_single_file_opens_by_path_and_from_memory() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("any.name");
    fs::write(&path, one("a.weight")).unwrap();
    let index = Index::open(&path).unwrap();
    assert_eq!(index.names().collect::<Vec<_>>(), ["a.weight"]);
    assert_eq!(index.total_bytes(), 8);
    let index = Index::from_bytes("embedded", one("b").leak()).unwrap();
    assert_eq!(index.names().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_directory_prefers_the_index_then_the_single_file_then_everything() {
    let dir = tempdir().unwrap();
    let names = || Index::open(dir.path()).unwrap().names().collect::<Vec<_>>().join(" ");
    fs::write(dir.path().join("x.safetensors"), one("x")).unwrap();
    fs::write(dir.path().join("y.safetensors"), one("y")).unwrap();
    fs::write(dir.path().join("notes.txt"), "no weights").unwrap();
    assert_eq!(names(), "x y");
    fs::write(dir.path().join("model.safetensors"), one("single")).unwrap();
    assert_eq!(names(), "single");
    let index = r#"{"metadata": {"total_size": 8}, "weight_map": {"y": "y.safetensors"}}"#;
    fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
    assert_eq!(names(), "y");
}

#[test]
fn paths_without_weights_are_refused() {
    let dir = tempdir().unwrap();
    assert!(matches!(Index::open(dir.path()), Err(Error::NoShards { .. })));
    let missing = Index::open(&dir.path().join("nothing")).unwrap_err();
    assert!(matches!(&missing, Error::Io { path, .. } if path.ends_with("nothing")));
    fs::create_dir(dir.path().join("odd.safetensors")).unwrap();
    assert!(matches!(Index::open(dir.path()), Err(Error::NotAFile { .. })));
    assert!(matches!(Index::open(Path::new("/dev/null")), Err(Error::NotAFile { .. })));
    fs::write(dir.path().join("empty"), "").unwrap();
    let empty = Index::open(&dir.path().join("empty")).unwrap_err();
    assert!(matches!(empty, Error::Header { source: HeaderError::Short { len: 0 }, .. }));
}

#[test]
fn a_bad_shard_index_is_refused() {
    let dir = tempdir().unwrap();
    let with = |text: &str| {
        fs::write(dir.path().join("model.safetensors.index.json"), text).unwrap();
        Index::open(dir.path()).unwrap_err()
    };
    let missing = with(r#"{"weight_map": {"a": "gone.safetensors"}}"#);
    assert!(matches!(&missing, Error::MissingShard { shard, .. } if shard == "gone.safetensors"));
    assert!(missing.to_string().contains("gone.safetensors, which is missing"));
    for (text, why) in [
        ("{", "EOF"),
        ("[]", "expected struct"),
        ("{}", "missing field `weight_map`"),
        (r#"{"weight_map": {}}"#, "empty"),
        (r#"{"weight_map": {"a": 1}}"#, "expected a string"),
        (r#"{"weight_map": {"a": "x", "a": "y"}}"#, "`a` twice"),
        (r#"{"weight_map": {"a": "../x.safetensors"}}"#, "plain file name"),
        (r#"{"weight_map": {"a": "/etc/passwd"}}"#, "plain file name"),
        (r#"{"weight_map": {"a": ".."}}"#, "plain file name"),
        (r#"{"weight_map": {"a": ""}}"#, "plain file name"),
    ] {
        let error = with(text);
        assert!(matches!(error, Error::BadIndex { .. }), "{text}: {error}");
        assert!(error.to_string().contains(why), "{text}: {error}");
    }
}

#[test]
fn a_tensor_in_two_shards_is_refused_with_both_files() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("a.safetensors"), one("t")).unwrap();
    fs::write(dir.path().join("b.safetensors"), one("t")).unwrap();
    let error = Index::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("`t`") && error.contains("a.safetensors") && error.contains("b.safetensors"));
}

#[test]
fn truncated_files_are_refused_at_every_length() {
    let whole = one("t");
    for len in 0..whole.len() {
        assert!(matches!(open(whole[..len].to_vec()), Err(Error::Header { .. })), "{len} bytes");
    }
    assert!(open(whole).is_ok());
}

#[test]
fn absurd_header_lengths_are_refused() {
    let mut huge = u64::MAX.to_le_bytes().to_vec();
    huge.extend([0; 100]);
    let error = open(huge).unwrap_err();
    assert!(matches!(error, Error::Header { source: HeaderError::Long { len: u64::MAX }, .. }));
    let mut past = 500u64.to_le_bytes().to_vec();
    past.extend([b' '; 100]);
    let error = open(past).unwrap_err();
    assert!(matches!(error, Error::Header { source: HeaderError::Truncated { len: 500, rest: 100 }, .. }));
}

#[test]
fn malformed_headers_are_refused() {
    for (header, why) in [
        ("", "EOF"),
        ("{", "EOF"),
        ("[1]", "a JSON object of tensors"),
        (r#"{"t": 5}"#, "tensor `t`"),
        (r#"{"t": {"dtype": "F32", "shape": [2]}}"#, "missing field `data_offsets`"),
        (&tensor("F32", "[-2]", "[0, 8]"), "-2"),
        (&tensor("F32", "[2]", "[0, 8, 9]"), "trailing"),
        (&tensor("F32", "[1e99]", "[0, 8]"), "tensor `t`"),
        (r#"{"__metadata__": {"format": 5}}"#, "expected a string"),
        ("{} {}", "trailing characters"),
    ] {
        let error = header_error(header);
        assert!(matches!(error, HeaderError::Json(_)), "{header}: {error}");
        assert!(error.to_string().contains(why), "{header}: {error}");
    }
    let deep = format!(r#"{{"t": {}"#, "[".repeat(100_000));
    assert!(matches!(header_error(&deep), HeaderError::Json(_)));
    assert!(matches!(open(raw("\u{1}", &[])), Err(Error::Header { .. })));
}

#[test]
fn repeated_keys_are_refused() {
    let entry = r#"{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}"#;
    let error = header_error(&format!(r#"{{"t": {entry}, "t": {entry}}}"#));
    assert!(matches!(error, HeaderError::Repeated { key } if key == "t"));
    let error = header_error(r#"{"__metadata__": {"a": "1"}, "__metadata__": {"a": "2"}}"#);
    assert!(matches!(error, HeaderError::Repeated { key } if key == "a"));
    let error = header_error(r#"{"t": {"dtype": "F32", "dtype": "I8", "shape": [], "data_offsets": [0, 4]}}"#);
    assert!(matches!(error, HeaderError::Json(_)));
}

#[test]
fn claims_that_do_not_fit_the_file_are_refused() {
    use HeaderError as H;
    let error = header_error(&tensor("Q3_K", "[2]", "[0, 8]"));
    assert!(matches!(&error, H::Dtype { dtype, .. } if dtype == "Q3_K"));
    let error = header_error(&tensor("F32", "[4294967296, 4294967296]", "[0, 8]"));
    assert!(matches!(error, H::Shape { .. }));
    for offsets in ["[0, 9]", "[8, 0]", "[16, 24]", "[0, 18446744073709551615]"] {
        let error = header_error(&tensor("F32", "[2]", offsets));
        assert!(matches!(error, H::Range { data: 8, .. }), "{offsets}");
    }
    for (dtype, shape) in [("F32", "[3]"), ("BF16", "[2]"), ("U8", "[2, 2]"), ("I64", "[]")] {
        let error = header_error(&tensor(dtype, shape, "[0, 6]"));
        assert!(matches!(error, H::Size { found: 6, .. }), "{dtype} {shape}");
    }
}

#[test]
fn overlapping_tensors_are_refused_and_gaps_are_not() {
    let at = |begin: u64| {
        format!(
            r#"{{"a": {{"dtype": "U8", "shape": [4], "data_offsets": [{begin}, {}]}},
                 "b": {{"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}},
                 "empty": {{"dtype": "U8", "shape": [0], "data_offsets": [1, 1]}}}}"#,
            begin + 4
        )
    };
    let error = header_error(&at(2));
    assert!(matches!(&error, HeaderError::Overlap { first, second } if first == "b" && second == "a"));
    assert!(open(raw(&at(3), &[0; 8])).is_ok());
    assert!(open(raw(&at(4), &[0; 8])).is_ok());
}

#[test]
fn stamps_must_be_readable_and_agree() {
    let entries: [Entry; 1] = [("t", "U8", &[1], vec![0])];
    let stamped = |text: &str| open(file_with(&entries, &[("colibri.fmt", text)]));
    assert!(stamped(r#"{"t": "int8-row"}"#).is_ok());
    for text in ["", "[]", r#"{"t": 1}"#] {
        let error = stamped(text).unwrap_err();
        assert!(matches!(error, Error::Header { source: HeaderError::Stamps(_), .. }));
    }
    let error = stamped(r#"{"t": "int8-row", "t": "int4-row"}"#).unwrap_err();
    assert!(matches!(&error, Error::StampConflict { name, .. } if name == "t"), "{error}");
}
