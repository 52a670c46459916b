//! Compiled pipelines on disk: one file for each device and driver.

use super::capabilities::Capabilities;
use super::core::Core;
use super::device::Device;
use super::error::{Missing, Result, Support};
use ash::vk;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What drivers keep of the pipelines they compiled.
pub struct PipelineCache {
    core: Arc<Core>,
    raw: vk::PipelineCache,
    file: Support<PathBuf>,
}

impl PipelineCache {
    /// The cache in the user's cache directory (`$XDG_CACHE_HOME/coli`).
    pub fn open(device: &Device) -> Result<Self> {
        Self::with(device, cache_dir())
    }

    /// A cache in some directory.
    pub fn open_in(device: &Device, dir: &Path) -> Result<Self> {
        Self::with(device, Ok(dir.to_owned()))
    }

    /// A cache that is not kept.
    pub fn in_memory(device: &Device) -> Result<Self> {
        Self::with(device, Err(Missing::new("the pipeline cache's file", "the cache is kept in memory")))
    }

    fn with(device: &Device, dir: Support<PathBuf>) -> Result<Self> {
        let core = device.core().clone();
        let file = dir.map(|dir| dir.join(file_name(&core.capabilities)));
        // A file that cannot be read, or was made by something else, is as good as none.
        let data = file.as_ref().ok().and_then(|f| std::fs::read(f).ok()).unwrap_or_default();
        let data = if is_ours(&data, &core.capabilities) { data } else { Vec::new() };
        let info = vk::PipelineCacheCreateInfo::default().initial_data(&data);
        // SAFETY: `info` outlives the call.
        let made = unsafe { core.raw.create_pipeline_cache(&info, None) };
        let raw = core.call("vkCreatePipelineCache", "the pipeline cache", made)?;
        Ok(Self { core, raw, file })
    }

    /// The file, or why there is none.
    pub fn file(&self) -> Support<&Path> {
        self.file.as_deref().map_err(Clone::clone)
    }

    /// Writes the file whole: beside, then renamed. A cache that cannot be written costs time and nothing else, so the
    /// reason is a [`Missing`] that the caller may print and pass over.
    pub fn save(&self) -> Support {
        let file = self.file.clone()?;
        // SAFETY: the cache is alive.
        let data = unsafe { self.core.raw.get_pipeline_cache_data(self.raw) };
        let missing = |reason: String| Missing::new("saving the pipeline cache", reason);
        let data = data.map_err(|e| missing(format!("vkGetPipelineCacheData: {e:?}")))?;
        write_whole(&file, &data).map_err(|e| missing(format!("{}: {e}", file.display())))
    }

    pub(super) fn raw(&self) -> vk::PipelineCache {
        self.raw
    }
}

impl Drop for PipelineCache {
    fn drop(&mut self) {
        // SAFETY: pipelines do not need the cache that they were made with.
        unsafe { self.core.raw.destroy_pipeline_cache(self.raw, None) };
    }
}

fn write_whole(file: &Path, data: &[u8]) -> std::io::Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    // Several processes may save at once, each its own part file.
    let part = file.with_extension(format!("part{}", std::process::id()));
    std::fs::write(&part, data)?;
    std::fs::rename(&part, file)
}

fn cache_dir() -> Support<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let none = || Missing::new("the pipeline cache's file", "neither XDG_CACHE_HOME nor HOME is set");
    Ok(base.ok_or_else(none)?.join("coli"))
}

/// Everything that must agree for compiled code to be of use.
fn file_name(c: &Capabilities) -> String {
    let mut name = format!("pipelines-{:04x}-{:04x}-{:08x}-", c.vendor_id, c.device_id, c.driver_version);
    for byte in c.pipeline_cache_uuid {
        // A String takes any text, so the result of `write!` says nothing.
        let _ = write!(name, "{byte:02x}");
    }
    name + ".bin"
}

/// Whether the header is of this device; drivers ought to check it, and some have not.
fn is_ours(data: &[u8], c: &Capabilities) -> bool {
    let word = |at: usize| data.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    word(0) == Some(32)
        && word(4) == Some(1)
        && word(8) == Some(c.vendor_id)
        && word(12) == Some(c.device_id)
        && data.get(16..32) == Some(&c.pipeline_cache_uuid)
}
