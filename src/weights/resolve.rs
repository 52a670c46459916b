//! From a logical tensor and a wanted shape to a format and exact byte ranges.

use std::ops::Range;

use crate::formats::{BlockScale, Format};

use super::dtype::Dtype;
use super::infer::{Evidence, infer};
use super::logical::{Logical, Pairing, Part};
use super::tiles::TileStamp;

/// The shape a request wants.
#[derive(Clone, Copy)]
pub(super) struct Want<'a> {
    pub(super) shape: &'a [u64],
    /// A stored vector may be longer; the rest is not read.
    pub(super) at_least: bool,
}

/// A tensor whose format is known and whose byte ranges have exactly the lengths it needs.
pub(super) struct Resolved {
    pub(super) format: Format,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) data: Range<usize>,
    /// Whether the bytes are in the engine layout.
    pub(super) tiled: bool,
}

/// Why a tensor does not fit.
pub(super) enum Misfit {
    /// Another shape; holds the stored one, in elements.
    Shape(Vec<u64>),
    /// Bytes that cannot be read; holds the reason and the way out.
    Format(String),
}

/// Works out how `tensor` answers a request for `want`.
pub(super) fn resolve(tensor: &Logical, want: Want) -> Result<Resolved, Misfit> {
    if let Some(stamp) = &tensor.data.tiles {
        return tiled(&tensor.data, stamp, want);
    }
    let mut data = tensor.data.range.clone();
    let format = match (tensor.pairing, &tensor.scale) {
        (Pairing::Plain, _) => {
            let format = plain_format(&tensor.data, &tensor.stored)?;
            check_plain_shape(&tensor.data, want)?;
            let (rows, cols) = matrix(want.shape);
            // No longer than the stored span, which the shape check compared in elements.
            data.end = data.start + (format.data_bytes(rows, cols) as usize).min(data.len());
            format
        }
        (Pairing::Sidecar, Some((_, scale))) => sidecar_format(tensor, scale, want)?,
        (Pairing::Packed, Some(scale)) => packed_format(tensor, scale, want)?,
        (Pairing::Scaled, Some(scale)) => scaled_format(tensor, scale, want)?,
        (_, None) => {
            return Err(Misfit::Format(format!(
                "`{}` has no scales next to it; check that the download is complete",
                tensor.stored
            )));
        }
    };
    finish(tensor, format, data, want)
}

/// A matrix in the engine layout: its stamp decides, and must agree with the bytes.
fn tiled(data: &Part, stamp: &TileStamp, want: Want) -> Result<Resolved, Misfit> {
    let shape = stamp.read().map_err(Misfit::Format)?;
    let (rows, cols) = (shape.rows as u64, shape.cols as u64);
    if matrix(want.shape) != (rows, cols) {
        return Err(Misfit::Shape(vec![rows, cols]));
    }
    shape.check(data).map_err(Misfit::Format)?;
    let data = data.range.start..data.range.start + shape.bytes;
    Ok(Resolved { format: shape.format, rows: shape.rows, cols: shape.cols, data, tiled: true })
}

/// Last gate: whatever led to `format`, both byte ranges must have the lengths it needs.
fn finish(tensor: &Logical, format: Format, data: Range<usize>, want: Want) -> Result<Resolved, Misfit> {
    let (rows, cols) = matrix(want.shape);
    let scales = tensor.scale.as_ref().map_or(0, |(_, part)| part.bytes());
    let fits = format.data_bytes(rows, cols) == data.len() as u64 && format.scale_bytes(rows, cols) == scales;
    match (usize::try_from(rows), usize::try_from(cols)) {
        (Ok(rows), Ok(cols)) if fits => Ok(Resolved { format, rows, cols, data, tiled: false }),
        _ => Err(Misfit::Shape(tensor.data.shape.clone())),
    }
}

/// Rows and columns of a shape: the last dimension is the columns, a vector has one row.
/// Saturates, which no stored byte count equals.
fn matrix(shape: &[u64]) -> (u64, u64) {
    match shape.split_last() {
        Some((cols, outer)) => (outer.iter().fold(1, |n: u64, dim| n.saturating_mul(*dim)), *cols),
        None => (1, 1),
    }
}

/// A shape without its dimensions of size one, which differ between exporters and mean nothing.
fn squeezed(shape: &[u64]) -> Vec<u64> {
    shape.iter().copied().filter(|dim| *dim != 1).collect()
}

fn same_shape(a: &[u64], b: &[u64]) -> bool {
    squeezed(a) == squeezed(b)
}

fn check_plain_shape(data: &Part, want: Want) -> Result<(), Misfit> {
    let (wanted, found) = (squeezed(want.shape), squeezed(&data.shape));
    let longer = want.at_least
        && wanted.len() <= 1
        && found.len() <= 1
        && found.first().unwrap_or(&1) >= wanted.first().unwrap_or(&1);
    if wanted == found || longer { Ok(()) } else { Err(Misfit::Shape(data.shape.clone())) }
}

fn plain_format(data: &Part, stored: &str) -> Result<Format, Misfit> {
    let why = match data.dtype {
        Dtype::F32 => return Ok(Format::F32),
        Dtype::F16 => return Ok(Format::F16),
        Dtype::Bf16 => return Ok(Format::Bf16),
        Dtype::I32 => return Ok(Format::I32),
        Dtype::I64 => return Ok(Format::I64),
        Dtype::U8 | Dtype::I8 => format!(
            "its {} codes need scales in `{stored}.qs`, which is not there; check that the download is complete",
            data.dtype
        ),
        Dtype::F8E4m3 => "its F8_E4M3 codes need 128x128 block scales in `.scale` or `.weight_scale_inv`, \
                          which are not there; use an export with block scales, or a bf16 one"
            .to_owned(),
        other => format!("this build does not read {other} weights; convert them to F32, F16 or BF16"),
    };
    Err(Misfit::Format(why))
}

/// Codes with a `.qs` sidecar: the byte counts decide.
fn sidecar_format(tensor: &Logical, scale: &Part, want: Want) -> Result<Format, Misfit> {
    let data = &tensor.data;
    if !matches!(data.dtype, Dtype::U8 | Dtype::I8) {
        return Err(Misfit::Format(format!(
            "it has a `.qs` sidecar, so its codes must be U8 or I8, not {}; convert the model again",
            data.dtype
        )));
    }
    let byte_scales = match scale.dtype {
        Dtype::F32 => false,
        Dtype::F8E8m0 | Dtype::U8 => true,
        other => {
            return Err(Misfit::Format(format!("its `.qs` scales must be F32, not {other}; convert the model again")));
        }
    };
    let (rows, cols) = matrix(want.shape);
    // Writers store codes flat or as [rows, bytes per row]; in the second case the rows must agree.
    let (found, wanted) = (squeezed(&data.shape), squeezed(want.shape));
    if found.len() > 1 && wanted.len() > 1 && matrix(&found).0 != matrix(&wanted).0 {
        return Err(Misfit::Shape(data.shape.clone()));
    }
    let stamp = tensor.stamp.as_deref();
    infer(&Evidence { rows, cols, data: data.bytes(), scales: scale.bytes(), byte_scales, stamp })
        .map_err(Misfit::Format)
}

/// Kimi K3 experts: U8 codes and U8 exponents.
fn packed_format(tensor: &Logical, scale: &(String, Part), want: Want) -> Result<Format, Misfit> {
    let dtypes = (tensor.data.dtype, scale.1.dtype);
    if !matches!(dtypes, (Dtype::U8, Dtype::U8 | Dtype::F8E8m0)) {
        return Err(Misfit::Format(format!(
            "`{}` is {} with {} scales; this build reads packed weights of U8 codes with U8 exponents (MXFP4) only",
            tensor.stored, dtypes.0, dtypes.1
        )));
    }
    mxfp4(&tensor.data, scale, want)
}

/// DeepSeek V4 (I8 codes are packed e2m1, F8_E4M3 codes are FP8) and GLM FP8 exports.
fn scaled_format(tensor: &Logical, scale: &(String, Part), want: Want) -> Result<Format, Misfit> {
    let (data, (scale_name, scale_part)) = (&tensor.data, scale);
    let block = match (data.dtype, scale_part.dtype) {
        (Dtype::I8, Dtype::F8E8m0) => return mxfp4(data, scale, want),
        (Dtype::F8E4m3, Dtype::F8E8m0) => BlockScale::Ue8m0,
        (Dtype::F8E4m3, Dtype::F32) => BlockScale::F32,
        (codes, other) => {
            return Err(Misfit::Format(format!(
                "its {codes} codes have {other} scales in `{scale_name}`; this build reads F8_E4M3 with F8_E8M0 or \
                 F32 block scales, and I8 with F8_E8M0 scales"
            )));
        }
    };
    if !same_shape(&data.shape, want.shape) {
        return Err(Misfit::Shape(data.shape.clone()));
    }
    let (rows, cols) = matrix(want.shape);
    check_scale_shape(scale, &[rows.div_ceil(128), cols.div_ceil(128)], "128x128 blocks")?;
    Ok(Format::Fp8Block { scale: block })
}

/// Two e2m1 codes per byte, one exponent per 32 columns.
fn mxfp4(data: &Part, scale: &(String, Part), want: Want) -> Result<Format, Misfit> {
    if !same_shape(&data.shape, &divided(want.shape, 2)) {
        // Shown in elements, like the wanted shape.
        let mut found = data.shape.clone();
        if let Some(last) = found.last_mut() {
            *last = last.saturating_mul(2);
        }
        return Err(Misfit::Shape(found));
    }
    check_scale_shape(scale, &divided(want.shape, 32), "groups of 32 columns")?;
    Ok(Format::Mxfp4)
}

/// `shape` with its last dimension divided, rounding up.
fn divided(shape: &[u64], by: u64) -> Vec<u64> {
    let mut shape = shape.to_vec();
    match shape.last_mut() {
        Some(last) => *last = last.div_ceil(by),
        None => shape.push(1),
    }
    shape
}

fn check_scale_shape(scale: &(String, Part), need: &[u64], per: &str) -> Result<(), Misfit> {
    let (name, part) = scale;
    if same_shape(&part.shape, need) {
        return Ok(());
    }
    Err(Misfit::Format(format!(
        "its scales `{name}` have the shape {:?}, but {per} need {need:?}; use an export with this block size",
        part.shape
    )))
}
