//! Repository rules that neither the compiler nor clippy checks: `cargo xtask tidy`.
//!
//! Not here: reading the files (`tree`). Each rule is a function from the files to a list of problems.

mod bans;
mod links;
mod manifests;
mod rooms;
mod sources;
mod tree;

#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use tree::{File, SourceTree};

/// A violation of a rule, and its position.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Violation {
    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

type Rule = fn(&SourceTree) -> Vec<Violation>;

const RULES: &[Rule] = &[
    manifests::crates_match_the_table,
    manifests::dependencies_follow_the_table,
    manifests::the_template_language_stays_in_render,
    manifests::versions_live_at_the_root,
    manifests::lints_are_inherited,
    sources::files_open_with_what_they_are,
    sources::files_stay_short,
    sources::modules_are_named_by_their_noun,
    bans::model_repeats_the_bans_and_adds_its_own,
    bans::no_path_of_one_machine,
    bans::plain_words,
    bans::sql_stays_in_store,
    bans::the_command_line_does_not_schedule,
    bans::store_types_stay_in_control,
    bans::processes_are_born_in_one_place,
    rooms::rooms_have_no_import_cycles,
    rooms::directories_stay_small,
    links::links_lead_somewhere,
];

/// Every problem, sorted by position.
pub(crate) fn check(tree: &SourceTree) -> Vec<Violation> {
    let mut problems: Vec<Violation> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    problems.sort();
    problems
}
