//! What a file says of tensors in the engine layout.
//!
//! Such a tensor is one run of bytes (`U8`), in which its planes lie. The metadata key [`TILES`] holds a JSON map from
//! the tensor's name to the rest: the format, the layout and the shape.

use serde::{Deserialize, Serialize};

use crate::formats::{Format, layout};

use super::dtype::Dtype;
use super::logical::Part;

/// Metadata key whose value maps names to a [`TileStamp`] each, as JSON text.
pub const TILES: &str = "coli.tiles";

/// A tensor's bytes may end with less than this many zeros, so that the next one starts at a multiple of it.
pub const PADDING: u64 = 4096;

/// What the metadata says of one tensor. Nothing of it is checked before the tensor is asked for, so that a message
/// can name the tensor and what it is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TileStamp {
    /// A format's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// [`layout::STAMP`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Rows and columns, without filling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u64>>,
}

/// A stamp that this build can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TiledShape {
    /// Layout of codes and scales inside a row.
    pub format: Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// Bytes of all planes, without padding behind them.
    pub bytes: usize,
}

impl TileStamp {
    /// The stamp of a `[rows, cols]` matrix in today's layout.
    pub fn new(format: Format, rows: usize, cols: usize) -> TileStamp {
        TileStamp {
            format: Some(format.name().into_owned()),
            layout: Some(layout::STAMP.to_owned()),
            shape: Some(vec![rows as u64, cols as u64]),
        }
    }

    /// What the stamp means.
    ///
    /// # Errors
    /// A sentence that says what this build cannot read and what to do.
    pub fn read(&self) -> Result<TiledShape, String> {
        let lacks = |what: &str| format!("its `{TILES}` stamp in the metadata has no {what}; {AGAIN}");
        let layout = self.layout.as_ref().ok_or_else(|| lacks("layout"))?;
        if layout != layout::STAMP {
            return Err(format!(
                "it is stored in the layout `{layout}`, and this build reads {} alone; {AGAIN} with this build, or \
                 run it with the one that wrote it",
                layout::STAMP
            ));
        }
        let name = self.format.as_ref().ok_or_else(|| lacks("format"))?;
        let format = Format::spelled(name).map_err(|why| format!("its `{TILES}` stamp is unknown: {why}; {AGAIN}"))?;
        let shape = self.shape.as_ref().ok_or_else(|| lacks("shape"))?;
        let &[rows, cols] = shape.as_slice() else {
            return Err(format!("its `{TILES}` stamp has the shape {shape:?}, not rows and columns; {AGAIN}"));
        };
        let sizes = usize::try_from(rows).ok().zip(usize::try_from(cols).ok());
        match sizes.and_then(|(rows, cols)| Some((rows, cols, layout::bytes(format, rows, cols)?))) {
            Some((rows, cols, bytes)) => Ok(TiledShape { format, rows, cols, bytes }),
            None => Err(format!("its `{TILES}` stamp has the impossible shape {shape:?} of {format}; {AGAIN}")),
        }
    }
}

const AGAIN: &str = "convert the model again";

impl TiledShape {
    /// Whether the stored bytes can be this matrix.
    ///
    /// # Errors
    /// As [`TileStamp::read`].
    pub(super) fn check(&self, part: &Part) -> Result<(), String> {
        let TiledShape { format, rows, cols, bytes } = *self;
        if part.dtype != Dtype::U8 {
            return Err(format!("it is {}, but tensors with a `{TILES}` stamp are U8; {AGAIN}", part.dtype));
        }
        match part.bytes().checked_sub(bytes as u64) {
            Some(behind) if behind < PADDING => Ok(()),
            _ => Err(format!(
                "it has {} bytes, but a {rows} x {cols} matrix of {format} takes {bytes} in the layout {}, and less \
                 than {PADDING} of padding; {AGAIN}",
                part.bytes(),
                layout::STAMP
            )),
        }
    }
}
