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
//!
//! Two stamps are this project's own: `int4-gN` names the group as well, which tells ragged groups and sizes that
//! no reader guesses apart, and `mxfp4` is MXFP4 with its exponents in the sidecar.

use crate::formats::{BlockScale, Format};

/// Group sizes a container may use.
const GROUPS: [u32; 8] = [16, 32, 48, 64, 96, 128, 192, 256];

/// The stamp of entropy coded int4, whose byte count says nothing and which nothing here decodes.
const CODED: &str = "int4-rans256-g0";

/// Every stamp a container may carry, but for `int4-gN`.
const STAMPS: [&str; 10] = [
    "f32",
    "int8-row",
    "int4-row",
    "int2-row",
    "int4-grouped",
    "int3-g64",
    "e8-iq3-lattice",
    "fp8-e4m3-b128",
    "mxfp4",
    CODED,
];

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

/// What a container calls a format that a sidecar can belong to.
fn stamp(format: Format) -> &'static str {
    match format {
        Format::Int8Row => "int8-row",
        Format::Int4Row => "int4-row",
        Format::Int2Row => "int2-row",
        Format::Int4Grouped { .. } => "int4-grouped",
        Format::Int3G64 => "int3-g64",
        Format::E8 => "e8-iq3-lattice",
        Format::Fp8Block { .. } => "fp8-e4m3-b128",
        Format::Mxfp4 => "mxfp4",
        _ => "f32",
    }
}

/// The stamp that leaves one reading of a sidecar, for whoever writes one with rows of `cols` columns; None for
/// formats without scales, which the dtype tells.
///
/// Names the group of `int4-gN` only where a reader would not find it from the sizes: the C engine refuses stamps
/// that it does not know.
pub fn stamp_for(format: Format, cols: u64) -> Option<String> {
    match format {
        Format::F32 | Format::F16 | Format::Bf16 | Format::I32 | Format::I64 => None,
        Format::Int4Grouped { group } if !GROUPS.contains(&group) || !cols.is_multiple_of(u64::from(group)) => {
            Some(exact_stamp(format))
        }
        other => Some(stamp(other).to_owned()),
    }
}

/// The stamp of a format with its group.
pub(super) fn exact_stamp(format: Format) -> String {
    match format {
        Format::Int4Grouped { group } => format!("int4-g{group}"),
        other => stamp(other).to_owned(),
    }
}

/// The group that an `int4-gN` stamp names.
pub(super) fn stamped_group(stamp: &str) -> Option<u32> {
    stamp.strip_prefix("int4-g")?.parse().ok().filter(|group| *group > 0)
}

/// Whether a stamp stands for a reading.
fn means(wanted: &str, reading: Format, cols: u64) -> bool {
    match stamped_group(wanted) {
        Some(group) if u64::from(group) >= cols => reading == Format::Int4Row,
        Some(group) => reading == Format::Int4Grouped { group },
        None => stamp(reading) == wanted,
    }
}

/// The format of the weight.
///
/// # Errors
/// A sentence that says why the bytes cannot be read and what to do.
pub(super) fn infer(evidence: &Evidence) -> Result<Format, String> {
    if let Some(stamp) = evidence.stamp
        && !STAMPS.contains(&stamp)
        && stamped_group(stamp).is_none()
    {
        return Err(format!("it is stamped `{stamp}`, a format this build does not know; {CONVERT}"));
    }
    if evidence.stamp == Some(CODED) {
        return Err(format!("this build does not read {CODED} yet; {CONVERT}"));
    }
    let readings = readings(evidence);
    let stamped: Vec<Format> = match evidence.stamp {
        Some(wanted) => readings.iter().copied().filter(|r| means(wanted, *r, evidence.cols)).collect(),
        None => prefer_int8(&readings),
    };
    match (stamped.as_slice(), evidence.stamp) {
        ([format], _) => Ok(*format),
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
            "its {} can be read as {}; say which with --read-as NAME=FORMAT, or convert the model again {}",
            sizes(evidence),
            list(several),
            remedy(several, evidence.cols)
        )),
    }
}

const CONVERT: &str = "convert the model to int8-row or int4-grouped";

/// What a writer has to change so that one reading is left.
fn remedy(readings: &[Format], cols: u64) -> String {
    let grouped = |r: &Format| matches!(r, Format::Int4Grouped { .. });
    if readings.iter().all(grouped) {
        // They share the stamp that every engine knows.
        format!("with a group size that divides {cols}")
    } else {
        "with a `colibri.fmt` stamp for this tensor".to_owned()
    }
}

fn sizes(evidence: &Evidence) -> String {
    format!("{} bytes of codes and {} bytes of scales", evidence.data, evidence.scales)
}

fn list(readings: &[Format]) -> String {
    let names: Vec<String> = readings.iter().map(|reading| reading.name().into_owned()).collect();
    names.join(" or ")
}

/// Drops fp8 where int8-row is possible too (see the module documentation).
fn prefer_int8(readings: &[Format]) -> Vec<Format> {
    let int8 = readings.contains(&Format::Int8Row);
    let fp8 = |r: &Format| matches!(r, Format::Fp8Block { .. });
    readings.iter().copied().filter(|reading| !(int8 && fp8(reading))).collect()
}

/// Every format whose sizes for the wanted shape equal the stored ones.
fn readings(evidence: &Evidence) -> Vec<Format> {
    let &Evidence { rows, cols, data, scales, byte_scales, .. } = evidence;
    let fits = |format: Format| format.data_bytes(rows, cols) == data && format.scale_bytes(rows, cols) == scales;
    if byte_scales {
        let fp8 = Format::Fp8Block { scale: BlockScale::Ue8m0 };
        return [fp8, Format::Mxfp4].into_iter().filter(|format| fits(*format)).collect();
    }
    let fp8 = Format::Fp8Block { scale: BlockScale::F32 };
    let mut found: Vec<Format> =
        [Format::Int8Row, Format::Int4Row, fp8].into_iter().filter(|format| fits(*format)).collect();
    let stamped = evidence.stamp.and_then(stamped_group).filter(|group| u64::from(*group) < cols);
    found.extend(match stamped.map(|group| Format::Int4Grouped { group }).filter(|format| fits(*format)) {
        Some(format) => vec![format],
        None => groups(cols, fits),
    });
    found.extend([Format::Int2Row, Format::Int3G64, Format::E8].into_iter().filter(|format| fits(*format)));
    found
}

/// Grouped int4 readings. A single group per row is int4-row, and of several sizes with equally
/// many groups the one that divides the columns is the only one a careful writer produces (it is
/// also the smallest, hence first).
fn groups(cols: u64, fits: impl Fn(Format) -> bool) -> Vec<Format> {
    let mut sizes: Vec<u32> = GROUPS
        .into_iter()
        .filter(|group| u64::from(*group) < cols && fits(Format::Int4Grouped { group: *group }))
        .collect();
    if let Some(first) = sizes.first()
        && cols.is_multiple_of(u64::from(*first))
    {
        sizes.truncate(1);
    }
    sizes.into_iter().map(|group| Format::Int4Grouped { group }).collect()
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
    fn formats_below_four_bits() {
        for (data, scales, format) in
            [(8192, 256, Format::Int2Row), (12288, 2048, Format::Int3G64), (12544, 4, Format::E8)]
        {
            assert_eq!(run([64, 512], data, scales, None), Ok(format));
            assert_eq!(run([64, 512], data, scales, Some(stamp(format))), Ok(format));
        }
    }

    #[test]
    fn formats_of_later_builds_are_named() {
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
        assert_eq!(run([1, 98], 98, 4, Some("e8-iq3-lattice")), Ok(Format::E8));
        assert_eq!(run([8, 24], 192, 32, Some("int3-g64")), Ok(Format::Int3G64));
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
    fn stamps_with_a_group_decide() {
        for group in [96, 128] {
            let stamp = format!("int4-g{group}");
            assert_eq!(run([4, 160], 320, 32, Some(&stamp)), Ok(Format::Int4Grouped { group }));
        }
        assert_eq!(run([4, 1024], 2048, 32, Some("int4-g512")), Ok(Format::Int4Grouped { group: 512 }));
        assert_eq!(run([4, 64], 128, 16, Some("int4-g64")), Ok(Format::Int4Row));
        let why = run([4, 512], 1024, 32, Some("int4-g64")).unwrap_err();
        assert!(why.contains("stamped `int4-g64`"), "{why}");
        assert!(run([4, 1024], 2048, 32, Some("int4-g0")).is_err());
    }

    /// Whatever an encoder makes, its stamp leaves one reading: the right one.
    #[test]
    fn a_written_stamp_leaves_one_reading() {
        let fp8 = |scale| Format::Fp8Block { scale };
        let groups = [2, 16, 32, 48, 64, 96, 128, 192, 256, 512].map(|group| Format::Int4Grouped { group });
        let others = [Format::Int8Row, Format::Int4Row, Format::Int2Row, Format::Int3G64, Format::E8, Format::Mxfp4];
        for format in groups.into_iter().chain(others).chain([fp8(BlockScale::F32), fp8(BlockScale::Ue8m0)]) {
            for (rows, cols) in [1, 2, 5, 48, 129].into_iter().flat_map(|r| (1..1100).map(move |c| (r, c))) {
                let Format::Int4Grouped { group } = format else {
                    check(format, rows, cols);
                    continue;
                };
                // Others are not written so: the encoder takes whole groups, a single one is int4-row.
                if u64::from(group) < cols && cols % u64::from(group) == 0 {
                    check(format, rows, cols);
                }
            }
        }
    }

    fn check(format: Format, rows: u64, cols: u64) {
        let stamp = stamp_for(format, cols);
        let (data, scales) = (format.data_bytes(rows, cols), format.scale_bytes(rows, cols));
        let byte_scales = matches!(format, Format::Mxfp4 | Format::Fp8Block { scale: BlockScale::Ue8m0 });
        let got = infer(&Evidence { rows, cols, data, scales, byte_scales, stamp: stamp.as_deref() });
        assert_eq!(got, Ok(format), "[{rows}, {cols}]");
    }

    #[test]
    fn absurd_shapes_do_not_overflow() {
        assert!(run([u64::MAX, u64::MAX], 100, 100, None).is_err());
        assert!(run([0, 0], 0, 0, None).is_err());
    }
}
