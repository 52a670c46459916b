//! The Vulkan instance: loader, validation layer, debug names.

use super::error::{Code, Error, Missing, Result, Support};
use super::messages::{Messages, messenger_info};
use ash::{ext, vk};
use std::ffi::{CStr, c_char};
use std::sync::Arc;

/// What the validation layer checks, if it is loaded at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Validation {
    /// No layer.
    #[default]
    Off,
    /// All rules and the order of memory accesses.
    Sync,
    /// All rules and, on the device, the bounds of what shaders touch. Slow.
    GpuAssisted,
}

const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// A Vulkan instance; clones share it.
#[derive(Clone)]
pub struct Instance(Arc<Inner>);

struct Inner {
    raw: ash::Instance,
    debug: Support<ext::debug_utils::Instance>,
    messenger: vk::DebugUtilsMessengerEXT,
    messages: Arc<Messages>,
    validation: Validation,
    /// Keeps the loader mapped for as long as its functions can be called.
    entry: ash::Entry,
}

impl Instance {
    /// Loads Vulkan.
    pub fn new(validation: Validation) -> Result<Self> {
        // SAFETY: loading the system's Vulkan loader runs its initialisers, which is what is asked for.
        let entry = unsafe { ash::Entry::load() }.map_err(|e| Error::NoLoader { reason: e.to_string() })?;
        let messages = Arc::<Messages>::default();
        let has_debug = has_debug_utils(&entry)?;
        if validation != Validation::Off {
            has_debug.clone()?;
            check_layer(&entry)?;
        }
        let raw = create(&entry, validation, has_debug.is_ok(), &messages)?;
        let debug = has_debug.map(|()| ext::debug_utils::Instance::new(&entry, &raw));
        let mut inner =
            Inner { raw, debug, messenger: vk::DebugUtilsMessengerEXT::null(), messages, validation, entry };
        if let (Ok(debug), true) = (&inner.debug, validation != Validation::Off) {
            // SAFETY: the instance holds the messages, and ends after the messenger.
            let made = unsafe { debug.create_debug_utils_messenger(&messenger_info(&inner.messages), None) };
            inner.messenger = made.map_err(|e| call("vkCreateDebugUtilsMessengerEXT", e))?;
        }
        Ok(Self(Arc::new(inner)))
    }

    /// What the validation layer says, until the instance has ended.
    pub fn messages(&self) -> &Arc<Messages> {
        &self.0.messages
    }

    /// Whether objects and command buffers get names that tools show.
    pub fn debug_names(&self) -> Support {
        self.0.debug.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// What the validation layer watches.
    pub fn validation(&self) -> Validation {
        self.0.validation
    }

    pub(crate) fn raw(&self) -> &ash::Instance {
        &self.0.raw
    }

    pub(crate) fn entry(&self) -> &ash::Entry {
        &self.0.entry
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: devices hold a clone of the instance, so none is left; each object is destroyed once.
        unsafe {
            if let (Ok(debug), true) = (&self.debug, self.messenger != vk::DebugUtilsMessengerEXT::null()) {
                debug.destroy_debug_utils_messenger(self.messenger, None);
            }
            self.raw.destroy_instance(None);
        }
    }
}

fn call(call: &'static str, code: vk::Result) -> Error {
    Error::Call { call, object: "the instance".into(), code: Code(code) }
}

fn has_debug_utils(entry: &ash::Entry) -> Result<Support> {
    // SAFETY: a plain query.
    let found = unsafe { entry.enumerate_instance_extension_properties(None) }
        .map_err(|e| call("vkEnumerateInstanceExtensionProperties", e))?;
    let there = found.iter().any(|p| p.extension_name_as_c_str() == Ok(ext::debug_utils::NAME));
    Ok(there.then_some(()).ok_or_else(|| Missing::new("VK_EXT_debug_utils", "the loader does not offer it")))
}

fn check_layer(entry: &ash::Entry) -> Result<()> {
    // SAFETY: a plain query.
    let found = unsafe { entry.enumerate_instance_layer_properties() }
        .map_err(|e| call("vkEnumerateInstanceLayerProperties", e))?;
    let names: Vec<&CStr> = found.iter().filter_map(|p| p.layer_name_as_c_str().ok()).collect();
    if names.contains(&LAYER) {
        return Ok(());
    }
    let names: Vec<_> = names.iter().map(|n| n.to_string_lossy()).collect();
    let list = if names.is_empty() { "none".into() } else { names.join(", ") };
    Err(Missing::new("the validation layer", format!("layers found: {list}; VK_LAYER_PATH may name more")).into())
}

/// Extensions that a layer brings.
fn layer_extensions(entry: &ash::Entry) -> Result<Vec<vk::ExtensionProperties>> {
    // SAFETY: a plain query; the layer is there.
    unsafe { entry.enumerate_instance_extension_properties(Some(LAYER)) }
        .map_err(|e| call("vkEnumerateInstanceExtensionProperties", e))
}

fn create(entry: &ash::Entry, validation: Validation, debug: bool, messages: &Messages) -> Result<ash::Instance> {
    // SAFETY: a plain query.
    let version = unsafe { entry.try_enumerate_instance_version() }
        .map_err(|e| call("vkEnumerateInstanceVersion", e))?
        .unwrap_or(vk::API_VERSION_1_0);
    let app = vk::ApplicationInfo::default()
        .application_name(c"coli")
        .engine_name(c"coli")
        .api_version(version.min(vk::API_VERSION_1_3));
    let mut extensions: Vec<*const c_char> = Vec::new();
    let mut info = vk::InstanceCreateInfo::default().application_info(&app);
    if debug {
        extensions.push(ext::debug_utils::NAME.as_ptr());
    }
    let layers = [LAYER.as_ptr()];
    let (on, enables) = (vk::TRUE, features(validation));
    let settings: Vec<_> = setting_names(validation).iter().map(|name| setting(name, &on)).collect();
    let mut settings_info = vk::LayerSettingsCreateInfoEXT::default().settings(&settings);
    let mut features_info = vk::ValidationFeaturesEXT::default().enabled_validation_features(&enables);
    // Reports what happens before the messenger proper exists and after it is gone.
    let mut early = messenger_info(messages);
    if validation != Validation::Off {
        info = info.enabled_layer_names(&layers).push_next(&mut early);
        let offered = layer_extensions(entry)?;
        let offers = |name| offered.iter().any(|p| p.extension_name_as_c_str() == Ok(name));
        if offers(ext::layer_settings::NAME) {
            extensions.push(ext::layer_settings::NAME.as_ptr());
            info = info.push_next(&mut settings_info);
        } else if offers(ext::validation_features::NAME) {
            extensions.push(ext::validation_features::NAME.as_ptr());
            info = info.push_next(&mut features_info);
        }
    }
    info = info.enabled_extension_names(&extensions);
    // SAFETY: everything that `info` points to lives until after the call; `messages` outlives the instance.
    unsafe { entry.create_instance(&info, None) }.map_err(|e| match e {
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => Error::NoDriver,
        e => call("vkCreateInstance", e),
    })
}

/// For layers up to 1.3.
fn features(validation: Validation) -> Vec<vk::ValidationFeatureEnableEXT> {
    match validation {
        Validation::Off => Vec::new(),
        Validation::Sync => vec![vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION],
        Validation::GpuAssisted => vec![
            vk::ValidationFeatureEnableEXT::GPU_ASSISTED,
            vk::ValidationFeatureEnableEXT::GPU_ASSISTED_RESERVE_BINDING_SLOT,
        ],
    }
}

/// For newer layers. Without the heuristic these look at no shader access at all.
fn setting_names(validation: Validation) -> &'static [&'static CStr] {
    match validation {
        Validation::Off => &[],
        Validation::Sync => &[c"validate_sync", c"syncval_shader_accesses_heuristic"],
        Validation::GpuAssisted => &[c"gpuav_enable"],
    }
}

fn setting<'a>(name: &'a CStr, on: &'a vk::Bool32) -> vk::LayerSettingEXT<'a> {
    vk::LayerSettingEXT {
        p_layer_name: LAYER.as_ptr(),
        p_setting_name: name.as_ptr(),
        ty: vk::LayerSettingTypeEXT::BOOL32,
        value_count: 1,
        p_values: std::ptr::from_ref(on).cast(),
        ..Default::default()
    }
}
