//! JSON as Python's `json.dumps` writes it.
//!
//! Chat templates print tool descriptions with the `tojson` filter, and models were trained on the
//! exact bytes Python produces: `", "` and `": "` between items, non-ASCII characters kept, no HTML
//! escapes, floats in Python's notation.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// Deepest nesting written; a value that contains itself (a namespace) has no end.
const DEEPEST: usize = 128;

/// Parameters of the filter, in the order they may be given without a name.
const PARAMETERS: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];

/// How a value is laid out.
#[derive(Clone, Debug)]
struct Layout {
    ensure_ascii: bool,
    /// Text of one indentation step; `None` writes everything on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
///
/// # Errors
/// An unknown or ill-typed argument, or a value JSON cannot express (undefined, bytes, functions).
pub fn tojson(value: Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let layout = Layout::from_arguments(&args, &kwargs)?;
    let mut out = String::new();
    layout.write(&mut out, &value, 0)?;
    Ok(out)
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

impl Layout {
    fn from_arguments(args: &[Value], kwargs: &Kwargs) -> Result<Self, Error> {
        if args.len() > PARAMETERS.len() {
            return Err(invalid("tojson takes at most four arguments"));
        }
        let argument = |at: usize| -> Result<Value, Error> {
            let named: Option<Value> = kwargs.get(PARAMETERS[at])?;
            match (named, args.get(at)) {
                (Some(_), Some(_)) => Err(invalid(format!("tojson got {} twice", PARAMETERS[at]))),
                (Some(value), None) => Ok(value),
                (None, given) => Ok(given.cloned().unwrap_or(Value::from(()))),
            }
        };
        let indent = indent_of(&argument(1)?)?;
        let (item_separator, key_separator) = separators_of(&argument(2)?, indent.is_some())?;
        let layout = Self {
            ensure_ascii: argument(0)?.is_true(),
            indent,
            item_separator,
            key_separator,
            sort_keys: argument(3)?.is_true(),
        };
        kwargs.assert_all_used()?;
        Ok(layout)
    }

    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(invalid("tojson: the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None | ValueKind::Bool | ValueKind::Number => *out += &scalar(value)?,
            ValueKind::String => self.write_string(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.write_list(out, value, depth)?,
            ValueKind::Map => self.write_map(out, value, depth)?,
            other => return Err(invalid(format!("tojson cannot write {other}"))),
        }
        Ok(())
    }

    fn write_list(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.before_item(out, empty, depth);
            empty = false;
            self.write(out, &item, depth + 1)?;
        }
        self.close(out, ']', empty, depth);
        Ok(())
    }

    fn write_map(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut pairs = Vec::new();
        for key in value.try_iter()? {
            let text = match key.as_str() {
                Some(text) => text.to_owned(),
                None => scalar(&key)?,
            };
            pairs.push((text, value.get_item(&key)?));
        }
        if self.sort_keys {
            pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        out.push('{');
        for (at, (key, item)) in pairs.iter().enumerate() {
            self.before_item(out, at == 0, depth);
            self.write_string(out, key);
            *out += &self.key_separator;
            self.write(out, item, depth + 1)?;
        }
        self.close(out, '}', pairs.is_empty(), depth);
        Ok(())
    }

    /// Separator and line break in front of an item of a list or map at `depth`.
    fn before_item(&self, out: &mut String, first: bool, depth: usize) {
        if !first {
            *out += &self.item_separator;
        }
        self.line_break(out, depth + 1);
    }

    fn close(&self, out: &mut String, bracket: char, empty: bool, depth: usize) {
        if !empty {
            self.line_break(out, depth);
        }
        out.push(bracket);
    }

    fn line_break(&self, out: &mut String, depth: usize) {
        if let Some(step) = &self.indent {
            out.push('\n');
            *out += &step.repeat(depth);
        }
    }

    fn write_string(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => *out += "\\\"",
                '\\' => *out += "\\\\",
                '\n' => *out += "\\n",
                '\r' => *out += "\\r",
                '\t' => *out += "\\t",
                '\u{8}' => *out += "\\b",
                '\u{c}' => *out += "\\f",
                c if c < ' ' || (self.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn indent_of(value: &Value) -> Result<Option<String>, Error> {
    match (value.kind(), value.as_i64()) {
        (ValueKind::None, _) => Ok(None),
        (ValueKind::String, _) => Ok(value.as_str().map(str::to_owned)),
        // Negative steps mean bare line breaks, as in Python; the cap keeps the text finite.
        (ValueKind::Number, Some(n)) => Ok(Some(" ".repeat(n.clamp(0, 64) as usize))),
        _ => Err(invalid("tojson: indent must be an integer or a string")),
    }
}

fn separators_of(value: &Value, indented: bool) -> Result<(String, String), Error> {
    if value.is_none() {
        // Python drops the space before a line break.
        let item = if indented { "," } else { ", " };
        return Ok((item.to_owned(), ": ".to_owned()));
    }
    let parts: Vec<Value> = value.try_iter()?.collect();
    match parts.as_slice() {
        [item, key] => match (item.as_str(), key.as_str()) {
            (Some(item), Some(key)) => Ok((item.to_owned(), key.to_owned())),
            _ => Err(invalid("tojson: separators must be two strings")),
        },
        _ => Err(invalid("tojson: separators must be two strings")),
    }
}

/// None, booleans and numbers; also how Python turns such map keys into strings.
fn scalar(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(value.is_true().to_string()),
        ValueKind::Number if value.is_integer() => Ok(value.to_string()),
        ValueKind::Number => Ok(float(f64::try_from(value.clone())?)),
        other => Err(invalid(format!("tojson cannot write {other} as a key"))),
    }
}

/// A float as Python's `repr` gives it: shortest digits that read back the same, scientific below
/// 1e-4 and from 1e16 on, with a sign and two digits at least in the exponent.
fn float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(e) if x != 0.0 && !(-4..16).contains(&e) => {
            let sign = if e < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", e.abs())
        }
        // Debug keeps the `.0` of whole numbers but has its own scientific range.
        _ if x.fract() == 0.0 => format!("{x}.0"),
        _ => format!("{x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::Environment;
    use minijinja::value::Serde;

    fn dump(expression: &str, json: serde_json::Value) -> Result<String, Error> {
        let mut env = Environment::new();
        env.add_filter("tojson", tojson);
        let context = Value::from_pairs([("x", Value::from(Serde(json)))]);
        let template = format!("{{{{ {expression} }}}}");
        env.render_str(&template, context)
    }

    #[test]
    fn writes_like_json_dumps() {
        let x = serde_json::json!({
            "b": [1, 2.0, -0.5, true, null], "a": {"é": "\"<&'>\\\n\u{1}\u{7f}🙂"}, "e": [], "m": {}
        });
        assert_eq!(
            dump("x | tojson", x.clone()).unwrap(),
            "{\"b\": [1, 2.0, -0.5, true, null], \
             \"a\": {\"é\": \"\\\"<&'>\\\\\\n\\u0001\u{7f}🙂\"}, \"e\": [], \"m\": {}}"
        );
        assert_eq!(
            dump("x | tojson(ensure_ascii=true, sort_keys=true)", x).unwrap(),
            "{\"a\": {\"\\u00e9\": \"\\\"<&'>\\\\\\n\\u0001\\u007f\\ud83d\\ude42\"}, \
             \"b\": [1, 2.0, -0.5, true, null], \"e\": [], \"m\": {}}"
        );
    }

    #[test]
    fn indents_and_separates() {
        let x = serde_json::json!({"a": [1, 2], "b": {}});
        let indented = "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}";
        assert_eq!(dump("x | tojson(indent=2)", x.clone()).unwrap(), indented);
        assert_eq!(dump("x | tojson(false, 2)", x.clone()).unwrap(), indented);
        assert_eq!(dump("x | tojson(separators=(',', ':'))", x.clone()).unwrap(), "{\"a\":[1,2],\"b\":{}}");
        assert_eq!(dump("x.a | tojson(indent='\t', separators=(' ;', '='))", x).unwrap(), "[\n\t1 ;\n\t2\n]");
    }

    #[test]
    fn floats_have_python_notation() {
        for (x, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-4, "0.0001"),
            (1.25e-5, "1.25e-05"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float(x), text);
        }
    }

    #[test]
    fn keys_that_are_no_strings() {
        let text = dump("{2: 2, true: 3, none: 4} | tojson", serde_json::json!(0)).unwrap();
        assert_eq!(text, "{\"2\": 2, \"true\": 3, \"null\": 4}");
    }

    #[test]
    fn wrong_arguments_are_errors() {
        let x = serde_json::json!([1]);
        for expression in [
            "nothing | tojson",
            "x | tojson(colour=1)",
            "x | tojson(indent=[])",
            "x | tojson(separators=(',',))",
            "x | tojson(separators=(1, 2))",
            "x | tojson(true, ensure_ascii=true)",
            "x | tojson(1, 2, none, 4, 5)",
            "range | tojson",
        ] {
            assert!(dump(expression, x.clone()).is_err(), "{expression}");
        }
    }

    #[test]
    fn a_value_that_contains_itself_ends() {
        let mut env = Environment::new();
        env.add_filter("tojson", tojson);
        let template = "{% set n = namespace() %}{% set n.me = n %}{{ n | tojson }}";
        assert!(env.render_str(template, ()).is_err());
    }
}
