//! Values as they cross between device buffers and the host.

use crate::graph::Value;
use crate::ops::Type;
use std::sync::Arc;

/// Words per row of a value in a device buffer; None for what never crosses.
pub fn width(ty: &Type) -> Option<usize> {
    Some(match ty {
        Type::Tensor { dims, .. } => dims.iter().product::<u64>() as usize,
        Type::Route { k, .. } => 2 * *k as usize,
        Type::Selection { k, .. } => *k as usize + 1,
        Type::HcMix { streams } => (2 * streams + streams * streams) as usize,
        Type::Tokens | Type::Scores { .. } | Type::Cache { .. } | Type::Stack { .. } => return None,
    })
}

/// A value from the words of a buffer.
pub fn from_words(ty: &Type, words: &[u32]) -> Option<Value> {
    let floats = |w: &[u32]| w.iter().map(|x| f32::from_bits(*x)).collect::<Vec<f32>>();
    Some(match ty {
        Type::Tensor { .. } | Type::HcMix { .. } => Value::tensor(floats(words)),
        Type::Route { k, .. } => {
            let k = *k as usize;
            let rows = words.chunks_exact(2 * k);
            let ids = rows.clone().flat_map(|r| &r[..k]).copied().collect();
            let weights = rows.flat_map(|r| floats(&r[k..])).collect();
            Value::Route { ids: Arc::new(ids), weights: Arc::new(weights) }
        }
        Type::Selection { k, .. } => {
            let row = |r: &[u32]| r[1..=(r[0] as usize).min(*k as usize)].to_vec();
            Value::Selection(Arc::new(words.chunks_exact(*k as usize + 1).map(row).collect()))
        }
        _ => return None,
    })
}

/// The words of a value.
pub fn to_words(ty: &Type, value: &Value) -> Option<Vec<u32>> {
    Some(match (ty, value) {
        (Type::Tensor { .. } | Type::HcMix { .. }, Value::Tensor(t)) => t.iter().map(|x| x.to_bits()).collect(),
        (Type::Route { k, .. }, Value::Route { ids, weights }) => {
            let rows = ids.chunks_exact(*k as usize).zip(weights.chunks_exact(*k as usize));
            rows.flat_map(|(i, w)| i.iter().copied().chain(w.iter().map(|x| x.to_bits()))).collect()
        }
        (Type::Selection { k, .. }, Value::Selection(rows)) => {
            let mut out = vec![];
            for r in rows.iter() {
                out.push(r.len() as u32);
                out.extend_from_slice(r);
                out.resize(out.len() + *k as usize - r.len(), 0);
            }
            out
        }
        _ => return None,
    })
}
