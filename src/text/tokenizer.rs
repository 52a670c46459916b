//! Text to token ids and back, through the `tokenizers` crate.

use super::files::{self, Files, malformed};
use super::{Error, Utf8Stream};
use serde::Deserialize;
use std::collections::HashSet;

/// Name of the file a tokenizer is loaded from.
const FILE: &str = "tokenizer.json";

/// The tokenizer of a model.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Ids whose added-token entry carries `"special": true`.
    special: HashSet<u32>,
    /// `known[id]` tells whether the id has a token; vocabularies may have holes.
    known: Vec<bool>,
}

impl Tokenizer {
    /// Loads `tokenizer.json`.
    ///
    /// Truncation and padding stored in the file are dropped: they belong to a training batch, and
    /// would cut or fill a prompt unasked.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`] if the file is absent, [`Error::Malformed`] if it cannot be used.
    pub fn load(files: &dyn Files) -> Result<Self, Error> {
        let Some(bytes) = files::bytes(files, FILE)? else {
            return Err(Error::NoTokenizer { from: files.label() });
        };
        let bad = |e: tokenizers::Error| malformed(files, FILE, e.to_string());
        let mut inner = tokenizers::Tokenizer::from_bytes(&bytes).map_err(bad)?;
        inner.with_truncation(None).map_err(bad)?;
        inner.with_padding(None);

        let mut known = Vec::new();
        for id in inner.get_vocab(true).into_values() {
            let at = id as usize;
            if at >= known.len() {
                known.resize(at + 1, false);
            }
            known[at] = true;
        }
        if known.is_empty() {
            return Err(malformed(files, FILE, "it has no token at all".to_owned()));
        }
        check_added_ids(&inner, &bytes).map_err(|reason| malformed(files, FILE, reason))?;
        let added = inner.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special);
        let special = special.map(|(&id, _)| id).collect();
        Ok(Self { inner, special, known })
    }

    /// Ids of a text. Special tokens spelled out in the text become their ids; none is added that
    /// the text does not contain.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the vocabulary cannot express the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        match self.inner.encode_fast(text, false) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(e) => Err(Error::Tokenizer { action: "encode this text", reason: e.to_string() }),
        }
    }

    /// Text of ids; `skip_special` leaves out tokens flagged special (`<think>` and its like are
    /// usually not). Bytes that form no UTF-8 character become U+FFFD.
    ///
    /// # Errors
    /// [`Error::UnknownId`] for an id without a token.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, Error> {
        // The crate would drop unknown ids silently.
        if let Some(&id) = ids.iter().find(|&&id| !self.knows(id)) {
            return Err(Error::UnknownId { id, last: self.known.len() - 1 });
        }
        self.inner
            .decode(ids, skip_special)
            .map_err(|e| Error::Tokenizer { action: "decode these ids", reason: e.to_string() })
    }

    /// A detokeniser for ids that come one at a time.
    pub fn stream(&self, skip_special: bool) -> Utf8Stream<'_> {
        Utf8Stream::new(self, skip_special)
    }

    /// The id of exactly this token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token of an id as the vocabulary spells it (byte-level tokens are not plain text).
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Whether the file flags the token special. Unknown ids are not.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// Whether the id has a token.
    pub fn knows(&self, id: u32) -> bool {
        self.known.get(id as usize).copied().unwrap_or(false)
    }

    /// One more than the highest id, added tokens included. The model's logits may have more rows
    /// (padding) than that.
    pub fn vocab_size(&self) -> usize {
        self.known.len()
    }
}

/// The part of tokenizer.json that says which ids the added tokens have.
#[derive(Deserialize)]
struct AddedTokens {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

/// The crate numbers added tokens onwards from the vocabulary's size whatever ids the file gives
/// them; with a gap in the file every later id would silently be another one.
fn check_added_ids(inner: &tokenizers::Tokenizer, bytes: &[u8]) -> Result<(), String> {
    let file: AddedTokens = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    for AddedToken { id, content } in file.added_tokens {
        let got = inner.token_to_id(&content);
        if got != Some(id) {
            let got = got.map_or_else(|| "none".to_owned(), |got| got.to_string());
            return Err(format!(
                "the added token {content:?} has id {id} in the file but would get {got}, \
                 because added tokens are numbered onwards from the size of the vocabulary; \
                 fill the gaps between the ids with placeholder tokens"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{END, MERGED, THINK, USER, bytes_tokenizer, files_with, tokenizer_json};
    use super::super::{DirFiles, Embedded};
    use super::*;

    #[test]
    fn encodes_bytes_merges_and_special_text() {
        let tok = bytes_tokenizer();
        assert_eq!(tok.encode("").unwrap(), Vec::<u32>::new());
        assert_eq!(tok.encode("a b").unwrap(), [97, 32, 98]);
        assert_eq!(tok.encode("the").unwrap(), [MERGED]);
        assert_eq!(tok.encode("<|user|>é<think>").unwrap(), [USER, 195, 169, THINK]);
        assert_eq!(tok.encode("<|user|").unwrap().len(), 7);
    }

    #[test]
    fn decodes_with_and_without_special_tokens() {
        let tok = bytes_tokenizer();
        let ids = [USER, 104, 105, THINK, END];
        assert_eq!(tok.decode(&ids, false).unwrap(), "<|user|>hi<think><|end|>");
        assert_eq!(tok.decode(&ids, true).unwrap(), "hi<think>");
        assert_eq!(tok.decode(&[195], false).unwrap(), "\u{fffd}");
    }

    #[test]
    fn round_trips_any_text() {
        let tok = bytes_tokenizer();
        for text in ["naïve café — 你好 🙂\n\ttabs", "\u{fffd}", "the the\0"] {
            let ids = tok.encode(text).unwrap();
            assert_eq!(tok.decode(&ids, false).unwrap(), text);
        }
    }

    #[test]
    fn knows_its_vocabulary() {
        let tok = bytes_tokenizer();
        assert_eq!(tok.id("<|end|>"), Some(END));
        assert_eq!(tok.id("nothing"), None);
        assert_eq!(tok.token(THINK).as_deref(), Some("<think>"));
        assert!(tok.is_special(USER) && tok.is_special(END));
        assert!(!tok.is_special(THINK) && !tok.is_special(97) && !tok.is_special(9999));
        assert_eq!(tok.vocab_size(), 261);
        assert!(tok.knows(THINK) && !tok.knows(THINK + 1));
    }

    #[test]
    fn ids_without_token_are_refused() {
        let tok = bytes_tokenizer();
        for id in [THINK + 1, u32::MAX] {
            let message = tok.decode(&[97, id], false).unwrap_err().to_string();
            assert!(message.contains(&id.to_string()), "{message}");
        }
    }

    #[test]
    fn no_tokenizer_names_the_way_out() {
        let message = Tokenizer::load(&Embedded(&[])).unwrap_err().to_string();
        assert!(message.contains("tokenizer.json"), "{message}");
        assert!(message.contains("--tokens"), "{message}");
    }

    #[test]
    fn broken_files_are_errors() {
        for text in ["", "{", "{}", "[]", "{\"model\": 1}"] {
            let dir = files_with(&[("tokenizer.json", text)]);
            let files = DirFiles(dir.path().to_owned());
            let error = Tokenizer::load(&files).unwrap_err();
            assert!(matches!(error, Error::Malformed { .. }), "{error}");
            assert!(error.to_string().contains("tokenizer.json"));
        }
    }

    /// The test file after a change.
    fn changed(change: impl FnOnce(&mut serde_json::Value)) -> Result<Tokenizer, Error> {
        let mut json = serde_json::from_str(&tokenizer_json()).unwrap();
        change(&mut json);
        let dir = files_with(&[(FILE, &json.to_string())]);
        Tokenizer::load(&DirFiles(dir.path().to_owned()))
    }

    #[test]
    fn added_ids_the_crate_would_change_are_refused() {
        let moved = changed(|json| json["added_tokens"][1]["id"] = 300.into());
        let message = moved.unwrap_err().to_string();
        for needle in ["<|end|>", "id 300", "get 259"] {
            assert!(message.contains(needle), "{message}");
        }
        // In the vocabulary itself any id is possible, and leaves a hole.
        let kept = changed(|json| {
            for (at, id) in [300, 301, 400].into_iter().enumerate() {
                let entry = &mut json["added_tokens"][at];
                entry["id"] = id.into();
                let content = entry["content"].as_str().unwrap().to_owned();
                json["model"]["vocab"][content] = id.into();
            }
        });
        let kept = kept.unwrap();
        assert_eq!(kept.encode("<think>").unwrap(), [400]);
        assert_eq!(kept.vocab_size(), 401);
        assert!(kept.knows(301) && !kept.knows(302));
    }

    #[test]
    fn stored_truncation_and_padding_are_ignored() {
        let tok = changed(|json| {
            json["truncation"] = serde_json::json!({
                "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0
            });
            json["padding"] = serde_json::json!({
                "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
                "pad_id": 0, "pad_type_id": 0, "pad_token": "x"
            });
        });
        let tok = tok.unwrap();
        assert_eq!(tok.encode("abcd").unwrap(), [97, 98, 99, 100]);
    }
}
