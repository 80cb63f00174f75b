//! What an engine that died did and no state records, as text.

use model::run::import_proposal::{CreatedResource, ID_NOTE, ImportMethod, UnrecordedResources};

use super::text::clean;

/// Lines below the outcome of a run; the next step comes last.
pub fn lines(left: &UnrecordedResources, run: &str, stack: &str) -> Vec<String> {
    let mut lines = facts(left);
    lines.extend(way_on(left, run, stack));
    lines
}

/// What is unrecorded, one item per line.
pub fn facts(left: &UnrecordedResources) -> Vec<String> {
    let mut lines = vec![match left.serial {
        Some(serial) => format!("the newest state is serial {serial}; beyond it the engine"),
        None => "no state was stored; the engine".to_owned(),
    }];
    lines.extend(left.made.iter().map(made));
    for address in &left.changed {
        lines.push(format!("  changed `{}`", clean(address)));
    }
    for address in &left.gone {
        let address = clean(address);
        lines.push(format!(
            "  destroyed `{address}`, which is still in the state"
        ));
    }
    for one in &left.underway {
        let (address, action) = (clean(&one.address), clean(&one.action));
        lines.push(format!(
            "  was working on `{address}` ({action}): the result is unknown"
        ));
    }
    lines
}

fn made(made: &CreatedResource) -> String {
    let address = clean(&made.address);
    match &made.import {
        ImportMethod::ById { id } => format!("  created `{address}`, id `{}`", clean(id)),
        ImportMethod::Impossible => format!("  created `{address}`, which cannot be imported"),
        ImportMethod::NoId => format!("  created `{address}`, and reported no id"),
        ImportMethod::HiddenId => format!("  created `{address}`, whose id contains a secret"),
    }
}

fn way_on(left: &UnrecordedResources, run: &str, stack: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if left.kept_aside {
        lines.push(
            "the quarantined state may contain all of this: decide about it first".to_owned(),
        );
    }
    let gone: Vec<String> = left
        .to_forget()
        .map(|address| format!("'{}'", clean(address)))
        .collect();
    if !gone.is_empty() {
        let gone = gone.join(" ");
        lines.push(format!(
            "`terrane exec {stack} --reason … -- state rm {gone}` removes what is gone from the state"
        ));
    }
    if !left.importable().is_empty() {
        lines.push(format!(
            "an apply now would create them a second time: first add the output of `terrane run imports {run}` to \
             the stack's module ({ID_NOTE})"
        ));
    }
    lines
}
