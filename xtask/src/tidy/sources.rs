//! Rules about source files: first line, length, names.

use super::{SourceTree, Violation};

const LONGEST: usize = 800;

/// Files that may be longer, each with its reason.
const LONG: &[(&str, &str)] = &[];

/// Names that do not describe the contents of a file.
const EMPTY_WORDS: &[&str] = &[
    "util", "utils", "common", "helper", "helpers", "types", "manager",
];

pub(super) fn files_open_with_what_they_are(tree: &SourceTree) -> Vec<Violation> {
    tree.rust()
        .filter(|file| {
            let first = file.text.lines().next().unwrap_or_default();
            first
                .strip_prefix("//!")
                .is_none_or(|said| said.trim().is_empty())
        })
        .map(|file| {
            Violation::at(
                &file.path,
                1,
                "the first line is not a `//!` that says what this file is",
            )
        })
        .collect()
}

pub(super) fn files_stay_short(tree: &SourceTree) -> Vec<Violation> {
    tree.rust()
        .filter(|file| !LONG.iter().any(|(path, _)| *path == file.path))
        .filter_map(|file| {
            let length = file.text.lines().count();
            (length > LONGEST).then(|| {
                Violation::at(
                    &file.path,
                    length,
                    format!(
                        "{length} lines: split it by noun, or list it with a reason ({LONGEST} is the limit)"
                    ),
                )
            })
        })
        .collect()
}

pub(super) fn modules_are_named_by_their_noun(tree: &SourceTree) -> Vec<Violation> {
    let mut problems = Vec::new();
    for file in tree.rust() {
        let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
        if stem == "mod" || stem.ends_with("/mod") {
            problems.push(Violation::at(
                &file.path,
                1,
                "`foo.rs` beside `foo/`, never `foo/mod.rs`",
            ));
        }
        if let Some(word) = stem.split('/').find(|part| EMPTY_WORDS.contains(part)) {
            problems.push(Violation::at(&file.path, 1, empty_word(word)));
        }
        for (line, text) in file.text.lines().enumerate() {
            let declared = text
                .trim_start()
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub(super) ")
                .trim_start_matches("pub ")
                .strip_prefix("mod ")
                .and_then(|rest| rest.strip_suffix(" {"));
            if let Some(word) = declared.filter(|word| EMPTY_WORDS.contains(word)) {
                problems.push(Violation::at(&file.path, line + 1, empty_word(word)));
            }
        }
    }
    problems
}

fn empty_word(word: &str) -> String {
    format!("`{word}` says nothing: name the module after its noun")
}
