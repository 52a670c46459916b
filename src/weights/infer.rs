//! Format of a weight with a `.qs` sidecar, from its byte counts.
//!
//! Such containers do not write the format down. The wanted shape and the sizes of codes and scales
//! usually leave one reading; a stamp in the metadata decides when they do not. Source: formats.md
//! section 8. This resolver lists every reading that fits instead of taking the first, so a tensor
//! that really has two is refused, with three exceptions:
//!
//! - int8-row against f32-scaled fp8 (`rows == ceil(rows/128)*ceil(cols/128)`): without a stamp it
//!   is int8-row, because writers must stamp fp8 of such shapes;
//! - a group size that divides the columns wins over one that does not;
//! - one group per row is int4-row: same layout, same values.

use crate::formats::{BlockScale, Format};

/// Group sizes a container may use.
const GROUPS: [u32; 8] = [16, 32, 48, 64, 96, 128, 192, 256];

/// Stamps of formats that byte counts can reveal but nothing here decodes.
const INT2: &str = "int2-row";
const INT3: &str = "int3-g64";
const E8: &str = "e8-iq3-lattice";

/// Every stamp a container may carry.
const STAMPS: [&str; 9] =
    ["f32", "int8-row", "int4-row", INT2, "int4-grouped", INT3, E8, "fp8-e4m3-b128", "int4-rans256-g0"];

/// What is known about a weight and its sidecar.
pub(super) struct Evidence<'a> {
    /// Outputs of the wanted shape.
    pub(super) rows: u64,
    /// Inputs of the wanted shape.
    pub(super) cols: u64,
    /// Bytes of the codes.
    pub(super) data: u64,
    /// Bytes of the scales.
    pub(super) scales: u64,
    /// Whether scales are one byte each (UE8M0) instead of f32.
    pub(super) byte_scales: bool,
    /// Format stamp, if the metadata has one.
    pub(super) stamp: Option<&'a str>,
}

/// One way to read the bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Reading {
    Known(Format),
    /// A format of the container that this build does not decode.
    Later(&'static str),
}

impl Reading {
    fn stamp(self) -> &'static str {
        match self {
            Reading::Known(Format::Int8Row) => "int8-row",
            Reading::Known(Format::Int4Row) => "int4-row",
            Reading::Known(Format::Int4Grouped { .. }) => "int4-grouped",
            Reading::Known(Format::Fp8Block { .. }) => "fp8-e4m3-b128",
            Reading::Known(_) => "f32",
            Reading::Later(stamp) => stamp,
        }
    }

    fn name(self) -> String {
        match self {
            Reading::Known(format) => format.name().into_owned(),
            Reading::Later(stamp) => stamp.to_owned(),
        }
    }
}

/// The format of the weight.
///
/// # Errors
/// A sentence that says why the bytes cannot be read and what to do.
pub(super) fn infer(evidence: &Evidence) -> Result<Format, String> {
    if let Some(stamp) = evidence.stamp
        && !STAMPS.contains(&stamp)
    {
        return Err(format!("it is stamped `{stamp}`, a format this build does not know; {CONVERT}"));
    }
    if evidence.stamp == Some("int4-rans256-g0") {
        // Entropy coded: the byte count says nothing.
        return Err(later("int4-rans256-g0"));
    }
    let readings = readings(evidence);
    let stamped: Vec<Reading> = match evidence.stamp {
        Some(stamp) => readings.iter().copied().filter(|r| r.stamp() == stamp).collect(),
        None => prefer_int8(&readings),
    };
    match (stamped.as_slice(), evidence.stamp) {
        ([Reading::Known(format)], _) => Ok(*format),
        ([Reading::Later(stamp)], _) => Err(later(stamp)),
        ([], Some(stamp)) if !readings.is_empty() => Err(format!(
            "it is stamped `{stamp}`, but its {} fit {}; convert the model again",
            sizes(evidence),
            list(&readings)
        )),
        ([], _) => Err(format!(
            "its {} fit no format of a [{}, {}] matrix; check that config.json belongs to these weights",
            sizes(evidence),
            evidence.rows,
            evidence.cols
        )),
        (several, _) => Err(format!(
            "its {} can be read as {}; convert the model again {}",
            sizes(evidence),
            list(several),
            remedy(several, evidence.cols)
        )),
    }
}

const CONVERT: &str = "convert the model to int8-row or int4-grouped";

fn later(stamp: &str) -> String {
    format!("this build does not read {stamp} yet; {CONVERT}")
}

/// What a writer has to change so that one reading is left.
fn remedy(readings: &[Reading], cols: u64) -> String {
    let grouped = |r: &Reading| matches!(r, Reading::Known(Format::Int4Grouped { .. }));
    if readings.iter().all(grouped) {
        // They share a stamp, so a stamp would not help.
        format!("with a group size that divides {cols}")
    } else {
        "with a `colibri.fmt` stamp for this tensor".to_owned()
    }
}

fn sizes(evidence: &Evidence) -> String {
    format!("{} bytes of codes and {} bytes of scales", evidence.data, evidence.scales)
}

fn list(readings: &[Reading]) -> String {
    let names: Vec<String> = readings.iter().map(|reading| reading.name()).collect();
    names.join(" or ")
}

/// Drops fp8 where int8-row is possible too (see the module documentation).
fn prefer_int8(readings: &[Reading]) -> Vec<Reading> {
    let int8 = readings.contains(&Reading::Known(Format::Int8Row));
    let fp8 = |r: &Reading| matches!(r, Reading::Known(Format::Fp8Block { .. }));
    readings.iter().copied().filter(|reading| !(int8 && fp8(reading))).collect()
}

/// Every format whose sizes for the wanted shape equal the stored ones.
fn readings(evidence: &Evidence) -> Vec<Reading> {
    let &Evidence { rows, cols, data, scales, byte_scales, .. } = evidence;
    let fits = |format: Format| format.data_bytes(rows, cols) == data && format.scale_bytes(rows, cols) == scales;
    if byte_scales {
        let fp8 = Format::Fp8Block { scale: BlockScale::Ue8m0 };
        return fits(fp8).then_some(Reading::Known(fp8)).into_iter().collect();
    }
    let fp8 = Format::Fp8Block { scale: BlockScale::F32 };
    let mut found: Vec<Reading> = [Format::Int8Row, Format::Int4Row, fp8]
        .into_iter()
        .filter(|format| fits(*format))
        .map(Reading::Known)
        .collect();
    found.extend(groups(cols, fits));
    let per_row = |bytes: u64, floats: u64| {
        rows.saturating_mul(bytes) == data && rows.saturating_mul(floats.saturating_mul(4)) == scales
    };
    let wide = cols.div_ceil(64);
    if per_row(cols.div_ceil(4), 1) {
        found.push(Reading::Later(INT2));
    }
    if per_row(wide.saturating_mul(24), wide) {
        found.push(Reading::Later(INT3));
    }
    if rows.saturating_mul(cols.div_ceil(256).saturating_mul(98)) == data && scales == 4 {
        found.push(Reading::Later(E8));
    }
    found
}

/// Grouped int4 readings. A single group per row is int4-row, and of several sizes with equally
/// many groups the one that divides the columns is the only one a careful writer produces (it is
/// also the smallest, hence first).
fn groups(cols: u64, fits: impl Fn(Format) -> bool) -> Vec<Reading> {
    let mut sizes: Vec<u32> = GROUPS
        .into_iter()
        .filter(|group| u64::from(*group) < cols && fits(Format::Int4Grouped { group: *group }))
        .collect();
    if let Some(first) = sizes.first()
        && cols.is_multiple_of(u64::from(*first))
    {
        sizes.truncate(1);
    }
    sizes.into_iter().map(|group| Reading::Known(Format::Int4Grouped { group })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(shape: [u64; 2], data: u64, scales: u64, stamp: Option<&str>) -> Result<Format, String> {
        let [rows, cols] = shape;
        infer(&Evidence { rows, cols, data, scales, byte_scales: false, stamp })
    }

    #[test]
    fn ordinary_shapes_have_one_reading() {
        let shape = [64, 512];
        assert_eq!(run(shape, 32768, 256, None), Ok(Format::Int8Row));
        assert_eq!(run(shape, 16384, 256, None), Ok(Format::Int4Row));
        for (scales, group) in [(8192, 16), (4096, 32), (2048, 64), (1024, 128), (512, 256)] {
            assert_eq!(run(shape, 16384, scales, None), Ok(Format::Int4Grouped { group }));
        }
        let fp8 = Format::Fp8Block { scale: BlockScale::F32 };
        assert_eq!(run(shape, 32768, 16, None), Ok(fp8));
        assert_eq!(run([5, 131], 330, 20, None), Ok(Format::Int4Row));
    }

    #[test]
    fn byte_scales_are_fp8_only() {
        let mut evidence = Evidence { rows: 64, cols: 512, data: 32768, scales: 4, byte_scales: true, stamp: None };
        assert_eq!(infer(&evidence), Ok(Format::Fp8Block { scale: BlockScale::Ue8m0 }));
        evidence.byte_scales = false;
        assert!(infer(&evidence).is_err());
    }

    #[test]
    fn formats_of_later_builds_are_named() {
        for (data, scales, name) in [(8192, 256, INT2), (12288, 2048, INT3), (12544, 4, E8)] {
            let why = run([64, 512], data, scales, None).unwrap_err();
            assert!(why.contains(&format!("does not read {name} yet")), "{why}");
        }
        let why = run([64, 512], 777, 256, Some("int4-rans256-g0")).unwrap_err();
        assert!(why.contains("does not read int4-rans256-g0 yet"), "{why}");
    }

    #[test]
    fn the_o_proj_collision_needs_a_stamp_to_be_fp8() {
        // GLM-5.2 o_proj: 48*128 blocks are as many as its 6144 rows.
        let (shape, data, scales) = ([6144, 16384], 6144 * 16384, 4 * 6144);
        assert_eq!(run(shape, data, scales, None), Ok(Format::Int8Row));
        assert_eq!(run(shape, data, scales, Some("int8-row")), Ok(Format::Int8Row));
        let fp8 = Format::Fp8Block { scale: BlockScale::F32 };
        assert_eq!(run(shape, data, scales, Some("fp8-e4m3-b128")), Ok(fp8));
    }

    #[test]
    fn a_dividing_group_wins_and_ragged_ties_are_refused() {
        assert_eq!(run([4, 192], 384, 32, None), Ok(Format::Int4Grouped { group: 96 }));
        let why = run([4, 160], 320, 32, None).unwrap_err();
        assert!(why.contains("int4-g96 or int4-g128"), "{why}");
    }

    #[test]
    fn tiny_shapes_with_two_readings_are_refused_unless_stamped() {
        let why = run([8, 24], 192, 32, None).unwrap_err();
        assert!(why.contains("int8-row or int3-g64"), "{why}");
        assert_eq!(run([8, 24], 192, 32, Some("int8-row")), Ok(Format::Int8Row));
        let why = run([1, 98], 98, 4, None).unwrap_err();
        assert!(why.contains("int8-row or e8-iq3-lattice"), "{why}");
    }

    #[test]
    fn contradicting_and_unknown_stamps_are_refused() {
        let why = run([64, 512], 32768, 256, Some("int4-row")).unwrap_err();
        assert!(why.contains("stamped `int4-row`") && why.contains("fit int8-row"), "{why}");
        let why = run([64, 512], 32768, 256, Some("int5")).unwrap_err();
        assert!(why.contains("`int5`"), "{why}");
        let why = run([64, 512], 100, 100, None).unwrap_err();
        assert!(why.contains("fit no format of a [64, 512]"), "{why}");
    }

    #[test]
    fn absurd_shapes_do_not_overflow() {
        assert!(run([u64::MAX, u64::MAX], 100, 100, None).is_err());
        assert!(run([0, 0], 0, 0, None).is_err());
    }
}
