//! Tests of the project file as data: files in, findings or stacks out.

mod backends;
mod contexts;
mod example;
mod findings;
mod fuzz;
mod hostile;
mod meaning;
mod modules;
mod remote_states;
mod together;
mod values;
mod writers;

use crate::base::tree::MemoryTree;
use crate::project::config::*;
use std::fmt::Write as _;

pub(super) fn surroundings(env: &dyn Fn(&str) -> Option<String>) -> LoadEnvironment<'_> {
    LoadEnvironment {
        env,
        git_commit: Some("3f9c1e2".to_owned()),
        git_branch: Some("main".to_owned()),
    }
}

pub(super) fn load_tree(tree: &MemoryTree) -> LoadedProject {
    load(
        tree,
        &surroundings(&|name| (name == "SET").then(|| "set".to_owned())),
    )
}

/// Several files in one text. Each starts with a line `== path`.
pub(super) fn tree(text: &str) -> MemoryTree {
    let mut tree = MemoryTree::default();
    let mut path = "terrane.hcl".to_owned();
    let mut body = String::new();
    for line in text.lines() {
        if let Some(next) = line.strip_prefix("== ") {
            if !body.trim().is_empty() {
                tree.insert(path, body);
            }
            path = next.to_owned();
            body = String::new();
        } else {
            body.push_str(line);
            body.push('\n');
        }
    }
    tree.insert(path, body);
    tree
}

/// Findings as compact text.
pub(super) fn rendered(loaded: &LoadedProject) -> String {
    let mut out = String::new();
    for finding in &loaded.findings {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        _ = writeln!(out, "{severity} {}: {}", finding.code, finding.message);
        for place in &finding.places {
            _ = writeln!(
                out,
                "  {}:{}:{} {}",
                place.at.file, place.at.line, place.at.column, place.label
            );
        }
        if let Some(hint) = &finding.hint {
            _ = writeln!(out, "  hint: {hint}");
        }
    }
    out
}

/// The beginning of a valid project.
pub(super) const BASE: &str = r#"project "p" {}
layer "low" { order = 0 }
layer "high" { order = 1 }
target "t" { writers = ["anyone"] }
"#;

pub(super) fn check(text: &str) -> String {
    rendered(&load_tree(&tree(text)))
}

/// The same with a valid beginning, so that lines count from 5.
pub(super) fn check_with_base(text: &str) -> String {
    check(&format!("{BASE}{text}"))
}
