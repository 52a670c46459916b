//! The project's rules about itself.

use crate::support::root;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What each module may use. `docs/architecture.md` explains it; DESIGN 2 decides it.
const USES: [(&str, &[&str]); 15] = [
    ("formats", &[]),
    ("names", &[]),
    ("spec", &["names"]),
    ("ops", &["spec", "formats"]),
    ("graph", &["ops", "spec"]),
    ("weights", &["formats", "names"]),
    ("convert", &["formats", "graph", "ops", "spec", "weights"]),
    ("oracle", &["formats", "graph", "ops", "weights"]),
    ("cpu", &["formats"]),
    ("plan", &["graph", "ops", "formats", "names"]),
    ("run", &["cpu", "formats", "graph", "ops", "oracle", "plan", "spec", "vk", "weights"]),
    ("text", &[]),
    ("vk", &[]),
    ("cli", &["convert", "formats", "graph", "ops", "plan", "run", "spec", "text", "vk", "weights"]),
    ("main.rs", &["cli"]),
];

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut out = vec![];
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            out.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    out
}

/// (path relative to src, code without test modules and comments)
fn code() -> Vec<(String, String)> {
    let src = root("src");
    let mut out = vec![];
    for path in sources(&src) {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(&src).unwrap().display().to_string();
        let code: Vec<&str> = text
            .split("#[cfg(test)]\nmod ")
            .next()
            .unwrap()
            .lines()
            .map(|l| if l.trim_start().starts_with("//") { "" } else { l })
            .collect();
        out.push((name, code.join("\n")));
    }
    out
}

fn is_test(name: &str) -> bool {
    name.split('/').any(|p| p == "tests" || p == "tests.rs" || p == "testing.rs" || p == "golden.rs")
}

#[test]
fn dependencies_point_one_way() {
    let uses: BTreeMap<&str, &[&str]> = USES.into_iter().collect();
    let mut wrong = vec![];
    for (name, code) in code() {
        let module = name.split('/').next().unwrap();
        if module == "lib.rs" {
            continue;
        }
        let Some(allowed) = uses.get(module) else { panic!("the module `{module}` is not in the table") };
        for (at, _) in code.match_indices("crate::").chain(code.match_indices("coli::")) {
            let rest = &code[at..].split_once("::").unwrap().1;
            let used: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if used != module && uses.contains_key(used.as_str()) && !allowed.contains(&used.as_str()) {
                wrong.push(format!("{name} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_and_functions_stay_short() {
    let mut long = vec![];
    for path in sources(&root("src")).into_iter().chain(sources(&root("tests"))) {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > 600 {
            long.push(format!("{}: {} lines", path.display(), lines.len()));
        }
        for (i, line) in lines.iter().enumerate() {
            let body = line.trim_start();
            let starts = ["fn ", "pub fn ", "pub(super) fn ", "pub(crate) fn ", "unsafe fn ", "pub unsafe fn "];
            if !starts.iter().any(|s| body.starts_with(s)) || body.ends_with(';') {
                continue;
            }
            let indent = &line[..line.len() - body.len()];
            let end = lines[i..].iter().position(|l| *l == format!("{indent}}}")).unwrap_or(0);
            if end > 60 {
                long.push(format!("{}:{}: {end} lines in one function", path.display(), i + 1));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn unwrap_and_unsafe_have_their_places() {
    let mut wrong = vec![];
    for (name, code) in code() {
        if code.contains(".unwrap()") && !is_test(&name) {
            wrong.push(format!("{name}: unwrap outside tests"));
        }
        let may = ["cpu/", "vk/", "tiers/", "weights/shard.rs"];
        if code.contains("unsafe ") && !may.iter().any(|m| name.starts_with(m)) {
            wrong.push(format!("{name}: unsafe"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_operator_is_documented_and_used() {
    let graphs: String = ["deepseek_v4_flash", "glm52", "kimi_k3", "kimi_linear", "qwen3", "qwen3_moe"]
        .map(|g| std::fs::read_to_string(root(&format!("graphs/{g}.ron"))).unwrap())
        .concat();
    for op in coli::ops::all() {
        for part in [op.summary, op.output, op.equation, op.source] {
            assert!(!part.is_empty(), "{}: undocumented", op.name);
        }
        assert!(op.fields.iter().all(|f| !f.doc.is_empty()), "{}: a field is undocumented", op.name);
        assert!(graphs.contains(&format!("{}(", op.name)), "{}: no graph file uses it", op.name);
    }
}

/// The operator pages are made from the code. `COLI_UPDATE_DOCS=1 cargo test` rewrites them.
#[test]
fn operator_pages_are_current() {
    let path = root("docs/graph-format.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let marker = "<!-- made from src/ops: COLI_UPDATE_DOCS=1 cargo test operator_pages -->\n\n";
    let (head, pages) = text.split_once(marker).expect("the marker in docs/graph-format.md");
    let want = coli::ops::docs::markdown();
    if std::env::var_os("COLI_UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{marker}{want}")).unwrap();
    } else {
        assert!(pages == want, "docs/graph-format.md is stale; run COLI_UPDATE_DOCS=1 cargo test operator_pages");
    }
}

#[test]
fn graph_files_stay_short() {
    for entry in std::fs::read_dir(root("graphs")).unwrap() {
        let path = entry.unwrap().path();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 130, "{}: {lines} lines", path.display());
    }
}
