//! What can be wrong between a model graph's requests and the tensors found.

/// One reason why [`Index::bind`](super::Index::bind) failed. `request` counts from 0 in the order
/// the requests were given.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// No stored tensor has any of the names.
    #[error("{}", missing(tried, *absent, near.as_deref()))]
    Missing {
        /// Which request.
        request: usize,
        /// Names that were looked for. For an expert request of which some experts were found: the
        /// first few experts that were not.
        tried: Vec<String>,
        /// Tensors of this request that are missing: 1, or the number of experts without one.
        absent: u64,
        /// The closest existing name, if one is close. Searched for the first few problems only.
        near: Option<String>,
    },
    /// A tensor has another shape than the model needs.
    #[error(
        "tensor `{name}` has the shape {found:?}, but the model needs {want:?}; check that \
         config.json belongs to these weights"
    )]
    Shape {
        /// Which request.
        request: usize,
        /// Logical name.
        name: String,
        /// Shape the request asked for.
        want: Vec<u64>,
        /// Shape stored, in elements (two per byte for packed codes).
        found: Vec<u64>,
    },
    /// A tensor's bytes cannot be read as a weight.
    #[error("tensor `{name}` cannot be read: {why}")]
    Format {
        /// Which request.
        request: usize,
        /// Logical name.
        name: String,
        /// The reason and the way out.
        why: String,
    },
    /// Tensors that no request asked for, so the model would not be what was trained.
    #[error("{}", unused(names))]
    Unused {
        /// Stored names, sorted.
        names: Vec<String>,
    },
}

/// Names shown before a message says "and N more".
const SHOWN: usize = 4;

fn missing(tried: &[String], absent: u64, near: Option<&str>) -> String {
    let near = near.map_or_else(String::new, |name| format!("; the closest name there is `{name}`"));
    let out = "check that the download is complete and that config.json belongs to these weights";
    let names = quoted(tried);
    if absent > 1 {
        format!("{absent} expert tensors are missing; looked for {names}{near}; {out}")
    } else {
        format!("a tensor is missing; looked for {names}{near}; {out}")
    }
}

fn unused(names: &[String]) -> String {
    format!(
        "nothing in the model uses {} of the stored tensors: {}; check the model type in config.json, \
         or add a pattern to the list of ignored tensors if they are meant to be left out",
        names.len(),
        quoted(names)
    )
}

/// The first few names in backticks, and how many are not shown.
fn quoted(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let text = shown.join(", ");
    match names.len() - shown.len() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}
