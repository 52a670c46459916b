//! RON text to a tree of words, lists, maps and calls that remember their spans.
//!
//! `ron` does the reading: every value is taken as a `RawValue`, a slice of the file whose address gives
//! its offset, and opened one level at a time. Maps keep file order and may repeat a key, since a block
//! reads as assignments from top to bottom. Field names are parsed by `ron` too, but not checked: which
//! operators and fields exist is for `graph` to say, all mistakes at once.

use super::diag::{Diagnostic, Report};
use super::source::{Source, Span, Word};
use ron::value::RawValue;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use std::sync::Arc;

/// A value of a graph file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A bare word: a resource, block, state or keyword.
    Word(Word),
    /// Quoted text: an expression or a weight name. Numbers count as expressions.
    Text(Word),
    List(Vec<Item>, Span),
    Map(Vec<(Word, Item)>, Span),
    Call(Call),
}

/// `Name(field: value, ...)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub name: Word,
    pub fields: Vec<(Word, Item)>,
    pub span: Span,
}

impl Item {
    pub fn span(&self) -> Span {
        match self {
            Item::Word(w) | Item::Text(w) => w.span.clone(),
            Item::List(_, s) | Item::Map(_, s) => s.clone(),
            Item::Call(c) => c.span.clone(),
        }
    }

    /// What this is, for error messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Item::Word(_) => "a name",
            Item::Text(_) => "quoted text",
            Item::List(..) => "a list",
            Item::Map(..) => "a map",
            Item::Call(_) => "an operator call",
        }
    }
}

/// Reads a whole file. Syntax errors end the reading at the first one, as the rest cannot be trusted.
pub fn read(source: &Arc<Source>) -> Result<Item, Report> {
    let reader = Reader { source };
    let raw: &RawValue = reader.parse(&source.text)?;
    reader.item(raw.trim().get_ron())
}

struct Reader<'a> {
    source: &'a Arc<Source>,
}

impl<'a> Reader<'a> {
    fn offset(&self, part: &str) -> usize {
        part.as_ptr() as usize - self.source.text.as_ptr() as usize
    }

    fn span(&self, part: &str) -> Span {
        let start = self.offset(part);
        start..start + part.len()
    }

    fn parse<T: Deserialize<'a>>(&self, part: &'a str) -> Result<T, Report> {
        ron::Options::default().from_str(part).map_err(|e| self.syntax(part, e))
    }

    /// `ron` counts lines and columns inside the part it was given; the report counts bytes of the file.
    fn syntax(&self, part: &str, error: ron::error::SpannedError) -> Report {
        let at = |p: ron::error::Position| {
            let line: usize = part.split_inclusive('\n').take(p.line.saturating_sub(1)).map(str::len).sum();
            let rest = &part[line.min(part.len())..];
            line + rest.chars().take(p.col.saturating_sub(1)).map(char::len_utf8).sum::<usize>()
        };
        let base = self.offset(part);
        let start = base + at(error.span.start);
        let end = (base + at(error.span.end)).max(start + 1).min(self.source.text.len().max(start));
        let item = Diagnostic::new(start.min(self.source.text.len())..end, error.code.to_string());
        Report::one(self.source, "this graph file is not valid RON", item)
    }

    fn item(&self, part: &'a str) -> Result<Item, Report> {
        let ident = part.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(part.len());
        let first = part.chars().next().unwrap_or(' ');
        match first {
            '"' | '\'' => Ok(Item::Text(self.text(part)?)),
            '[' => {
                let raws: Vec<&RawValue> = self.parse(part)?;
                let items = raws.iter().map(|r| self.item(r.trim().get_ron())).collect::<Result<_, _>>()?;
                Ok(Item::List(items, self.span(part)))
            }
            '{' => {
                let Entries(raws) = self.parse(part)?;
                Ok(Item::Map(self.entries(raws)?, self.span(part)))
            }
            '(' => self.call(part, 0),
            c if c.is_alphabetic() || c == '_' => match part[ident..].trim_start().starts_with('(') {
                true => self.call(part, ident),
                false => Ok(Item::Word(Word { text: part.into(), span: self.span(part) })),
            },
            // A number is an expression without quotes.
            _ => Ok(Item::Text(Word { text: part.into(), span: self.span(part) })),
        }
    }

    fn text(&self, part: &'a str) -> Result<Word, Report> {
        let text: String = self.parse(part)?;
        let span = self.span(part);
        // Inside the quotes when nothing was escaped, so that expression errors point at the right byte.
        let inner = if part.len() == text.len() + 2 { span.start + 1..span.end - 1 } else { span };
        Ok(Word { text, span: inner })
    }

    fn call(&self, part: &'a str, ident: usize) -> Result<Item, Report> {
        let name = Word { text: part[..ident].into(), span: self.span(&part[..ident]) };
        let Fields(raws) = self.parse(&part[ident..])?;
        let mut fields = Vec::with_capacity(raws.len());
        for (key, value) in raws {
            let start = key.address - self.source.text.as_ptr() as usize;
            let span = start..start + key.text.len();
            fields.push((Word { text: key.text, span }, self.item(value.trim().get_ron())?));
        }
        Ok(Item::Call(Call { name, fields, span: self.span(part) }))
    }

    fn entries(&self, raws: Vec<(&'a RawValue, &'a RawValue)>) -> Result<Vec<(Word, Item)>, Report> {
        let mut out = Vec::with_capacity(raws.len());
        for (key, value) in raws {
            let key = key.trim().get_ron();
            let word = match key.starts_with('"') {
                true => self.text(key)?,
                false => Word { text: key.into(), span: self.span(key) },
            };
            out.push((word, self.item(value.trim().get_ron())?));
        }
        Ok(out)
    }
}

/// A map in file order, repeated keys kept.
struct Entries<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(&'de RawValue, &'de RawValue)>;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut out = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    out.push(entry);
                }
                Ok(out)
            }
        }
        Ok(Entries(d.deserialize_map(InOrder)?))
    }
}

/// A field name. `ron` hands out identifiers as slices of the file, so the address is the span.
struct Key {
    text: String,
    address: usize,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Key;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a field name")
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Key, E> {
                Ok(Key { text: v.into(), address: v.as_ptr() as usize })
            }
        }
        d.deserialize_identifier(Name)
    }
}

/// The parenthesised fields of a call.
struct Fields<'a>(Vec<(Key, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Named;
        impl<'de> Visitor<'de> for Named {
            type Value = Vec<(Key, &'de RawValue)>;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("named fields, as in `(of: x)`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut out = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    out.push(entry);
                }
                Ok(out)
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }
        }
        Ok(Fields(d.deserialize_any(Named)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> (Arc<Source>, Result<Item, Report>) {
        let source = Source::new("test.ron", text);
        let item = read(&source);
        (source, item)
    }

    #[test]
    fn words_point_at_their_place() {
        let text = "// head\nArch(\n  b: { x: Op(of: y, w: \"a.b\", l: [p, \"q + 1\"]), x: Op() }, // end\n)";
        let (_, item) = tree(text);
        let Item::Call(arch) = item.unwrap() else { panic!() };
        assert_eq!(arch.name.text, "Arch");
        let Item::Map(entries, _) = &arch.fields[0].1 else { panic!() };
        assert_eq!(entries.len(), 2);
        let Item::Call(op) = &entries[0].1 else { panic!() };
        for (key, value) in &op.fields {
            assert_eq!(&text[key.span.clone()], key.text);
            if let Item::Word(w) | Item::Text(w) = value {
                assert_eq!(&text[w.span.clone()], w.text);
            }
        }
        let Item::List(list, _) = &op.fields[2].1 else { panic!() };
        assert_eq!(&text[list[1].span()], "q + 1");
    }

    #[test]
    fn syntax_errors_are_placed() {
        for (text, at) in [("Arch(\n  a: [x, }\n)", 15), ("Arch(", 5), ("", 0), ("Arch(a: \"x)", 8)] {
            let (source, item) = tree(text);
            let report = item.unwrap_err();
            let span = report.items[0].labels[0].0.clone();
            assert!(span.start <= source.text.len() && span.start.abs_diff(at) <= 3, "{text:?} {span:?}");
        }
    }

    #[test]
    fn positional_fields_are_refused() {
        assert!(tree("Arch(a: Op(x, y))").1.is_err());
    }
}
