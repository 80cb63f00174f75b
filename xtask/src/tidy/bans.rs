//! Rules about forbidden text: calls, SQL, absolute paths.
//!
//! The search texts are assembled from parts, so that this file does not match itself.

use super::{SourceTree, Violation};

const ROOT_BANS: &str = "clippy.toml";
const MODEL_BANS: &str = "crates/model/clippy.toml";

/// Calls that would make `model` impure. A `clippy.toml` inside a crate replaces the one at the root.
const IMPURE: &[&str] = &[
    "std::env::var",
    "std::env::vars",
    "std::env::current_dir",
    "std::fs::read",
    "std::fs::read_to_string",
    "std::fs::read_dir",
    "std::fs::write",
    "std::fs::File::open",
    "std::fs::File::create",
    "std::time::SystemTime::now",
    "std::time::Instant::now",
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
];

/// The files that may start a child process: one of the product, one of the repository's own tools.
const BIRTHPLACES: &[&str] = &["crates/drivers/src/process.rs", "xtask/src/child.rs"];

pub(super) fn model_repeats_the_bans_and_adds_its_own(tree: &SourceTree) -> Vec<Violation> {
    let banned = |path: &str| -> Vec<String> {
        tree.get(path)
            .map(|file| banned_paths(&file.text))
            .unwrap_or_default()
    };
    let root = banned(ROOT_BANS);
    let model = banned(MODEL_BANS);
    let missing = |call: &str, why: &str| {
        (!model.iter().any(|found| found == call))
            .then(|| Violation::at(MODEL_BANS, 1, format!("`{call}` is not banned: {why}")))
    };
    let repeated = root
        .iter()
        .filter_map(|call| missing(call, "the root bans it, and this file replaces the root's"));
    let own = IMPURE
        .iter()
        .filter_map(|call| missing(call, "`model` is pure"));
    repeated.chain(own).collect()
}

pub(super) fn no_path_of_one_machine(tree: &SourceTree) -> Vec<Violation> {
    let needles = [
        concat!("/ro", "ot/"),
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
    ];
    let mut problems = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            for needle in needles {
                if line
                    .match_indices(needle)
                    .any(|(at, _)| starts_a_path(line, at))
                {
                    problems.push(Violation::at(
                        &file.path,
                        index + 1,
                        format!("`{needle}…` is a path of one machine"),
                    ));
                }
            }
        }
    }
    problems
}

/// Words of this project's past that a reader has to decode. `CONTRIBUTING.md` has the rules.
pub(super) fn plain_words(tree: &SourceTree) -> Vec<Violation> {
    let banned = [
        (concat!("poi", "soned"), "skipped"),
        (concat!("afr", "esh"), "again"),
        (concat!("kept as", "ide"), "quarantined"),
        (concat!("the way ", "on"), "the next step"),
        (concat!("what it is ", "at"), "its current work"),
        (concat!("de", "ed"), "action"),
        (concat!("ow", "ed"), "missing, pending"),
        (concat!("men", "ded"), "fixed"),
        (concat!("who", "ever"), "name the actor"),
    ];
    let mut problems = Vec::new();
    for file in tree.files.iter().filter(|file| !file.is_test()) {
        let kind = file.path.rsplit('.').next();
        let is_decision = file.path.starts_with("docs/decisions/");
        if !matches!(kind, Some("md" | "rs")) || is_decision {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            let line = line.to_lowercase();
            for (word, instead) in banned {
                let is_stored = line.contains("serde(rename")
                    || line.contains("decisions/")
                    || file.path.starts_with("crates/store/");
                if has_word(&line, word) && !is_stored {
                    let message = format!("`{word}` is hard to read: {instead}");
                    problems.push(Violation::at(&file.path, index + 1, message));
                }
            }
        }
    }
    problems
}

/// Whether a line has this word by itself, not as part of another one.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Use cases are in `control`: the command line parses arguments and draws results.
pub(super) fn the_command_line_does_not_schedule(tree: &SourceTree) -> Vec<Violation> {
    let needles = [
        "scheduler::advance(",
        "scheduler::resume_unattended(",
        "recovery::release_abandoned(",
        "recovery::stop_if_gone(",
        "run::cleanup",
    ];
    let mut problems = Vec::new();
    for file in tree.rust() {
        if !file.path.starts_with("crates/cli/src/") {
            continue;
        }
        for (number, line) in file.code() {
            if let Some(needle) = needles.iter().find(|needle| line.contains(**needle)) {
                let message =
                    format!("`{needle}` belongs to `control::schedule` or `control::decision`");
                problems.push(Violation::at(&file.path, number, message));
            }
        }
    }
    problems
}

/// `control` converts what it reads from `store` to its own types, or to those of `model`.
pub(super) fn store_types_stay_in_control(tree: &SourceTree) -> Vec<Violation> {
    let mut problems = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        let name = file.path.strip_prefix("crates/");
        let name = name.and_then(|path| path.split_once("/src/"));
        let Some((name, _)) = name.filter(|(name, _)| *name != "store") else {
            continue;
        };
        for (number, line) in file.code().filter(|(_, line)| names_the_store(line)) {
            let is_above = matches!(name, "cli" | "server");
            let is_public = ["pub use ", "pub type "];
            let is_public = is_public.iter().any(|word| line.trim().starts_with(word));
            let message = if is_above {
                format!("`{name}` may not use `store`: it calls `control`")
            } else if is_public {
                format!(
                    "`{name}` may not hand on a type of `store`: convert it, or move it to `model`"
                )
            } else {
                continue;
            };
            problems.push(Violation::at(&file.path, number, message));
        }
    }
    problems
}

/// Whether a line has a path of the crate `store`. A module with this name, and `object_store`, are not the crate.
fn names_the_store(line: &str) -> bool {
    line.match_indices("store::").any(|(at, _)| {
        let before = &line[..at];
        let before = before.strip_suffix("::").unwrap_or(before);
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
    })
}

pub(super) fn sql_stays_in_store(tree: &SourceTree) -> Vec<Violation> {
    let needles = [
        concat!("SEL", "ECT "),
        concat!("INS", "ERT INTO "),
        concat!("DEL", "ETE FROM "),
        concat!("CRE", "ATE TABLE "),
        concat!("BEG", "IN IMMEDIATE"),
    ];
    let mut problems = Vec::new();
    for file in tree.rust().filter(|file| {
        let owners = ["crates/store/", "crates/testkit/tests/"];
        !owners.iter().any(|owner| file.path.starts_with(owner))
    }) {
        for (number, line) in file.code() {
            if needles.iter().any(|needle| line.contains(needle)) {
                problems.push(Violation::at(
                    &file.path,
                    number,
                    "SQL is written in `store` alone",
                ));
            }
        }
    }
    problems
}

pub(super) fn processes_are_born_in_one_place(tree: &SourceTree) -> Vec<Violation> {
    let needle = concat!("Command", "::new(");
    let mut problems = Vec::new();
    for file in tree.rust() {
        if file.is_test() || BIRTHPLACES.contains(&file.path.as_str()) {
            continue;
        }
        for (number, line) in file.code() {
            // clap also has a `Command`, which starts no process.
            if line
                .match_indices(needle)
                .any(|(at, _)| !line[..at].ends_with("clap::"))
            {
                problems.push(Violation::at(
                    &file.path,
                    number,
                    "a child process is born in `drivers::process` alone",
                ));
            }
        }
    }
    problems
}

/// `disallowed-methods` of a `clippy.toml`.
fn banned_paths(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(|line| line.split_once("path = \""))
        .filter_map(|(_, rest)| rest.split_once('"'))
        .map(|(path, _)| path.to_owned())
        .collect()
}

/// Whether the path at `at` is absolute: `net/work/` and `${dir}/work/` are not.
fn starts_a_path(line: &str, at: usize) -> bool {
    let before = line[..at].chars().next_back();
    before.is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | ')' | '*')))
}
