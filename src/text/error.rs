//! What can go wrong between a user's text and the engine's ids.

/// Every failure of this module. Each message names the file and key, or the flag, and what to do.
///
/// `from` is the label of the [`Files`](super::Files) the file came from.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file exists (or its folder does not) and could not be read.
    #[error("cannot read {file} from {from}: {reason}")]
    Read {
        /// File name within `from`.
        file: String,
        /// Where it was looked for.
        from: String,
        /// What the system said.
        reason: std::io::Error,
    },

    /// A file's content is not what its name promises.
    #[error("{file} in {from} cannot be used: {reason}; fetch the file again or repair it")]
    Malformed {
        /// File name within `from`.
        file: String,
        /// Where it was found.
        from: String,
        /// What is wrong, with a position where the parser knows one.
        reason: String,
    },

    /// A key of a JSON file holds a value that cannot be used.
    #[error("{file} in {from}: `{key}` {problem}")]
    Key {
        /// File name within `from`.
        file: String,
        /// Where it was found.
        from: String,
        /// The key, with its parents separated by dots.
        key: String,
        /// What the value is and what it must be.
        problem: String,
    },

    /// The model came without a tokenizer.
    #[error(
        "{from} has no tokenizer.json, so text cannot be turned into tokens; \
         give token ids with `--tokens`, which works without it, \
         or add the tokenizer.json of the model"
    )]
    NoTokenizer {
        /// Where it was looked for.
        from: String,
    },

    /// The tokenizer refused a text or a list of ids.
    #[error("the tokenizer cannot {action}: {reason}; `--tokens` works without it")]
    Tokenizer {
        /// `encode` or `decode`, and what.
        action: &'static str,
        /// What the tokenizer said.
        reason: String,
    },

    /// An id without a token, such as a padding row of the embedding table.
    #[error(
        "token id {id} has no token in tokenizer.json (its ids end at {last}); \
         the model and the tokenizer do not belong together, or the id is a padding row"
    )]
    UnknownId {
        /// The id.
        id: u32,
        /// The highest id that has a token.
        last: usize,
    },

    /// The chat template is not valid Jinja, or uses a tag that is not supported.
    #[error("the chat template of {from} does not compile: {reason}")]
    TemplateSyntax {
        /// Where it was found.
        from: String,
        /// Cause, with file and line.
        reason: String,
    },

    /// The chat template failed while it was rendered.
    #[error("the chat template of {from} failed on this conversation: {reason}")]
    TemplateRender {
        /// Where it was found.
        from: String,
        /// Cause, with file and line.
        reason: String,
    },

    /// The chat template called `raise_exception`: the conversation has a form it does not allow.
    #[error("the chat template of {from} refuses this conversation: {message}")]
    TemplateRefused {
        /// Where it was found.
        from: String,
        /// The template's own words.
        message: String,
    },

    /// An extra template variable would replace one that the conversation itself sets.
    #[error("the template variable `{name}` is set by the conversation; give it another name")]
    ReservedVariable {
        /// Name of the variable.
        name: String,
    },

    /// A sampling setting is out of its range.
    #[error("{flag} must be {range}, not {value}")]
    Flag {
        /// The command line flag.
        flag: &'static str,
        /// The values it allows.
        range: &'static str,
        /// The value it got.
        value: f64,
    },

    /// There was no row to sample from.
    #[error("cannot pick a token from an empty row of logits")]
    NoLogits,

    /// The model produced NaN or infinity.
    #[error(
        "logit {index} of {len} is {value} ({count} such values): the forward pass is broken, \
         no token can be chosen from it"
    )]
    BadLogit {
        /// First index (token id) with such a value.
        index: usize,
        /// Length of the row.
        len: usize,
        /// NaN or +infinity.
        value: f32,
        /// How many values of the row are NaN or +infinity.
        count: usize,
    },

    /// Every token of the row is masked.
    #[error("all {len} logits are -inf: every token is masked, none can be chosen")]
    AllMasked {
        /// Length of the row.
        len: usize,
    },
}
