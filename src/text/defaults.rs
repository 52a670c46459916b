//! The sampling settings a model recommends for itself.

use super::Error;
use super::files::{self, Files, bad_key, kind};
use serde_json::{Map, Value};

const FILE: &str = "generation_config.json";

/// Sampling keys of generation_config.json; what the file does not set is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Whether to sample at all; `Some(false)` asks for greedy decoding.
    pub do_sample: Option<bool>,
    /// Divisor of the logits.
    pub temperature: Option<f64>,
    /// Probability mass of the most likely tokens to keep.
    pub top_p: Option<f64>,
    /// Number of most likely tokens to keep; 0 keeps all.
    pub top_k: Option<u32>,
    /// Least probability relative to the most likely token.
    pub min_p: Option<f64>,
}

impl GenerationDefaults {
    /// Reads generation_config.json; without the file nothing is set.
    ///
    /// # Errors
    /// [`Error::Key`] for values of another type. Ranges are checked by
    /// [`Sampler::new`](super::Sampler::new), together with the flags.
    pub fn load(files: &dyn Files) -> Result<Self, Error> {
        let map = files::json(files, FILE)?.unwrap_or_default();
        let number = |key| get(files, &map, key, "a number", Value::as_f64);
        Ok(Self {
            do_sample: get(files, &map, "do_sample", "true or false", Value::as_bool)?,
            temperature: number("temperature")?,
            top_p: number("top_p")?,
            top_k: get(files, &map, "top_k", "a whole number", top_k)?,
            min_p: number("min_p")?,
        })
    }
}

/// Some files write -1 for "no limit", which is 0 here.
fn top_k(value: &Value) -> Option<u32> {
    match value.as_i64()? {
        -1 => Some(0),
        k => u32::try_from(k).ok(),
    }
}

fn get<T>(
    files: &dyn Files,
    map: &Map<String, Value>,
    key: &str,
    wanted: &str,
    read: fn(&Value) -> Option<T>,
) -> Result<Option<T>, Error> {
    let value = match map.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    match read(value) {
        Some(found) => Ok(Some(found)),
        None => {
            let problem = format!("is {}; it must be {wanted}", kind(value));
            Err(bad_key(files, FILE, key, problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::files_with;
    use super::super::{DirFiles, Embedded};
    use super::*;

    fn load(text: &str) -> Result<GenerationDefaults, Error> {
        let dir = files_with(&[(FILE, text)]);
        GenerationDefaults::load(&DirFiles(dir.path().to_owned()))
    }

    #[test]
    fn reads_what_is_there() {
        let all = load(r#"{"do_sample": true, "temperature": 1, "top_p": 0.95, "top_k": 20, "min_p": 0.0}"#);
        let expected = GenerationDefaults {
            do_sample: Some(true),
            temperature: Some(1.0),
            top_p: Some(0.95),
            top_k: Some(20),
            min_p: Some(0.0),
        };
        assert_eq!(all.unwrap(), expected);
        let none = GenerationDefaults::default();
        assert_eq!(load(r#"{"top_k": null, "x": 1}"#).unwrap(), none);
        assert_eq!(GenerationDefaults::load(&Embedded(&[])).unwrap(), none);
        assert_eq!(load(r#"{"top_k": -1}"#).unwrap().top_k, Some(0));
    }

    #[test]
    fn wrong_types_name_the_key() {
        for (key, value) in [
            ("do_sample", "1"),
            ("temperature", "\"hot\""),
            ("top_p", "[]"),
            ("top_k", "1.5"),
            ("top_k", "-2"),
            ("min_p", "true"),
        ] {
            let message = load(&format!("{{\"{key}\": {value}}}")).unwrap_err().to_string();
            assert!(message.contains(FILE), "{message}");
            assert!(message.contains(&format!("`{key}`")), "{message}");
        }
    }
}
