//! Rules about `Cargo.toml`: dependencies between crates, and where versions and lints are set.

use super::{File, SourceTree, Violation};
use crate::layers::{LAYERS, allowed};
use crate::manifest::{CargoManifest, DependencyKind};

/// A crate without a row, or a row without a crate, is a problem.
pub(super) fn crates_match_the_table(tree: &SourceTree) -> Vec<Violation> {
    let mut problems = Vec::new();
    for (name, file) in crates(tree) {
        if allowed(name).is_none() {
            problems.push(Violation::at(
                &file.path,
                1,
                format!("crate `{name}` has no row in `xtask/src/layers.rs`"),
            ));
        }
    }
    for (name, _) in LAYERS {
        if !crates(tree).any(|(found, _)| found == *name) {
            problems.push(Violation::at(
                "xtask/src/layers.rs",
                1,
                format!("there is a row for `{name}`, and no such crate"),
            ));
        }
    }
    problems
}

pub(super) fn dependencies_follow_the_table(tree: &SourceTree) -> Vec<Violation> {
    let mut problems = Vec::new();
    for (name, file) in crates(tree) {
        let allowed = allowed(name).unwrap_or_default();
        for dependency in CargoManifest::parse(&file.text).dependencies() {
            let wanted = dependency.name.as_str();
            let ours = LAYERS.iter().any(|(row, _)| *row == wanted);
            // A test may combine the real crates below its own, at any depth.
            let for_tests = dependency.kind == DependencyKind::Dev
                && (wanted == "testkit" || is_below(name, wanted));
            if ours && !for_tests && !allowed.contains(&wanted) {
                problems.push(Violation::at(
                    &file.path,
                    dependency.line,
                    format!("`{name}` may not depend on `{wanted}`: see `xtask/src/layers.rs`"),
                ));
            }
        }
    }
    problems
}

/// Only one crate evaluates the templates of projects.
pub(super) fn the_template_language_stays_in_render(tree: &SourceTree) -> Vec<Violation> {
    let mut problems = Vec::new();
    for (_, file) in crates(tree).filter(|(name, _)| *name != "render") {
        for dependency in CargoManifest::parse(&file.text).dependencies() {
            if dependency.name.starts_with("minijinja") {
                problems.push(Violation::at(
                    &file.path,
                    dependency.line,
                    format!("`{}` is used by `render` alone", dependency.name),
                ));
            }
        }
    }
    problems
}

/// Whether a crate depends on another through the table.
fn is_below(name: &str, wanted: &str) -> bool {
    allowed(name)
        .unwrap_or_default()
        .iter()
        .any(|next| *next == wanted || is_below(next, wanted))
}

pub(super) fn versions_live_at_the_root(tree: &SourceTree) -> Vec<Violation> {
    let mut problems = Vec::new();
    for (_, file) in crates(tree) {
        let manifest = CargoManifest::parse(&file.text);
        for dependency in manifest.dependencies() {
            if !dependency.inherited {
                problems.push(Violation::at(
                    &file.path,
                    dependency.line,
                    format!(
                        "`{0}` is not inherited: its version belongs into the root, then `{0}.workspace = true`",
                        dependency.name
                    ),
                ));
            }
        }
        for key in ["version", "edition", "rust-version", "license", "publish"] {
            let inherited = manifest
                .section("package")
                .and_then(|package| package.get(&format!("{key}.workspace")))
                .is_some_and(|value| value == "true");
            if !inherited {
                problems.push(Violation::at(
                    &file.path,
                    1,
                    format!("`[package]` requires `{key}.workspace = true`"),
                ));
            }
        }
    }
    problems
}

pub(super) fn lints_are_inherited(tree: &SourceTree) -> Vec<Violation> {
    crates(tree)
        .filter(|(_, file)| {
            CargoManifest::parse(&file.text)
                .section("lints")
                .and_then(|lints| lints.get("workspace"))
                .is_none_or(|value| value != "true")
        })
        .map(|(_, file)| Violation::at(&file.path, 1, "no `[lints]` with `workspace = true`"))
        .collect()
}

/// The crates of the workspace by their directory's name.
fn crates(tree: &SourceTree) -> impl Iterator<Item = (&str, &File)> {
    tree.files.iter().filter_map(|file| {
        let dir = file.path.strip_suffix("/Cargo.toml")?;
        let name = dir.strip_prefix("crates/").unwrap_or(dir);
        (!name.contains('/')).then_some((name, file))
    })
}
