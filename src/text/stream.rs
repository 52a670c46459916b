//! Text of a token sequence while it grows.
//!
//! A token may end in the middle of a character, and some decoders look at the token before
//! (leading spaces), so tokens cannot be decoded one by one. The stream decodes a short window
//! that starts with the tokens of the last output and hands out what is new in it.

use super::{Error, Tokenizer};

/// What a decoder writes for bytes that are no character (yet).
const REPLACEMENT: char = '\u{fffd}';

/// A window longer than this cannot be waiting for one character: its replacement characters are
/// really invalid bytes. Bounds the work per token on a model that produces garbage.
const LONGEST_WINDOW: usize = 32;

/// Tokens kept when such a window is cut. An unfinished character has at most three bytes, hence
/// at most three tokens.
const KEPT_TOKENS: usize = 8;

/// Incremental detokeniser: whole characters only, the same text as decoding all ids at once.
///
/// The equality is exact for byte-level tokenizers. With byte-fallback ones (SentencePiece) it
/// holds as long as the byte tokens form valid UTF-8; there an invalid byte changes the text of
/// characters that were given out already.
#[derive(Clone, Debug)]
pub struct Utf8Stream<'t> {
    tokenizer: &'t Tokenizer,
    skip_special: bool,
    /// Ids that are decoded together: context, then those not given out completely.
    window: Vec<u32>,
    /// Where the ids after the context begin in `window`.
    fresh: usize,
    /// Bytes of the window's text that were given out.
    given: usize,
}

impl<'t> Utf8Stream<'t> {
    /// A stream at the start of a text; `skip_special` as in [`Tokenizer::decode`].
    pub fn new(tokenizer: &'t Tokenizer, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, window: Vec::new(), fresh: 0, given: 0 }
    }

    /// Takes the next id and returns the text that became complete, often empty.
    ///
    /// Text that ends in U+FFFD is held back: it may be an unfinished character.
    ///
    /// # Errors
    /// [`Error::UnknownId`] for an id without a token; the stream is then as before the call.
    pub fn push(&mut self, id: u32) -> Result<String, Error> {
        if self.skip_special && self.tokenizer.is_special(id) {
            return Ok(String::new());
        }
        self.window.push(id);
        let text = match self.tokenizer.decode(&self.window, false) {
            Ok(text) => text,
            Err(e) => {
                self.window.pop();
                return Err(e);
            }
        };
        if self.window.len() > LONGEST_WINDOW {
            return self.cut(&text);
        }
        let complete = text.trim_end_matches(REPLACEMENT).len();
        let new = self.take(&text, complete);
        if complete == text.len() && !new.is_empty() {
            self.window.drain(..self.fresh);
            self.fresh = self.window.len();
            self.given = self.tokenizer.decode(&self.window, false)?.len();
        }
        Ok(new)
    }

    /// Ends the text: returns what was held back, unfinished characters as U+FFFD, and starts anew.
    ///
    /// # Errors
    /// Those of [`Tokenizer::decode`].
    pub fn flush(&mut self) -> Result<String, Error> {
        let text = self.tokenizer.decode(&self.window, false)?;
        let rest = self.take(&text, text.len());
        self.window.clear();
        self.fresh = 0;
        self.given = 0;
        Ok(rest)
    }

    /// The part of `text` from what was given out to `end`, which counts as given out then.
    fn take(&mut self, text: &str, end: usize) -> String {
        // Only a decoder that rewrites earlier text could leave a position inside a character.
        let start = text.ceil_char_boundary(self.given);
        if start >= end {
            return String::new();
        }
        self.given = end;
        text[start..end].to_owned()
    }

    /// Gives out all but a last replacement character and shortens the window.
    fn cut(&mut self, text: &str) -> Result<String, Error> {
        let new = self.take(text, before_last_replacement(text));
        self.window.drain(..self.window.len() - KEPT_TOKENS);
        self.fresh = 0;
        let kept = self.tokenizer.decode(&self.window, false)?;
        self.given = before_last_replacement(&kept);
        Ok(new)
    }
}

/// Length without one replacement character at the end.
fn before_last_replacement(text: &str) -> usize {
    text.strip_suffix(REPLACEMENT).unwrap_or(text).len()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{THINK, USER, bytes_tokenizer, fallback_tokenizer};
    use super::*;

    /// Small deterministic generator, so that failures repeat.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *state >> 33
    }

    fn run(tok: &Tokenizer, ids: &[u32], skip: bool) -> Vec<String> {
        let mut stream = tok.stream(skip);
        let mut parts: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        parts.push(stream.flush().unwrap());
        parts
    }

    #[test]
    fn characters_come_whole_and_at_once() {
        let tok = bytes_tokenizer();
        let ids: Vec<u32> = "aé你🙂".bytes().map(u32::from).collect();
        let parts = run(&tok, &ids, false);
        assert_eq!(parts, ["a", "", "é", "", "", "你", "", "", "", "🙂", ""]);
    }

    #[test]
    fn any_valid_text_streams_to_itself() {
        let tok = bytes_tokenizer();
        let alphabet: Vec<char> = "ab the\né—你好🙂𝔘\u{301}\u{fffd}".chars().collect();
        let mut state = 7;
        for _ in 0..200 {
            let length = next(&mut state) % 40;
            let text: String = (0..length).map(|_| alphabet[next(&mut state) as usize % alphabet.len()]).collect();
            // Half of the runs from single bytes, half from merged tokens.
            let ids = match next(&mut state) % 2 {
                0 => text.bytes().map(u32::from).collect(),
                _ => tok.encode(&text).unwrap(),
            };
            let parts = run(&tok, &ids, false);
            assert_eq!(parts.concat(), text);
            if !text.contains(REPLACEMENT) {
                assert!(parts.iter().all(|part| !part.contains(REPLACEMENT)));
            }
        }
    }

    #[test]
    fn random_ids_stream_to_their_whole_decoding() {
        let tok = bytes_tokenizer();
        let mut state = 3;
        for round in 0..300 {
            let ids: Vec<u32> = (0..round)
                .map(|_| match next(&mut state) % 10 {
                    0 => USER + (next(&mut state) % 3) as u32,
                    1..=4 => 128 + (next(&mut state) % 128) as u32,
                    _ => (next(&mut state) % 258) as u32,
                })
                .collect();
            for skip in [false, true] {
                let whole = tok.decode(&ids, skip).unwrap();
                assert_eq!(run(&tok, &ids, skip).concat(), whole, "{ids:?}");
            }
        }
    }

    #[test]
    fn byte_fallback_streams_valid_text() {
        let tok = fallback_tokenizer();
        let mut state = 11;
        for _ in 0..300 {
            let mut ids = Vec::new();
            for _ in 0..next(&mut state) % 20 {
                match next(&mut state) % 8 {
                    at @ 0..=3 => ids.push(256 + at as u32),
                    4 => ids.extend("你".bytes().map(u32::from)),
                    5 => ids.extend("🙂".bytes().map(u32::from)),
                    6 => ids.extend("é".bytes().map(u32::from)),
                    _ => ids.push(u32::from(b'x')),
                }
            }
            let parts = run(&tok, &ids, false);
            assert_eq!(parts.concat(), tok.decode(&ids, false).unwrap(), "{ids:?}");
            assert!(parts.iter().all(|part| !part.contains(REPLACEMENT)));
        }
    }

    #[test]
    fn garbage_keeps_the_window_short() {
        let tok = bytes_tokenizer();
        for bytes in [vec![0x80], vec![0xf0, 0x9f], vec![0xe4, 0xbd], vec![0xc3]] {
            let ids: Vec<u32> = bytes.iter().copied().cycle().take(1000).collect();
            let mut stream = tok.stream(false);
            let mut text = String::new();
            for &id in &ids {
                text += &stream.push(id).unwrap();
                assert!(stream.window.len() <= LONGEST_WINDOW);
            }
            text += &stream.flush().unwrap();
            assert_eq!(text, tok.decode(&ids, false).unwrap());
        }
    }

    #[test]
    fn a_character_after_garbage_is_still_whole() {
        let tok = bytes_tokenizer();
        let mut ids = vec![0x80; 500];
        ids.extend("🙂ok".bytes().map(u32::from));
        let parts = run(&tok, &ids, false);
        assert_eq!(parts.concat(), tok.decode(&ids, false).unwrap());
        assert!(parts[503].ends_with('🙂'));
    }

    #[test]
    fn unfinished_text_appears_at_the_end_only() {
        let tok = bytes_tokenizer();
        let parts = run(&tok, &[104, 0xe4, 0xbd], false);
        assert_eq!(parts, ["h", "", "", "\u{fffd}"]);
    }

    #[test]
    fn skipped_special_tokens_do_not_split_a_character() {
        let tok = bytes_tokenizer();
        assert_eq!(run(&tok, &[0xc3, USER, 0xa9], true).concat(), "é");
        let shown = run(&tok, &[0xc3, USER, 0xa9], false).concat();
        assert_eq!(shown, "\u{fffd}<|user|>\u{fffd}");
    }

    #[test]
    fn an_unknown_id_leaves_the_stream_as_it_was() {
        let tok = bytes_tokenizer();
        let mut stream = tok.stream(false);
        assert_eq!(stream.push(0xc3).unwrap(), "");
        assert!(matches!(stream.push(THINK + 1), Err(Error::UnknownId { id: 261, .. })));
        assert_eq!(stream.push(0xa9).unwrap(), "é");
        assert_eq!(stream.flush().unwrap(), "");
        assert_eq!(stream.push(104).unwrap(), "h");
    }
}
