//! What can go wrong, with the call, the object and the way it ended.

use ash::vk;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The result of this layer's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Something that a device or system may offer: the thing, or why it is not there.
pub type Support<T = ()> = std::result::Result<T, Missing>;

/// A capability that is not there, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{what} is not available: {reason}")]
pub struct Missing {
    /// What was asked for.
    pub what: String,
    /// Why it is not there.
    pub reason: String,
}

impl Missing {
    pub(crate) fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }
}

/// The code that a Vulkan call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub(crate) vk::Result);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// An error of this layer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no `libvulkan.so.1` to load.
    #[error("this system has no Vulkan loader: {reason}")]
    NoLoader { reason: String },
    /// The loader is there and found no driver.
    #[error("the Vulkan loader found no driver that works")]
    NoDriver,
    /// No device passes the requirements; `found` says why for each.
    #[error("no Vulkan device can be used; {}", found_text(found))]
    NoDevice { found: Vec<String> },
    /// The device asked for is not there or cannot be used.
    #[error("Vulkan device {index} cannot be used: {reason}; {}", found_text(found))]
    NoSuchDevice { index: usize, reason: String, found: Vec<String> },
    /// A capability that was asked for is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A Vulkan call failed.
    #[error("{call} for {object}: {code}")]
    Call { call: &'static str, object: String, code: Code },
    /// A request that breaks a rule of Vulkan or of this layer; nothing was done.
    #[error("{what} for {object}: {reason}")]
    Invalid { what: &'static str, object: String, reason: String },
    /// An allocation failed.
    #[error("no memory for {object} ({bytes} bytes, {kind}): {reason}")]
    Memory { object: String, bytes: u64, kind: &'static str, reason: String },
    /// A plan needs more memory than the device has left.
    #[error(
        "heap {heap} has {available} of {size} bytes available, and {needed} are needed beside a reserve of {reserve}"
    )]
    OverBudget { heap: usize, size: u64, available: u64, needed: u64, reserve: u64 },
    /// A wait for a value that no submit will signal.
    #[error("waiting for value {value} of {timeline}, but only {submitted} has been submitted")]
    Unsubmitted { timeline: String, value: u64, submitted: u64 },
    /// The device stopped making progress.
    #[error(
        "{queue} has been still for {waited:?} while waiting for value {value} (at {reached}); last passed: {}",
        crumb_text(breadcrumb)
    )]
    Stuck { queue: String, value: u64, reached: u64, waited: Duration, breadcrumb: Option<String> },
    /// The device is lost, for good; `call` is the one that found out.
    #[error("the device was lost ({call}); last passed: {}", crumb_text(breadcrumb))]
    Lost { call: &'static str, breadcrumb: Option<String> },
    /// An earlier submit of this queue failed, so later ones may lack its results.
    #[error("{queue} takes no work since a submit failed: {first}")]
    Poisoned { queue: String, first: String },
}

impl Error {
    pub(crate) fn invalid(what: &'static str, object: &str, reason: impl Into<String>) -> Self {
        Self::Invalid { what, object: format!("`{object}`"), reason: reason.into() }
    }
}

fn found_text(found: &[String]) -> String {
    if found.is_empty() { "found none".into() } else { format!("found: {}", found.join("; ")) }
}

fn crumb_text(breadcrumb: &Option<String>) -> String {
    breadcrumb.as_ref().map_or_else(|| "nothing".into(), |name| format!("`{name}`"))
}
