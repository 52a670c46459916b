//! Where the bytes of a shard lie, and its header.

use crate::formats::layout::ALIGN;
use crate::weights::{PADDING, TILES, TileStamp};
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
    /// Bytes of the tensor.
    pub data: u64,
    /// Bytes in the file: those and the padding behind them.
    pub bytes: u64,
    /// First byte, from the start of the file; set when the shard is laid out.
    pub at: u64,
    /// What the metadata says of a tensor in the engine layout.
    pub tiles: Option<TileStamp>,
    /// Whether the place must be aligned: tensors in the engine layout that this build can read.
    pub aligned: bool,
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
///
/// Data starts at a multiple of [`PADDING`], which the spaces behind the header's text see to. So whatever keeps to
/// multiples inside of the data keeps to them in the file, and in memory where the file is mapped.
pub(super) fn lay_out(pieces: &mut [&mut Piece], stamps: &[(String, String)]) -> (Vec<u8>, u64) {
    let mut map = Map::new();
    map.insert("__metadata__".into(), metadata(pieces, stamps));
    let mut at = 0;
    for piece in pieces.iter_mut() {
        let end = at + piece.bytes;
        let entry = json!({"dtype": piece.dtype, "shape": piece.shape, "data_offsets": [at, end]});
        map.insert(piece.name.clone(), entry);
        piece.at = at;
        at = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    const LENGTH: usize = size_of::<u64>();
    text.resize((LENGTH + text.len()).next_multiple_of(PADDING as usize) - LENGTH, b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.extend(text);
    let start = header.len() as u64;
    pieces.iter_mut().for_each(|piece| piece.at += start);
    (header, start + at)
}

/// What is said of the tensors besides type and place. Values are texts, as safetensors wants them.
fn metadata(pieces: &[&mut Piece], stamps: &[(String, String)]) -> Value {
    let stamps: Map<String, Value> = stamps.iter().map(|(name, stamp)| (name.clone(), stamp.as_str().into())).collect();
    let tiles = pieces.iter().filter_map(|p| Some((p.name.clone(), json!(p.tiles.as_ref()?))));
    let tiles: Map<String, Value> = tiles.collect();
    let mut metadata = Map::new();
    metadata.insert("format".into(), "pt".into());
    for (key, map) in [("colibri.fmt", stamps), (TILES, tiles)] {
        if !map.is_empty() {
            metadata.insert(key.into(), Value::Object(map).to_string().into());
        }
    }
    Value::Object(metadata)
}

/// Pads the matrices of a group, which lie side by side, so that each starts at a multiple of [`ALIGN`] bytes from the
/// start of the first, and the next group at a multiple of [`PADDING`].
///
/// A group is what is read at once: an expert. A matrix of it needs no more than what its planes need, and 4 KiB for
/// each would make small experts larger by several percent.
pub(super) fn pad(pieces: &mut [&mut Piece]) {
    let (mut at, last) = (0u64, pieces.len().saturating_sub(1));
    for (i, piece) in pieces.iter_mut().enumerate() {
        let end = (at + piece.data).next_multiple_of(if i == last { PADDING } else { ALIGN as u64 });
        piece.bytes = end - at;
        piece.shape = vec![piece.bytes];
        at = end;
    }
}
