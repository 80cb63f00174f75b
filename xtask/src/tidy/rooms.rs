//! Rules about the directories of a crate: they import each other in one direction only, and stay small enough to list.
//!
//! A room is a module at the top of a crate: a directory with its files, or one file. Not here: which crate may use which
//! (`manifests`).

use std::collections::{BTreeMap, BTreeSet};

use super::{File, SourceTree, Violation};

/// Files that a directory may have of its own.
const MOST_FILES: usize = 25;

type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, (&'a str, usize)>>;

pub(super) fn rooms_have_no_import_cycles(tree: &SourceTree) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Vec<(&str, &File)>> = BTreeMap::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        if let Some((name, room)) = room(&file.path) {
            crates.entry(name).or_default().push((room, file));
        }
    }
    crates.values().flat_map(|files| cycles(files)).collect()
}

pub(super) fn directories_stay_small(tree: &SourceTree) -> Vec<Violation> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for file in tree.rust().filter(|file| room(&file.path).is_some()) {
        if let Some((directory, _)) = file.path.rsplit_once('/') {
            *counts.entry(directory).or_default() += 1;
        }
    }
    counts
        .into_iter()
        .filter(|(_, count)| *count > MOST_FILES)
        .map(|(directory, count)| {
            let message = format!("{count} files: divide it by topic ({MOST_FILES} is the limit)");
            Violation::at(directory, 1, message)
        })
        .collect()
}

/// The crate and the room of a source file; none for `lib.rs` and `main.rs`, which declare the rooms.
fn room(path: &str) -> Option<(&str, &str)> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let room = rest.split('/').next()?;
    let room = room.strip_suffix(".rs").unwrap_or(room);
    (!matches!(room, "lib" | "main")).then_some((name, room))
}

fn cycles<'a>(files: &[(&'a str, &'a File)]) -> Vec<Violation> {
    let rooms: BTreeSet<&str> = files.iter().map(|(room, _)| *room).collect();
    let mut graph: Graph<'a> = BTreeMap::new();
    for (room, file) in files {
        for (line, text) in file.code() {
            for used in imported(text).filter(|used| used != room) {
                if let Some(used) = rooms.get(used) {
                    let edges = graph.entry(room).or_default();
                    edges.entry(used).or_insert((&file.path, line));
                }
            }
        }
    }
    let mut problems = Vec::new();
    for (from, edges) in &graph {
        for (to, (path, line)) in edges {
            if reaches(&graph, to, from) {
                let message = format!(
                    "`{from}` imports `{to}`, which imports `{from}`: move what both need to a room below them"
                );
                problems.push(Violation::at(path, *line, message));
            }
        }
    }
    problems
}

fn reaches(graph: &Graph<'_>, from: &str, to: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(room) = open.pop() {
        if room == to {
            return true;
        }
        if seen.insert(room) {
            open.extend(graph.get(room).into_iter().flat_map(BTreeMap::keys));
        }
    }
    false
}

/// The rooms that a line names: `crate::room`, and each of `crate::{one, other::Thing}`. Of a list that rustfmt breaks into
/// several lines, only the first line is read.
fn imported(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).flat_map(|rest| {
        let list = rest.strip_prefix('{');
        let list = list.map(|list| list.split_once('}').map_or(list, |(list, _)| list));
        let alone = list.is_none().then_some(rest);
        let listed = list.into_iter().flat_map(|list| list.split(','));
        alone.into_iter().chain(listed).map(first_word)
    })
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.find(|it: char| !it.is_alphanumeric() && it != '_');
    end.map_or(text, |end| &text[..end])
}
