//! Errors with the lines of the file they are about.

use super::failure::Failure;
use crate::spec::{Diagnostic, Report};
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource};
use std::fmt::Write;
use std::io::IsTerminal;

/// Prints a failure on stderr.
pub fn failure(failure: &Failure) {
    match failure {
        Failure::Report(report) => eprint!("{}", report_text(report, use_color())),
        other => eprintln!("error: {other}"),
    }
}

fn use_color() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// All problems of a report, each with its lines.
pub fn report_text(report: &Report, color: bool) -> String {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(120).with_context_lines(1);
    let mut out = format!("error: {}: {}\n", report.source.name, report.heading);
    for item in &report.items {
        let source = NamedSource::new(&report.source.name, report.source.text.clone());
        let error = miette::Report::new(diagnostic(report, item)).with_source_code(source);
        if handler.render_report(&mut out, error.as_ref()).is_err() {
            let _ = writeln!(out, "{}", item.message);
        }
    }
    let n = report.items.len();
    let _ = writeln!(out, "{n} problem{}", if n == 1 { "" } else { "s" });
    out
}

/// The word at fault is underlined. Where its parts come from may be far away in the file, so those lines
/// are quoted below instead of drawing everything between.
fn diagnostic(report: &Report, item: &Diagnostic) -> MietteDiagnostic {
    let (span, _) = &item.labels[0];
    let label = LabeledSpan::new(Some("here".into()), span.start, span.len());
    let mut help: Vec<String> = item.labels[1..].iter().map(|(span, text)| quote(report, span.start, text)).collect();
    help.extend(item.help.clone());
    let d = MietteDiagnostic::new(item.message.clone()).with_labels([label]);
    if help.is_empty() { d } else { d.with_help(help.join("\n")) }
}

fn quote(report: &Report, at: usize, text: &str) -> String {
    let (line, _) = report.source.line_col(at);
    let source = report.source.text.lines().nth(line - 1).unwrap_or_default().trim();
    format!("{text}, from line {line}: {source}")
}
