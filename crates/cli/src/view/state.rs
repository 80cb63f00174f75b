//! States as text for people. One file for each query, and shared code.

pub(crate) mod blame;
pub(crate) mod diff;
pub(crate) mod json;
pub(crate) mod list;
pub(crate) mod search;
pub(crate) mod show;
#[cfg(test)]
mod tests;
pub(crate) mod versions;

use std::collections::BTreeMap;
use std::time::Duration;

use control::state::queries::author::{Author, CommitRef};
use jiff::Timestamp;
use model::project::Project;
use model::state::{StateName, StateVersion};

use super::duration;
use super::style::{Symbol, ViewOptions};
use super::text::{self, clean, quote};

/// With less room than this, a commit's subject is left out.
const SHORTEST_SUBJECT: usize = 12;

/// The name of each state: its stack, if this project has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateLabels {
    project: String,
    stacks: BTreeMap<String, String>,
}

impl StateLabels {
    pub(crate) fn new(project: Option<&Project>, id: &str) -> Self {
        let stacks = project.iter().flat_map(|project| &project.stacks);
        Self {
            project: id.to_owned(),
            stacks: stacks
                .map(|(name, stack)| (stack.state.clone(), name.to_string()))
                .collect(),
        }
    }

    pub(crate) fn of(&self, state: &StateName) -> String {
        let here = (state.project == self.project).then(|| self.stacks.get(&state.name));
        let name = match here.flatten() {
            Some(stack) => stack.clone(),
            None if state.project == self.project => state.name.clone(),
            None => state.to_string(),
        };
        clean(&name).into_owned()
    }
}

/// `181 B`, `14.2 KB`, `3.1 MB`.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    for (unit, name) in UNITS {
        if bytes >= unit {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} B")
}

pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    let span = Duration::try_from(now.duration_since(at)).unwrap_or_default();
    duration::ago(span)
}

/// `version 3 (serial 18, 2 days ago)`
fn version_words(version: &StateVersion, now: Timestamp) -> String {
    format!(
        "version {} (serial {}, {})",
        version.version,
        version.serial,
        ago(version.created_at, now)
    )
}

/// `3f9c1e2 "network: widen nodes"`, with a mark if there were uncommitted changes. The subject is left out
/// if there is too little room.
fn commit_words(commit: &CommitRef, columns: usize, look: ViewOptions) -> String {
    let id = text::head(&commit.id, 7);
    let more = if commit.is_dirty { "+" } else { "" };
    match &commit.subject {
        Some(subject) if columns >= SHORTEST_SUBJECT => {
            let subject = quote(&text::cut(subject, columns, look));
            format!("{id}{more} {subject}")
        }
        Some(_) | None => format!("{id}{more}"),
    }
}

/// The author of a version, in this order: run, commit, person.
fn author_words(author: &Author, columns: usize, look: ViewOptions) -> Vec<String> {
    let run = author.run.map(|run| run.to_string());
    let commit = author.commit.as_ref();
    let commit = commit.map(|commit| commit_words(commit, columns, look));
    let person = author.person.as_ref();
    let person = person.map(|person| clean(&person.name).into_owned());
    [run, commit, person].into_iter().flatten().collect()
}

/// A dash for a column that must not be empty.
fn dash(look: ViewOptions) -> String {
    if look.unicode { "–" } else { "-" }.to_owned()
}

fn ellipsis(look: ViewOptions) -> &'static str {
    look.sign(Symbol::Ellipsis)
}
