//! Graph file text and `config.json` to [`Arch`]: words that remember where they stand.
//!
//! Reading order: [`source`] (a file and its spans), [`tree`] (RON to words, lists, maps and calls),
//! [`expr`] (arithmetic over names), [`config`] (the model's `config.json`), [`scope`] (names to
//! values), [`arch`] (the sections of a graph file), [`diag`] (what is wrong, and where).
//!
//! Nothing here knows an operator: which names exist and which shapes fit is decided in `graph`.

pub mod arch;
pub mod config;
pub mod diag;
pub mod expr;
pub mod near;
pub mod scope;
pub mod source;
pub mod tree;

pub use arch::{Arch, Block, Run};
pub use config::Config;
pub use diag::{Diagnostic, Diagnostics, Report};
pub use expr::{Expr, Val};
pub use scope::Scope;
pub use source::{Source, Span, Word};
pub use tree::{Call, Item};
