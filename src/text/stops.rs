//! The ids that end a reply.
//!
//! Only the eos ids of the model's configuration end a reply. Special tokens outside that set do
//! not: `<think>` or `<tool_call>` are part of an answer.

use super::Error;
use super::files::{self, Files, bad_key, kind};
use serde_json::{Map, Value};

const KEY: &str = "eos_token_id";

/// Set of stop ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// Ascending, without repetition.
    ids: Vec<u32>,
}

impl Stops {
    /// Exactly these ids.
    pub fn new(ids: impl IntoIterator<Item = u32>) -> Self {
        let mut ids: Vec<u32> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Self { ids }
    }

    /// The union of `eos_token_id` of config.json, of its `text_config`, and of
    /// generation_config.json; each an id or a list of ids, absent or null meaning none.
    /// `vocab_size` is the model's: the number of logits of a row.
    ///
    /// # Errors
    /// [`Error::Key`] for another type and for an id that is not below `vocab_size`, which the
    /// model could never produce.
    pub fn load(files: &dyn Files, vocab_size: usize) -> Result<Self, Error> {
        let mut found = Vec::new();
        let config = files::json(files, "config.json")?.unwrap_or_default();
        let generation = files::json(files, "generation_config.json")?.unwrap_or_default();
        let mut add = |file: &str, parent: &str, object: &Map<String, Value>| {
            let ids = eos_ids(object.get(KEY), vocab_size);
            let ids = ids.map_err(|p| bad_key(files, file, &format!("{parent}{KEY}"), p));
            found.extend(ids?);
            Ok::<(), Error>(())
        };
        add("config.json", "", &config)?;
        match config.get("text_config") {
            None | Some(Value::Null) => {}
            Some(Value::Object(text)) => add("config.json", "text_config.", text)?,
            Some(other) => {
                let problem = format!("is {}; it must be an object", kind(other));
                return Err(bad_key(files, "config.json", "text_config", problem));
            }
        }
        add("generation_config.json", "", &generation)?;
        Ok(Self::new(found))
    }

    /// Whether this id ends the reply.
    pub fn contains(&self, id: u32) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// The ids in ascending order.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Whether nothing but a length limit ends a reply.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Ids of one `eos_token_id`, or what is wrong with it.
fn eos_ids(value: Option<&Value>, vocab_size: usize) -> Result<Vec<u32>, String> {
    let items = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let id = |item: &Value| {
        let id = item.as_u64().and_then(|id| u32::try_from(id).ok());
        match id {
            Some(id) if (id as usize) < vocab_size => Ok(id),
            _ if item.is_number() => {
                Err(format!("is {item}, which is no id of the vocabulary (0..{vocab_size}); correct it"))
            }
            _ => Err(format!("holds {}; it must be a token id or a list of token ids", kind(item))),
        }
    };
    items.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::files_with;
    use super::super::{DirFiles, Embedded};
    use super::*;

    fn load(config: &str, generation: &str) -> Result<Stops, Error> {
        let dir = files_with(&[("config.json", config), ("generation_config.json", generation)]);
        Stops::load(&DirFiles(dir.path().to_owned()), 100)
    }

    #[test]
    fn all_places_are_united() {
        let config = r#"{"eos_token_id": 9, "text_config": {"eos_token_id": [4, 9]}}"#;
        let stops = load(config, r#"{"eos_token_id": [99, 0]}"#).unwrap();
        assert_eq!(stops.ids(), [0, 4, 9, 99]);
        assert!(stops.contains(4) && !stops.contains(5));
    }

    #[test]
    fn absent_and_null_mean_none() {
        assert!(Stops::load(&Embedded(&[]), 10).unwrap().is_empty());
        let config = r#"{"eos_token_id": null, "text_config": null}"#;
        assert!(load(config, r#"{"eos_token_id": []}"#).unwrap().is_empty());
    }

    #[test]
    fn ids_outside_the_vocabulary_name_the_key() {
        for (config, generation, needles) in [
            (r#"{"eos_token_id": 100}"#, "{}", ["config.json", "`eos_token_id` is 100"]),
            (r#"{"eos_token_id": -1}"#, "{}", ["config.json", "`eos_token_id` is -1"]),
            (r#"{"text_config": {"eos_token_id": [1, 100]}}"#, "{}", ["config.json", "`text_config.eos_token_id`"]),
            ("{}", r#"{"eos_token_id": 4294967297}"#, ["generation_config.json", "4294967297"]),
            ("{}", r#"{"eos_token_id": 1.5}"#, ["generation_config.json", "is 1.5"]),
            ("{}", r#"{"eos_token_id": "</s>"}"#, ["generation_config.json", "a string"]),
            ("{}", r#"{"eos_token_id": [[1]]}"#, ["generation_config.json", "a list"]),
            (r#"{"text_config": 3}"#, "{}", ["`text_config`", "is 3"]),
        ] {
            let message = load(config, generation).unwrap_err().to_string();
            for needle in needles {
                assert!(message.contains(needle), "{message}");
            }
        }
    }
}
