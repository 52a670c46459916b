//! What the validation layer says, collected for whoever asked for validation.

use ash::vk;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::sync::{Mutex, MutexGuard};

/// How bad a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Suspicious.
    Warning,
    /// A rule is broken.
    Error,
}

/// One message of the validation layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// How bad it is.
    pub severity: Severity,
    /// Such as `SYNC-HAZARD-READ-AFTER-WRITE`.
    pub id: String,
    /// The text.
    pub text: String,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}: {}", self.severity, self.id, self.text)
    }
}

/// The messages of one instance, in order.
#[derive(Debug, Default)]
pub struct Messages(Mutex<Vec<Message>>);

impl Messages {
    /// Takes all messages so far. Those of GPU-assisted validation may come as late as the end of the device.
    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut self.list())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list().len()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Message>> {
        // A push cannot leave the list half made, so a poisoned lock is as good as any.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// How a messenger that fills `messages` is made; `messages` must outlive the messenger.
pub(crate) fn messenger_info(messages: &Messages) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    use vk::{DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Type};
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(Severity::ERROR | Severity::WARNING)
        // The loader's own chatter is of type GENERAL.
        .message_type(Type::VALIDATION | Type::PERFORMANCE)
        .pfn_user_callback(Some(collect))
        .user_data(std::ptr::from_ref(messages).cast_mut().cast())
}

unsafe extern "system" fn collect(
    severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    messages: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: `messenger_info` put a `Messages` there, which outlives the messenger; Vulkan passes valid data.
    let (messages, data) = unsafe { (&*messages.cast::<Messages>().cast_const(), &*data) };
    let text = |pointer| {
        // SAFETY: Vulkan's strings are null or end in a zero byte.
        let text = (!std::ptr::eq(pointer, std::ptr::null())).then(|| unsafe { CStr::from_ptr(pointer) });
        text.map(|t| t.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let error = severity.contains(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR);
    messages.list().push(Message {
        severity: if error { Severity::Error } else { Severity::Warning },
        id: text(data.p_message_id_name),
        text: text(data.p_message),
    });
    vk::FALSE
}
