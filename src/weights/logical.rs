//! Joining stored parts into logical tensors.
//!
//! A quantised weight is two stored tensors, codes and scales, under names that differ between
//! model families. Grouping gives each pair the one name the model graph asks for. Source:
//! formats.md sections 7.1, 7.2, 9.3 and 9.7.
//!
//! | stored codes | stored scales | logical name | pairing |
//! |---|---|---|---|
//! | `N` | `N.qs` | `N` | [`Pairing::Sidecar`] |
//! | `X.weight_packed` | `X.weight_scale` | `X.weight` | [`Pairing::Packed`] |
//! | `X.weight` (I8 or F8_E4M3) | `X.scale` | `X.weight` | [`Pairing::Scaled`] |
//! | `X.weight` (F8_E4M3) | `X.weight_scale_inv` | `X.weight` | [`Pairing::Scaled`] |
//! | `N` with a stamp of the engine layout | inside | `N` | [`Pairing::Plain`] |
//! | any other `N` | none | `N` | [`Pairing::Plain`] |

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::dtype::Dtype;
use super::tiles::TileStamp;

/// One stored tensor and where it lies.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Position of the shard in the index.
    pub(super) shard: usize,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
    /// Byte range in the shard's file.
    pub(super) range: Range<usize>,
    /// What the metadata says, if the bytes are in the engine layout.
    pub(super) tiles: Option<TileStamp>,
}

impl Part {
    /// Stored bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.range.len() as u64
    }
}

/// How codes and scales found each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pairing {
    /// A single stored tensor.
    Plain,
    /// Scales in `N.qs`; the format follows from the byte counts.
    Sidecar,
    /// Kimi K3 naming; always MXFP4.
    Packed,
    /// DeepSeek naming; MXFP4 or FP8, by the dtype of the codes.
    Scaled,
}

/// A weight as the model graph knows it.
#[derive(Clone, Debug)]
pub(super) struct Logical {
    pub(super) pairing: Pairing,
    /// Stored name of the codes.
    pub(super) stored: String,
    pub(super) data: Part,
    /// Stored name and place of the scales. A [`Pairing::Packed`] weight may lack them, which is
    /// reported when the weight is asked for.
    pub(super) scale: Option<(String, Part)>,
    /// Format stamp from the file's metadata.
    pub(super) stamp: Option<String>,
}

/// Groups every stored tensor. Scales without codes stay tensors of their own, so they show up as
/// unused instead of vanishing.
pub(super) fn group(stored: &HashMap<String, Part>, mut stamps: HashMap<String, String>) -> BTreeMap<String, Logical> {
    let mut logical = BTreeMap::new();
    for (name, part) in stored {
        if owner(stored, name).is_some() {
            continue;
        }
        let (key, pairing, scale) = scales_of(stored, name, part);
        let scale = scale.and_then(|name| stored.get_key_value(&name)).map(|(n, p)| (n.clone(), p.clone()));
        let stamp = stamps.remove(name);
        logical.insert(key, Logical { pairing, stored: name.clone(), data: part.clone(), scale, stamp });
    }
    logical
}

/// Logical name, pairing and stored scale name of the codes `name`.
fn scales_of(stored: &HashMap<String, Part>, name: &str, part: &Part) -> (String, Pairing, Option<String>) {
    if part.tiles.is_some() {
        return (name.to_owned(), Pairing::Plain, None);
    }
    let present = |scale: String| stored.contains_key(&scale).then_some(scale);
    if let Some(scale) = present(format!("{name}.qs")) {
        return (name.to_owned(), Pairing::Sidecar, Some(scale));
    }
    if let Some(base) = packed_base(stored, name) {
        return (format!("{base}.weight"), Pairing::Packed, present(format!("{base}.weight_scale")));
    }
    if let Some(base) = name.strip_suffix(".weight") {
        let spellings: &[&str] = match part.dtype {
            Dtype::F8E4m3 => &["scale", "weight_scale_inv"],
            Dtype::I8 => &["scale"],
            _ => &[],
        };
        let scale = spellings.iter().find_map(|spelling| present(format!("{base}.{spelling}")));
        if scale.is_some() {
            return (name.to_owned(), Pairing::Scaled, scale);
        }
    }
    (name.to_owned(), Pairing::Plain, None)
}

/// The stored codes that `name` holds the scales of.
fn owner(stored: &HashMap<String, Part>, name: &str) -> Option<String> {
    let candidates = [
        name.strip_suffix(".qs").map(str::to_owned),
        name.strip_suffix(".weight_scale").map(|base| format!("{base}.weight_packed")),
        name.strip_suffix(".scale").map(|base| format!("{base}.weight")),
        name.strip_suffix(".weight_scale_inv").map(|base| format!("{base}.weight")),
    ];
    candidates.into_iter().flatten().find(|codes| {
        // Only if those codes would choose these scales: a second pair of scales is nobody's.
        stored.get(codes).is_some_and(|part| scales_of(stored, codes, part).2.as_deref() == Some(name))
    })
}

/// `X` of `X.weight_packed`, unless a stored `X.weight` already has the logical name.
fn packed_base<'n>(stored: &HashMap<String, Part>, name: &'n str) -> Option<&'n str> {
    let base = name.strip_suffix(".weight_packed")?;
    (!stored.contains_key(&format!("{base}.weight"))).then_some(base)
}
