//! A word in host memory that says what a queue last got past.

use super::core::{Core, lock};
use super::error::Result;
use super::memory::{Buffer, BufferDesc, Usage};
use super::memory_types::Kind;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The breadcrumb word of a queue, and the names of the values that are written into it.
pub(super) struct Breadcrumbs {
    pub buffer: Buffer,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    list: Vec<Arc<str>>,
    codes: HashMap<Arc<str>, u32>,
}

impl Breadcrumbs {
    /// Makes the word.
    pub fn new(core: &Arc<Core>, label: &str) -> Result<Self> {
        let label = format!("breadcrumbs of the {label}");
        let usage = Usage::TRANSFER_DST;
        let buffer = Buffer::in_core(core, &BufferDesc { label: &label, size: 4, usage, kind: Kind::Readback })?;
        buffer.write(0, &[0u32])?;
        Ok(Self { buffer, names: Mutex::default() })
    }

    /// The number for a name; the same one every time.
    pub fn code(&self, name: &str) -> u32 {
        let mut names = lock(&self.names);
        if let Some(&code) = names.codes.get(name) {
            return code;
        }
        let name: Arc<str> = name.into();
        names.list.push(name.clone());
        // 0 is where nothing has been passed.
        let code = names.list.len() as u32;
        names.codes.insert(name, code);
        code
    }

    /// The word now.
    pub fn word(&self) -> u32 {
        self.buffer.read::<u32>(0, 1).ok().and_then(|w| w.first().copied()).unwrap_or(0)
    }

    /// The name of what was passed last.
    pub fn last(&self) -> Option<String> {
        let at = (self.word() as usize).checked_sub(1)?;
        lock(&self.names).list.get(at).map(|name| name.to_string())
    }
}
