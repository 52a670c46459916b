//! Where the bytes of a shard lie, and its header.

use serde_json::{Map, Value, json};

/// One stored tensor of the output: codes, scales or plain values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The name in the file.
    pub name: String,
    /// As safetensors spells it.
    pub dtype: String,
    /// Elements of the dtype.
    pub shape: Vec<u64>,
    /// Bytes.
    pub bytes: u64,
    /// First byte, from the start of the file; set when the shard is laid out.
    pub at: u64,
}

/// One file of the output.
#[derive(Debug, Clone)]
pub struct Shard {
    /// File name.
    pub file: String,
    /// Positions in `Plan::tensors`.
    pub tensors: std::ops::Range<usize>,
    /// Length and text of the header.
    pub header: Vec<u8>,
    /// Of the whole file.
    pub bytes: u64,
}

/// Gives every piece its place, in the order given, and makes the header. Returns the header and the file's bytes.
pub(super) fn lay_out(pieces: &mut [&mut Piece], stamps: &[(String, String)]) -> (Vec<u8>, u64) {
    let mut map = Map::new();
    let stamps: Map<String, Value> = stamps.iter().map(|(name, stamp)| (name.clone(), stamp.as_str().into())).collect();
    let mut metadata = Map::new();
    metadata.insert("format".into(), "pt".into());
    if !stamps.is_empty() {
        metadata.insert("colibri.fmt".into(), Value::Object(stamps).to_string().into());
    }
    map.insert("__metadata__".into(), Value::Object(metadata));
    let mut at = 0;
    for piece in pieces.iter_mut() {
        let end = at + piece.bytes;
        let entry = json!({"dtype": piece.dtype, "shape": piece.shape, "data_offsets": [at, end]});
        map.insert(piece.name.clone(), entry);
        piece.at = at;
        at = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    // Data starts at a multiple of 8, as in every writer's files.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.extend(text);
    let start = header.len() as u64;
    pieces.iter_mut().for_each(|piece| piece.at += start);
    (header, start + at)
}
