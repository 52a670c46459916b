//! Errors by exit code.

use crate::run::{LoadError, RunError};
use crate::spec::Report;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Report(Box<Report>),
    #[error(transparent)]
    Load(LoadError),
    #[error(transparent)]
    Convert(#[from] crate::convert::Error),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Text(#[from] crate::text::Error),
    /// Flags that do not go together, or do not fit the model.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Device(String),
    #[error("{0}")]
    Check(String),
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
    #[error("{0}")]
    Model(String),
}

impl From<LoadError> for Failure {
    fn from(e: LoadError) -> Self {
        match e {
            LoadError::Report(r) => Failure::Report(r),
            LoadError::Weights(e @ crate::weights::Error::ReadAs { .. }) => Failure::Usage(e.to_string()),
            other => Failure::Load(other),
        }
    }
}

impl From<Report> for Failure {
    fn from(r: Report) -> Self {
        Failure::Report(Box::new(r))
    }
}

impl Failure {
    /// Exit codes are part of the interface: see `coli --help`.
    pub fn code(&self) -> u8 {
        use crate::convert::Error as Convert;
        use crate::run::vulkan::VulkanError;
        use crate::text::Error as Text;
        match self {
            Failure::Run(e) if e.is_too_large() => 2,
            Failure::Run(RunError::Vulkan(e)) => match e {
                VulkanError::Plan(_) | VulkanError::Chunk(_) | VulkanError::Binding { .. } => 2,
                VulkanError::Vulkan(crate::vk::Error::OverBudget { .. } | crate::vk::Error::Memory { .. }) => 5,
                VulkanError::Vulkan(_) => 4,
                _ => 3,
            },
            Failure::Usage(_) | Failure::Text(Text::Flag { .. } | Text::NoTokenizer { .. }) => 2,
            Failure::Run(RunError::Step(_) | RunError::State(_)) => 2,
            Failure::Convert(Convert::Io { .. } | Convert::Written { .. }) => 1,
            Failure::Convert(e) if e.is_usage() => 2,
            Failure::Convert(_) => 3,
            Failure::Report(_) | Failure::Load(_) | Failure::Model(_) => 3,
            Failure::Run(_) | Failure::Text(_) => 3,
            Failure::Device(_) => 4,
            Failure::Check(_) => 6,
            Failure::File { .. } | Failure::Output(_) => 1,
        }
    }
}
