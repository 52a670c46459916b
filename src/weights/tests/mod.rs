//! Tests of whole files: a writer of small safetensors files, and what the module makes of them.

mod bind;
mod mutate;
mod open;
mod pairs;
mod resolver;
mod stored;
mod tiles;

use super::shard::Shard;
use super::{Error, Index, Request};

/// A tensor to write: name, dtype, shape, bytes.
pub(super) type Entry<'a> = (&'a str, &'a str, &'a [u64], Vec<u8>);

/// Little-endian f32 bytes.
pub(super) fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A safetensors file with the tensors one after another.
pub(super) fn file(entries: &[Entry]) -> Vec<u8> {
    file_with(entries, &[])
}

/// As [`file`], with metadata.
pub(super) fn file_with(entries: &[Entry], metadata: &[(&str, &str)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        let map: serde_json::Map<_, _> =
            metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        header.insert("__metadata__".to_owned(), map.into());
    }
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in entries {
        let begin = data.len();
        data.extend(bytes);
        let offsets = [begin, data.len()];
        let entry = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
        header.insert((*name).to_owned(), entry);
    }
    raw(&serde_json::Value::Object(header).to_string(), &data)
}

/// A file with this header text, whatever it says.
pub(super) fn raw(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

/// Opens bytes as a file called `test`.
pub(super) fn open(bytes: Vec<u8>) -> Result<Index, Error> {
    Index::assemble(vec![Shard::from_bytes("test", bytes)])
}

/// A request for one tensor.
pub(super) fn want(name: &str, shape: &[u64]) -> Request {
    Request { names: vec![name.to_owned()], shape: shape.to_vec(), at_least: false, experts: None }
}

/// All values of the tensor of request 0.
pub(super) fn decode(index: &Index, request: Request) -> Vec<f32> {
    let bound = index.bind(&[request], &["*".to_owned()]).unwrap();
    let matrix = bound.one(0).matrix();
    let mut out = vec![0.0; matrix.rows() * matrix.cols()];
    for (row, values) in out.chunks_mut(matrix.cols()).enumerate() {
        matrix.decode_row(row, values);
    }
    out
}
