//! Text around the model: files, tokens, chat prompts, stops and sampling.
//!
//! The engine itself only knows token ids. Everything that turns a user's words into ids and ids
//! back into words lives here, and reads the same side files a Hugging Face model folder has:
//!
//! | part | reads | gives |
//! |---|---|---|
//! | [`Tokenizer`] | `tokenizer.json` | text to ids and back |
//! | [`Utf8Stream`] | - | text of a growing id sequence, whole characters only |
//! | [`ChatTemplate`] | `chat_template.jinja`, `tokenizer_config.json`, `chat_template.json` | messages to prompt text |
//! | [`Stops`] | `config.json`, `generation_config.json` | ids that end a reply |
//! | [`GenerationDefaults`] | `generation_config.json` | the model's own sampling settings |
//! | [`Sampler`] | - | one id from a row of logits |
//!
//! All of them read through [`Files`], so a folder on disk and a model embedded in the program
//! behave the same.

mod chat;
mod clock;
mod defaults;
mod error;
mod files;
mod jinja;
mod pyjson;
mod ranked;
mod sampler;
mod stops;
pub mod stream;
#[cfg(test)]
mod testing;
mod tokenizer;

pub use chat::{ChatTemplate, Message};
pub use defaults::GenerationDefaults;
pub use error::Error;
pub use files::{DirFiles, Embedded, Files};
pub use sampler::{Sampler, Sampling, argmax};
pub use stops::Stops;
pub use stream::Utf8Stream;
pub use tokenizer::Tokenizer;
