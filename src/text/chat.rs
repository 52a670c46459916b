//! A conversation as the prompt text a model was trained on.
//!
//! The template is Jinja text that comes with the model. It is rendered with the variables
//! transformers gives to it, so that the prompt has the same bytes.

use super::files::{self, Files, bad_key, kind};
use super::{Error, jinja};
use minijinja::Environment;
use minijinja::value::Serde;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const JINJA: &str = "chat_template.jinja";
const CONFIG: &str = "tokenizer_config.json";
const JSON: &str = "chat_template.json";
const KEY: &str = "chat_template";

/// Keys of tokenizer_config.json that hold one token and are template variables too.
const TOKENS: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Variables that the conversation sets and nothing may replace.
const RESERVED: [&str; 2] = ["messages", "add_generation_prompt"];

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or what else the template knows.
    pub role: String,
    /// The text of the turn.
    pub content: String,
}

impl Message {
    /// A turn of this role with this text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// What a template sees.
#[derive(Serialize)]
struct Context<'a> {
    messages: &'a [Message],
    add_generation_prompt: bool,
    #[serde(flatten)]
    variables: Map<String, Value>,
}

/// A compiled chat template with the special tokens of its model.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    /// Name of the file the template was in.
    file: &'static str,
    /// Label of the place the file was in.
    from: String,
    /// Special tokens by variable name.
    tokens: Map<String, Value>,
}

impl ChatTemplate {
    /// Finds and compiles the template: chat_template.jinja, else `chat_template` of
    /// tokenizer_config.json, else that of chat_template.json. `None` if there is none; the prompt
    /// is then fed as it is.
    ///
    /// In the JSON files the template is a string or a list of `{"name", "template"}`, of which
    /// the one named `default` is taken.
    ///
    /// # Errors
    /// Unreadable files, wrong types (naming the key), syntax errors (naming file and line).
    pub fn load(files: &dyn Files) -> Result<Option<Self>, Error> {
        let config = files::json(files, CONFIG)?.unwrap_or_default();
        let Some((file, source)) = find(files, &config)? else {
            return Ok(None);
        };
        let from = files.label();
        let tokens = special_tokens(files, &config)?;
        match jinja::environment(file, &source) {
            Ok(env) => Ok(Some(Self { env, file, from, tokens })),
            Err(e) => Err(Error::TemplateSyntax { from, reason: e.to_string() }),
        }
    }

    /// The prompt of a conversation. `add_generation_prompt` appends what precedes the model's
    /// reply; `extra` sets more variables, such as `enable_thinking` or `tools`, and may replace
    /// the special tokens (`bos_token`, `eos_token`, `pad_token` …).
    ///
    /// # Errors
    /// [`Error::ReservedVariable`] if `extra` names a variable of the conversation,
    /// [`Error::TemplateRefused`] if the template rejects the conversation in its own words,
    /// [`Error::TemplateRender`] if it fails otherwise.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        extra: &Map<String, Value>,
    ) -> Result<String, Error> {
        if let Some(&name) = RESERVED.iter().find(|&&name| extra.contains_key(name)) {
            return Err(Error::ReservedVariable { name: name.to_owned() });
        }
        let mut variables = self.tokens.clone();
        // transformers passes these two always: they are defined, and none, without tools.
        variables.insert("tools".to_owned(), Value::Null);
        variables.insert("documents".to_owned(), Value::Null);
        variables.extend(extra.iter().map(|(k, v)| (k.clone(), v.clone())));
        let context = Context { messages, add_generation_prompt, variables };
        let template = self.env.get_template(self.file);
        template.and_then(|t| t.render(Serde(context))).map_err(|e| self.failure(&e))
    }

    fn failure(&self, error: &minijinja::Error) -> Error {
        let from = self.from.clone();
        match jinja::refusal(error) {
            Some(message) => Error::TemplateRefused { from, message },
            None => Error::TemplateRender { from, reason: error.to_string() },
        }
    }
}

/// The template's text and the file it was in.
fn find(files: &dyn Files, config: &Map<String, Value>) -> Result<Option<(&'static str, String)>, Error> {
    if let Some(source) = files::text(files, JINJA)? {
        return Ok(Some((JINJA, source)));
    }
    if let Some(source) = template_of(files, CONFIG, config)? {
        return Ok(Some((CONFIG, source)));
    }
    let json = files::json(files, JSON)?.unwrap_or_default();
    Ok(template_of(files, JSON, &json)?.map(|source| (JSON, source)))
}

/// The `chat_template` key of one of the JSON files.
fn template_of(files: &dyn Files, file: &str, json: &Map<String, Value>) -> Result<Option<String>, Error> {
    match json.get(KEY) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(source)) => Ok(Some(source.clone())),
        Some(Value::Array(list)) => {
            let default = list.iter().find(|entry| entry["name"] == "default");
            match default.map(|entry| &entry["template"]) {
                Some(Value::String(source)) => Ok(Some(source.clone())),
                _ => {
                    let problem = "is a list without a {\"name\": \"default\", \"template\": text}; \
                                   put the wanted template into chat_template.jinja";
                    Err(bad_key(files, file, KEY, problem.to_owned()))
                }
            }
        }
        Some(other) => {
            let problem = format!("is {}; it must be a string or a list", kind(other));
            Err(bad_key(files, file, KEY, problem))
        }
    }
}

/// Special tokens of tokenizer_config.json: strings, or objects that hold it as `content`.
fn special_tokens(files: &dyn Files, config: &Map<String, Value>) -> Result<Map<String, Value>, Error> {
    let mut tokens = Map::new();
    for key in TOKENS {
        let value = match config.get(key) {
            None | Some(Value::Null) => continue,
            Some(Value::Object(entry)) => entry.get("content").unwrap_or(&Value::Null),
            Some(value) => value,
        };
        if !value.is_string() {
            let problem = format!("is {}; it must be a token's text", kind(value));
            return Err(bad_key(files, CONFIG, key, problem));
        }
        tokens.insert(key.to_owned(), value.clone());
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::super::testing::files_with;
    use super::super::{DirFiles, Embedded};
    use super::*;
    use serde_json::json;

    fn load(files: &[(&str, &str)]) -> Result<Option<ChatTemplate>, Error> {
        let dir = files_with(files);
        ChatTemplate::load(&DirFiles(dir.path().to_owned()))
    }

    fn template(source: &str) -> ChatTemplate {
        load(&[(JINJA, source)]).unwrap().unwrap()
    }

    fn hello() -> Vec<Message> {
        vec![Message::new("user", "Hi <b> 'ü'"), Message::new("assistant", " Hello. ")]
    }

    fn extra(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn renders_messages_and_the_generation_prompt() {
        let chat = template(
            "{% for m in messages %}\n<{{ m.role }}>{{ m['content'] | trim }}\n{% endfor %}\n\
             {% if add_generation_prompt %}<assistant>{% endif %}",
        );
        let none = Map::new();
        assert_eq!(chat.render(&hello(), true, &none).unwrap(), "<user>Hi <b> 'ü'\n<assistant>Hello.\n<assistant>");
        assert_eq!(chat.render(&[], false, &none).unwrap(), "");
    }

    #[test]
    fn extra_variables_switch_the_template() {
        let chat = template(
            "{%- set think = enable_thinking is not defined or enable_thinking -%}\n\
             <think>{{ '' if think else '</think>' }}",
        );
        assert_eq!(chat.render(&[], true, &Map::new()).unwrap(), "<think>");
        let off = extra(json!({"enable_thinking": false}));
        assert_eq!(chat.render(&[], true, &off).unwrap(), "<think></think>");
    }

    #[test]
    fn tools_are_none_unless_given() {
        let chat = template("{{ tools is none }} {{ documents is none }} {{ tools | tojson }}");
        let none = Map::new();
        assert_eq!(chat.render(&[], true, &none).unwrap(), "True True null");
        let tools = extra(json!({"tools": [{"name": "f", "a": "<é>"}]}));
        assert_eq!(chat.render(&[], true, &tools).unwrap(), "False True [{\"name\": \"f\", \"a\": \"<é>\"}]");
    }

    #[test]
    fn special_tokens_are_variables() {
        let config = json!({
            "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null,
            "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"
        });
        let chat = load(&[(CONFIG, &config.to_string())]).unwrap().unwrap();
        assert_eq!(chat.render(&[], true, &Map::new()).unwrap(), "<s></s>False");
        let other = extra(json!({"bos_token": "<o>"}));
        assert_eq!(chat.render(&[], true, &other).unwrap(), "<o></s>False");
        let message = load(&[(CONFIG, r#"{"bos_token": 3, "chat_template": ""}"#)]);
        let message = message.unwrap_err().to_string();
        assert!(message.contains("`bos_token` is 3"), "{message}");
    }

    #[test]
    fn the_first_source_wins() {
        let config = (CONFIG, r#"{"chat_template": "config"}"#);
        let json = (JSON, r#"{"chat_template": "json"}"#);
        let say = |files: &[(&str, &str)]| {
            let chat = load(files).unwrap().unwrap();
            chat.render(&[], true, &Map::new()).unwrap()
        };
        assert_eq!(say(&[(JINJA, "jinja"), config, json]), "jinja");
        assert_eq!(say(&[config, json]), "config");
        assert_eq!(say(&[(CONFIG, "{}"), json]), "json");
        assert!(load(&[(CONFIG, r#"{"chat_template": null}"#)]).unwrap().is_none());
        assert!(ChatTemplate::load(&Embedded(&[])).unwrap().is_none());
    }

    #[test]
    fn lists_give_their_default() {
        let list = json!({"chat_template": [
            {"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}
        ]});
        let chat = load(&[(CONFIG, &list.to_string())]).unwrap().unwrap();
        assert_eq!(chat.render(&[], true, &Map::new()).unwrap(), "d");
        for bad in ["[]", "[1]", "[{\"name\": \"rag\", \"template\": \"\"}]", "7"] {
            let text = format!("{{\"chat_template\": {bad}}}");
            let message = load(&[(CONFIG, &text)]).unwrap_err().to_string();
            assert!(message.contains(CONFIG) && message.contains("`chat_template`"), "{message}");
        }
    }

    #[test]
    fn failures_are_told_apart() {
        let none = Map::new();
        let refusing = template("{{ raise_exception('roles must alternate') }}");
        let error = refusing.render(&hello(), true, &none).unwrap_err();
        assert!(
            matches!(&error, Error::TemplateRefused { message, .. } if message == "roles must alternate"),
            "{error}"
        );
        let error = template("{{ a.b.c }}").render(&[], true, &none).unwrap_err();
        assert!(matches!(error, Error::TemplateRender { .. }), "{error}");
        assert!(error.to_string().contains("chat_template.jinja:1"), "{error}");
        let error = load(&[(JINJA, "{% if %}")]).unwrap_err();
        assert!(matches!(error, Error::TemplateSyntax { .. }), "{error}");
    }

    #[test]
    fn the_conversation_cannot_be_replaced() {
        let chat = template("");
        for name in RESERVED {
            let error = chat.render(&[], true, &extra(json!({name: 1}))).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
