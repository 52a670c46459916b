//! The Jinja dialect of chat templates: minijinja set up as transformers sets up Jinja2.
//!
//! `{% break %}` and `{% continue %}` come with minijinja's feature `loop_controls`. A float printed
//! without `tojson` has no exponent, other than in Python; no template is known to print such ones.

use super::clock::strftime;
use super::pyjson::tojson;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use std::time::{SystemTime, UNIX_EPOCH};

/// The text a template gave to `raise_exception`, carried as the source of the engine's error so
/// that a refusal can be told from a bug in the template.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// An environment with one template in it.
///
/// Line breaks after block tags and indentation before them are dropped, nothing is HTML-escaped,
/// strings and maps have their Python methods, missing variables are undefined.
///
/// # Errors
/// Syntax errors of the template.
pub fn environment(name: &str, source: &str) -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    env.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    // The default guesses from the file name, and would JSON-escape tokenizer_config.json.
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_filter("tojson", tojson);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    env.add_template_owned(name.to_owned(), without_generation_tags(source))?;
    Ok(env)
}

/// The template's own words, if it failed because it called `raise_exception`.
pub fn refusal(error: &Error) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = cause {
        if let Some(Refusal(message)) = e.downcast_ref() {
            return Some(message.clone());
        }
        cause = e.source();
    }
    None
}

fn raise_exception(message: String) -> Result<String, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, message.clone());
    Err(error.with_source(Refusal(message)))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_err(|_| "the system clock is before 1970".to_owned());
    now.and_then(|now| strftime(format, now.as_secs())).map_err(|text| Error::new(ErrorKind::InvalidOperation, text))
}

/// Replaces `{% generation %}` and its end, which only mark the assistant's text for training, by
/// a condition that always holds: minijinja has no extension tags, and dropping the tags would
/// change the trimming around them.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out += before;
        rest = tag;
        let Some(end) = tag.find("%}") else { break };
        let inner = &tag[..end];
        let word = inner.trim_matches(['-', '+']).trim();
        let new = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        out += &inner.replacen(word, new, 1);
        rest = &tag[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::context;

    fn render(source: &str) -> Result<String, Error> {
        let env = environment("tokenizer_config.json", source)?;
        env.get_template("tokenizer_config.json")?
            .render(context! { words => vec!["<a>", "b"], nothing => (), yes => true })
    }

    #[test]
    fn blocks_are_trimmed() {
        let source = "{% for w in words %}\n  {% if yes %}\n  {{ w }}\n  {% endif %}\n{% endfor %}\n";
        assert_eq!(render(source).unwrap(), "  <a>\n  b\n");
        assert_eq!(render("a  {%- if yes -%}  b  {%- endif %} c").unwrap(), "ab c");
    }

    #[test]
    fn values_print_as_in_python() {
        assert_eq!(
            render("{{ nothing }} {{ yes }} {{ 1.0 }} {{ words }} {{ missing }}|").unwrap(),
            "None True 1.0 ['<a>', 'b'] |"
        );
    }

    #[test]
    fn python_methods_work() {
        let source = "{{ ' x '.strip() }}{{ 'a-b'.split('-')[-1] }}{{ 'abc'.startswith('ab') }}\
                      {% for k, v in {'q': 1}.items() %}{{ k }}{{ v }}{% endfor %}\
                      {{ {'q': 1}.get('z', 'no') }}{{ '\\n\\na'.lstrip('\\n') }}";
        assert_eq!(render(source).unwrap(), "xbTrueq1noa");
    }

    #[test]
    fn missing_variables_can_be_tested() {
        assert_eq!(render("{{ missing is defined }}").unwrap(), "False");
        assert_eq!(render("{% if missing %}a{% else %}b{% endif %}").unwrap(), "b");
        assert!(render("{{ missing.deeper }}").is_err());
    }

    #[test]
    fn refusals_are_recognised() {
        let error = render("{% macro m() %}{{ raise_exception('no ' ~ 'way') }}{% endmacro %}{{ m() }}");
        assert_eq!(refusal(&error.unwrap_err()).unwrap(), "no way");
        assert!(refusal(&render("{{ missing.deeper }}").unwrap_err()).is_none());
    }

    #[test]
    fn generation_tags_change_nothing() {
        let marked = "a {%- generation -%} b {%- endgeneration %} c\n{% generation %}\nd{% endgeneration %}\n";
        assert_eq!(render(marked).unwrap(), "ab c\nd");
        let other = "{% set generation = 1 %}{{ generation }}{% raw %}{% x %}{% endraw %}{{ '{%' }}";
        assert_eq!(render(other).unwrap(), "1{% x %}{%");
    }

    #[test]
    fn today_has_a_plausible_year() {
        let year: u32 = render("{{ strftime_now('%Y') }}").unwrap().parse().unwrap();
        assert!((2024..3000).contains(&year));
        assert!(render("{{ strftime_now('%Q') }}").is_err());
    }

    #[test]
    fn syntax_errors_name_the_file_and_line() {
        let message = render("a\n{% if %}").unwrap_err().to_string();
        assert!(message.contains("tokenizer_config.json:2"), "{message}");
    }
}
