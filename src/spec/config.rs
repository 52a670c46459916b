//! The model's `config.json`.

use super::expr::Val;
use serde_json::{Map, Value};

/// Why a `config.json` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{name} is not valid JSON: {why}")]
    Json { name: String, why: String },
    #[error("{name} holds {found}, not an object of keys")]
    NotAnObject { name: String, found: &'static str },
}

/// Keys of `config.json`. Multimodal checkpoints keep the language model's keys in an inner object
/// (`text_config`); a graph file names such objects under `config_at`, and they are searched first.
#[derive(Debug, Clone)]
pub struct Config {
    /// What to call the file in messages.
    pub name: String,
    root: Map<String, Value>,
}

impl Config {
    pub fn parse(name: &str, text: &[u8]) -> Result<Self, ConfigError> {
        let value: Value =
            serde_json::from_slice(text).map_err(|e| ConfigError::Json { name: name.into(), why: e.to_string() })?;
        match value {
            Value::Object(root) => Ok(Self { name: name.into(), root }),
            other => {
                let found = Val::from_json(&other).kind();
                Err(ConfigError::NotAnObject { name: name.into(), found })
            }
        }
    }

    /// `model_type`, which names the family.
    pub fn model_type(&self) -> Option<&str> {
        self.root.get("model_type").and_then(Value::as_str)
    }

    fn places<'a>(&'a self, inner: &'a [String]) -> impl Iterator<Item = &'a Map<String, Value>> {
        let inner = inner.iter().filter_map(|k| self.root.get(k).and_then(Value::as_object));
        inner.chain(std::iter::once(&self.root))
    }

    /// A key's value, looked up in the `inner` objects first, then at the top. Null counts as absent.
    pub fn get<'a>(&'a self, inner: &'a [String], key: &str) -> Option<&'a Value> {
        self.places(inner).find_map(|m| m.get(key).filter(|v| !v.is_null()))
    }

    /// All keys that `get` can find.
    pub fn keys<'a>(&'a self, inner: &'a [String]) -> impl Iterator<Item = &'a str> {
        self.places(inner).flat_map(|m| m.keys().map(String::as_str))
    }
}
