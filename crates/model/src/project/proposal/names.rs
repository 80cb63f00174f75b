//! Names derived from directories.

use std::collections::BTreeMap;

use super::RootModule;
use crate::base::ids::{StackName, check_name};

/// A project name derived from its directory.
pub(super) fn project(raw: &str) -> String {
    word(raw, "project")
}

/// A name for each module: the last component of its directory, with as many components before it as needed for a
/// unique name.
pub(super) fn stacks(found: &[&RootModule], project: &str) -> Vec<String> {
    let deepest = found
        .iter()
        .map(|module| parts(module).len())
        .max()
        .unwrap_or(0);
    let mut names: Vec<String> = found
        .iter()
        .map(|module| name(module, 1, project))
        .collect();
    for count in 2..=deepest {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for taken in &names {
            *seen.entry(taken.clone()).or_default() += 1;
        }
        for (module, taken) in found.iter().zip(&mut names) {
            if seen[taken] > 1 {
                *taken = name(module, count, project);
            }
        }
    }
    numbered(names)
}

/// A valid name that is as similar to the text as possible.
pub(super) fn word(raw: &str, prefix: &str) -> String {
    let lower = raw.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let mut name = words.join("-");
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        name = format!("{prefix}-{name}");
    }
    name.truncate(60);
    let name = name.trim_end_matches('-');
    if check_name(name).is_ok() {
        name.to_owned()
    } else {
        prefix.to_owned()
    }
}

fn parts(module: &RootModule) -> Vec<&str> {
    module
        .dir
        .split('/')
        .filter(|part| !part.is_empty())
        .collect()
}

fn name(module: &RootModule, count: usize, project: &str) -> String {
    let parts = parts(module);
    let last = &parts[parts.len().saturating_sub(count)..];
    let name = if last.is_empty() {
        project.to_owned()
    } else {
        word(&last.join("-"), "stack")
    };
    // It would be a keyword, or look like a run's number.
    if name.parse::<StackName>().is_ok() {
        name
    } else {
        format!("stack-{name}")
    }
}

/// The second of two equal names becomes `name-2`.
fn numbered(mut names: Vec<String>) -> Vec<String> {
    for at in 1..names.len() {
        let (before, rest) = names.split_at_mut(at);
        let mut number = 1;
        let base = rest[0].clone();
        while before.contains(&rest[0]) {
            number += 1;
            rest[0] = format!("{base}-{number}");
        }
    }
    names
}
