//! Which version set each value: the values below their version, newest version first.

use std::collections::BTreeMap;

use control::state::queries::blame::{Blame, BlameLine};
use jiff::Timestamp;
use model::plan::PlanValue;
use serde_json::{Value, json};

use super::{ago, author_words, json as data};
use crate::view::plan;
use crate::view::style::{TextRole, ViewOptions};
use crate::view::text::{self, clean};

pub(crate) fn text(blame: &Blame, now: Timestamp, full: bool, look: ViewOptions) -> String {
    let mut out = String::new();
    for (n, object) in blame.objects.iter().enumerate() {
        if n > 0 {
            out.push('\n');
        }
        let address = clean(&object.address);
        out.extend([&look.paint(TextRole::Strong, &address), "\n"]);
        let mut groups: BTreeMap<i64, Vec<&BlameLine>> = BTreeMap::new();
        for line in &object.lines {
            groups.entry(line.since).or_default().push(line);
        }
        let oldest = groups.keys().next().copied();
        for (since, lines) in groups.iter().rev() {
            let is_first = Some(*since) == oldest && *since == 1;
            out.push_str(&heading(*since, lines, is_first, now, look));
            let values: Vec<(String, PlanValue)> = lines
                .iter()
                .map(|line| (name(&line.path), line.value.clone()))
                .collect();
            for line in plan::values(&values, 4, full, look) {
                out.extend([line.trim_end(), "\n"]);
            }
        }
        if object.lines.is_empty() {
            out.push_str("  no values\n");
        }
    }
    out
}

/// The name of a value; a whole output has no path.
fn name(path: &str) -> String {
    if path.is_empty() { "value" } else { path }.to_owned()
}

/// `  serial 18   2 days ago   r40   3f9c1e2 "network: widen nodes"   operator`
fn heading(
    since: i64,
    lines: &[&BlameLine],
    is_first: bool,
    now: Timestamp,
    look: ViewOptions,
) -> String {
    let Some(line) = lines.first() else {
        return String::new();
    };
    let mut words = Vec::new();
    match &line.version {
        None => words.push(format!("version {since}, no longer kept")),
        Some(version) => {
            words.push(format!("serial {}", version.serial));
            words.push(ago(version.created_at, now));
        }
    }
    words.extend(author_words(&line.author, 40, look));
    if line.version.is_some() && line.author.run.is_none() {
        let first = if is_first {
            "the first version"
        } else {
            "not written by a terrane run"
        };
        words.push(first.to_owned());
    }
    let mut said = String::new();
    let mut row = String::from(" ");
    for word in &words {
        if text::width(&row) > 2 && text::width(&row) + 3 + text::width(word) > look.width {
            said.extend([row.as_str(), "\n"]);
            row = String::from("   ");
        }
        row.push_str(if row == " " { " " } else { "   " });
        row.push_str(word);
    }
    look.paint(TextRole::Faint, &(said + &row)) + "\n"
}

pub(crate) fn json(blame: &Blame) -> Value {
    let objects: Vec<Value> = blame
        .objects
        .iter()
        .map(|object| {
            let attributes: Vec<Value> = object
                .lines
                .iter()
                .map(|line| {
                    json!({
                        "path": line.path,
                        "value": data::value(&line.value),
                        "since": line.since,
                        "version": line.version.as_ref().map(data::version),
                        "author": data::author(&line.author),
                    })
                })
                .collect();
            json!({ "address": object.address, "attributes": attributes })
        })
        .collect();
    json!({ "version": data::version(&blame.asked.version), "objects": objects })
}
