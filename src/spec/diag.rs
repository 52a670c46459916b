//! Problems found in a graph file: collected, not first-fail, each with the words it is about.

use super::source::{Source, Span};
use std::sync::Arc;

/// One problem. The first label is the word at fault; further labels show where its parts come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub message: String,
    pub labels: Vec<(Span, String)>,
    pub help: Option<String>,
}

impl Diagnostic {
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { labels: vec![(span, message.clone())], message, help: None }
    }

    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push((span, text.into()));
        self
    }

    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }
}

/// Collects diagnostics. A problem that repeats at the same word (once per layer, say) is kept once.
#[derive(Debug, Default)]
pub struct Diagnostics {
    items: Vec<Diagnostic>,
}

impl Diagnostics {
    pub fn push(&mut self, item: Diagnostic) {
        let same = |d: &Diagnostic| d.labels[0].0 == item.labels[0].0;
        if !self.items.iter().any(|d| same(d) && (d.message == item.message || d.labels[0].0.len() > 1)) {
            self.items.push(item);
        }
    }

    pub fn error(&mut self, span: Span, message: impl Into<String>) {
        self.push(Diagnostic::new(span, message));
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Ok if nothing was found, else everything that was, in file order.
    pub fn finish(mut self, source: &Arc<Source>, heading: &str) -> Result<(), Report> {
        if self.items.is_empty() {
            return Ok(());
        }
        self.items.sort_by_key(|d| d.labels[0].0.start);
        Err(Report { source: source.clone(), heading: heading.into(), items: self.items })
    }
}

/// Everything that is wrong with one file. Rendered with source lines by `cli`; `Display` is the plain form.
#[derive(Debug, Clone)]
pub struct Report {
    pub source: Arc<Source>,
    pub heading: String,
    pub items: Vec<Diagnostic>,
}

impl Report {
    pub fn one(source: &Arc<Source>, heading: &str, item: Diagnostic) -> Self {
        Self { source: source.clone(), heading: heading.into(), items: vec![item] }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.source.name, self.heading)?;
        for item in &self.items {
            let (line, column) = self.source.line_col(item.labels[0].0.start);
            write!(f, "\n  {line}:{column}: {}", item.message)?;
            for (span, text) in &item.labels[1..] {
                let (line, column) = self.source.line_col(span.start);
                write!(f, "\n    {line}:{column}: {text}")?;
            }
            if let Some(help) = &item.help {
                write!(f, "\n    help: {help}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Report {}
