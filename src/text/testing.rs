//! Small files for the tests of this module.

use super::{DirFiles, Tokenizer};
use serde_json::{Map, Value, json};

/// Id of the one whole word of the test vocabulary, `the`.
pub const MERGED: u32 = 257;
/// Id of `<|user|>`, special.
pub const USER: u32 = 258;
/// Id of `<|end|>`, special.
pub const END: u32 = 259;
/// Id of `<think>`, not special; the last id.
pub const THINK: u32 = 260;

/// A byte-level BPE: ids 0..=255 are the bytes, 256 and 257 the merges `th` and `the`,
/// [`USER`] and [`END`] special, [`THINK`] not special.
pub fn tokenizer_json() -> String {
    let mut vocab = Map::new();
    for byte in 0..=255_u8 {
        vocab.insert(byte_char(byte).to_string(), Value::from(byte));
    }
    vocab.insert("th".to_owned(), Value::from(256));
    vocab.insert("the".to_owned(), Value::from(MERGED));
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": special})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [
            added(USER, "<|user|>", true),
            added(END, "<|end|>", true),
            added(THINK, "<think>", false),
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                          "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true,
                    "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocab, "merges": [["t", "h"], ["th", "e"]]}
    })
    .to_string()
}

/// The character by which byte-level vocabularies spell a byte: printable Latin-1 stands for
/// itself, the other bytes follow from U+0100 on in byte order.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if printable(byte) {
        return char::from(byte);
    }
    let earlier = (0..byte).filter(|&b| !printable(b)).count();
    char::from_u32(256 + earlier as u32).unwrap()
}

/// A SentencePiece-like BPE with byte fallback: ids 0..=255 are the byte tokens, 256 `▁`, 257 `▁a`,
/// 258 `b`, 259 `é`. A leading space of the text is dropped.
pub fn fallback_tokenizer() -> Tokenizer {
    let mut vocab = Map::new();
    for byte in 0..=255_u8 {
        vocab.insert(format!("<0x{byte:02X}>"), Value::from(byte));
    }
    for (id, token) in (256..).zip(["▁", "▁a", "b", "é"]) {
        vocab.insert(token.to_owned(), Value::from(id));
    }
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [], "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": true, "ignore_merges": false,
                  "vocab": vocab, "merges": []}
    });
    let dir = files_with(&[("tokenizer.json", &json.to_string())]);
    Tokenizer::load(&DirFiles(dir.path().to_owned())).unwrap()
}

/// A temporary folder with these files.
pub fn files_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

/// The tokenizer of [`tokenizer_json`].
pub fn bytes_tokenizer() -> Tokenizer {
    let dir = files_with(&[("tokenizer.json", &tokenizer_json())]);
    Tokenizer::load(&DirFiles(dir.path().to_owned())).unwrap()
}
