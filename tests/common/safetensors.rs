//! A small safetensors reader and writer, independent of the library's own (which the tests check).

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

/// A tensor as it lies in a file: little-endian, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The format's own name: `F32`, `BF16`, `I32`, `F8_E4M3`, ...
    pub dtype: String,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Tensor {
    /// Panics if the number of bytes does not fit the shape and type.
    pub fn new(dtype: &str, shape: &[usize], data: Vec<u8>) -> Self {
        let elements: usize = shape.iter().product();
        assert_eq!(data.len(), elements * dtype_size(dtype), "{dtype} {shape:?}");
        Self { dtype: dtype.to_owned(), shape: shape.to_vec(), data }
    }

    pub fn from_f32(shape: &[usize], values: &[f32]) -> Self {
        Self::new("F32", shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// Rounds to the nearest bfloat16, ties to even.
    pub fn from_f32_as_bf16(shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes());
        Self::new("BF16", shape, bytes.collect())
    }

    pub fn from_i64(shape: &[usize], values: &[i64]) -> Self {
        Self::new("I64", shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// The values of an `F32`, `BF16` or `F16` tensor, otherwise `None`.
    pub fn f32(&self) -> Option<Vec<f32>> {
        let pairs = || self.data.as_chunks::<2>().0.iter();
        match self.dtype.as_str() {
            "F32" => Some(self.data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
            "BF16" => Some(pairs().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect()),
            "F16" => Some(pairs().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect()),
            _ => None,
        }
    }

    /// The values of an `I32` tensor, otherwise `None`.
    pub fn i32(&self) -> Option<Vec<i32>> {
        let words = self.data.as_chunks::<4>().0.iter();
        (self.dtype == "I32").then(|| words.map(|b| i32::from_le_bytes(*b)).collect())
    }
}

/// Named tensors in the order of their data.
pub type Tensors = Vec<(String, Tensor)>;

/// Reads a whole file, checking that the tensors fill the data without gaps.
pub fn read(path: &Path) -> Tensors {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (size, rest) = bytes.split_first_chunk::<8>().expect("header size");
    let (text, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*size)).expect("header size"));
    let mut header: Map<String, Value> = serde_json::from_slice(text).expect("header");
    header.remove("__metadata__");
    let mut entries: Vec<(usize, usize, String, &Value)> =
        header.iter().map(|(name, e)| (offset(e, 0), offset(e, 1), name.clone(), e)).collect();
    entries.sort_by_key(|(begin, end, ..)| (*begin, *end));
    let mut at = 0;
    let mut tensors = Vec::with_capacity(entries.len());
    for (begin, end, name, entry) in entries {
        assert_eq!(begin, at, "{}: {name} does not follow the tensor before it", path.display());
        at = end;
        let dtype = entry["dtype"].as_str().expect("dtype");
        let shape: Vec<usize> = entry["shape"].as_array().expect("shape").iter().map(index).collect();
        tensors.push((name, Tensor::new(dtype, &shape, data[begin..end].to_vec())));
    }
    assert_eq!(at, data.len(), "{}: bytes after the last tensor", path.display());
    tensors
}

/// Writes the tensors in the given order, with the header that the `safetensors` package would write.
pub fn write(path: &Path, tensors: &[(String, Tensor)]) {
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut at = 0;
    for (name, tensor) in tensors {
        let end = at + tensor.data.len();
        let entry = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, end]});
        assert!(header.insert(name.clone(), entry).is_none(), "{name} twice");
        at = end;
    }
    let mut text = serde_json::to_vec(&header).expect("header");
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text);
    bytes.extend(tensors.iter().flat_map(|(_, tensor)| &tensor.data));
    fs::write(path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

fn offset(entry: &Value, which: usize) -> usize {
    index(&entry["data_offsets"][which])
}

fn index(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("unsigned number")).expect("fits usize")
}

fn dtype_size(dtype: &str) -> usize {
    match dtype {
        "F64" | "I64" | "U64" => 8,
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" | "I16" | "U16" => 2,
        "I8" | "U8" | "BOOL" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 1,
        other => panic!("unknown dtype {other}"),
    }
}
