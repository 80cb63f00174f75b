//! The versions of a state.

use control::state::queries::deleted::Deletion;
use control::state::queries::versions::VersionLine;
use jiff::Timestamp;

use super::{ago, author_words, dash, size};
use crate::view::style::ViewOptions;
use crate::view::table::Table;

pub(crate) fn text(lines: &[VersionLine], now: Timestamp, look: ViewOptions) -> String {
    let headings = ["VERSION", "SERIAL", "WHEN", "CHANGES", "SIZE", "BY"];
    let mut table = Table::new(headings).right(0).right(1).right(4);
    for line in lines {
        let version = &line.version;
        // The width that the other columns, a run and a person leave.
        let subject = look.width.saturating_sub(84).min(50);
        let mut by = author_words(&line.author, subject, look);
        by.extend(version.mark.map(|mark| mark.words().to_owned()));
        if by.is_empty() {
            by.push(dash(look));
        }
        table.row([
            version.version.to_string(),
            version.serial.to_string(),
            ago(version.created_at, now),
            did(line),
            size(version.size),
            by.join(", "),
        ]);
    }
    table.render(look)
}

/// The message that the state was deleted, and how to restore it.
pub(crate) fn deleted(deleted: &Deletion, state: &str, newest: i64, now: Timestamp) -> String {
    let actor = deleted.actor.as_ref();
    let by = actor.map(|actor| format!(", by {actor}"));
    format!(
        "Deleted {}{}: `terrane state rollback {state} --to {newest} --reason …` brings it back\n",
        ago(deleted.at, now),
        by.unwrap_or_default()
    )
}

/// `+2 ~1 -3`, or text if there are no counts.
fn did(line: &VersionLine) -> String {
    let Some(did) = &line.did else {
        return "not read".to_owned();
    };
    if did.opaque.is_some() {
        return "unknown".to_owned();
    }
    let counts = did.counts;
    let marks = [
        ("+", counts.added),
        ("~", counts.changed),
        ("-", counts.removed),
    ];
    let marks: Vec<String> = marks
        .iter()
        .filter(|(_, number)| *number > 0)
        .map(|(mark, number)| format!("{mark}{number}"))
        .collect();
    match (marks.is_empty(), counts.others) {
        (false, _) => marks.join(" "),
        (true, 0) => "none".to_owned(),
        (true, _) => "outputs".to_owned(),
    }
}
