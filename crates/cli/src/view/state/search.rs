//! Search results, below their state and address.

use control::state::queries::search::{SearchHit, SearchResult};
use model::plan::PlanValue;
use model::state::StateName;
use serde_json::{Value, json};

use super::{StateLabels, json as data};
use crate::view::style::{TextRole, ViewOptions};
use crate::view::text::{self, clean, count};
use crate::view::{errors, plan};

pub(crate) fn text(found: &SearchResult, names: &StateLabels, look: ViewOptions) -> String {
    let mut out = String::new();
    let mut hits = found.hits.as_slice();
    let mut state = None;
    while let Some(first) = hits.first() {
        if state != Some(&first.state) {
            let gap = if state.is_some() { "\n" } else { "" };
            let name = look.paint(TextRole::Strong, &names.of(&first.state));
            out.extend([gap, &name, "\n"]);
            state = Some(&first.state);
        }
        let same = |hit: &&SearchHit| hit.state == first.state && hit.address == first.address;
        let length = hits.iter().take_while(same).count();
        let (here, rest) = hits.split_at(length);
        hits = rest;
        let span = |hit: &SearchHit| span(hit, found.through_time);
        let spans = here.iter().filter(|hit| hit.value.is_none()).map(span);
        out.push_str(&address_line(&first.address, spans, look));
        let values: Vec<(String, PlanValue)> = here
            .iter()
            .filter_map(|hit| {
                let (path, value) = hit.value.clone()?;
                let path = if path.is_empty() {
                    "value".to_owned()
                } else {
                    path
                };
                Some((path, value))
            })
            .collect();
        let spans = here.iter().filter(|hit| hit.value.is_some()).map(span);
        // One entry at a time, so that the span is on its first line.
        let widest = values
            .iter()
            .map(|(path, _)| text::width(&clean(path)))
            .max();
        for ((path, value), span) in values.into_iter().zip(spans) {
            let padded = text::pad(&path, widest.unwrap_or(0).min(44));
            let narrow = ViewOptions {
                width: look
                    .width
                    .saturating_sub(if span.is_empty() { 0 } else { span.len() + 3 }),
                ..look
            };
            let lines = plan::values(&[(padded, value)], 4, false, narrow);
            for (n, line) in lines.iter().enumerate() {
                out.push_str(line.trim_end());
                if n == 0 && !span.is_empty() {
                    out.extend(["   ", &look.paint(TextRole::Faint, &span)]);
                }
                out.push('\n');
            }
        }
    }
    out
}

/// The address, and the versions that contain it if the address itself was found.
fn address_line(address: &str, spans: impl Iterator<Item = String>, look: ViewOptions) -> String {
    let spans: Vec<String> = spans.filter(|span| !span.is_empty()).collect();
    let mut line = format!("  {}", clean(address));
    if !spans.is_empty() {
        line = format!(
            "{line}   {}",
            look.paint(TextRole::Faint, &spans.join(", "))
        );
    }
    line + "\n"
}

/// `versions 3 to 7`, `since version 9`; empty for a current value if no other version was searched.
fn span(hit: &SearchHit, through_time: bool) -> String {
    match hit.last {
        None if through_time => format!("since version {}", hit.first),
        None => String::new(),
        Some(last) if last <= hit.first => format!("version {}", hit.first),
        Some(last) => format!("versions {} to {last}", hit.first),
    }
}

/// How much was found and searched, and what could not be searched.
pub(crate) fn closing(found: &SearchResult, names: &StateLabels, look: ViewOptions) -> String {
    let hits = match found.hits.len() {
        0 => "Nothing found".to_owned(),
        hits => format!("{hits} found"),
    };
    let through = if found.versions > found.states {
        format!(" and {}", count(found.versions, "version"))
    } else {
        String::new()
    };
    let mut out = format!("{hits} in {}{through}.\n", count(found.states, "state"));
    let mut said = Vec::new();
    for (state, version, why) in &found.opaque {
        // Only once for each state.
        if said.contains(&state) {
            continue;
        }
        said.push(state);
        let name = names.of(state);
        let message = format!("version {version} of `{name}` was not searched: {why}");
        out.push_str(&errors::render_warning(&message, &[], look));
    }
    let is_hit = |state: &&StateName| found.hits.iter().any(|hit| hit.state == **state);
    let copies = found.copies.iter().filter(is_hit);
    let copies: Vec<String> = copies
        .map(|state| format!("`{}`", clean(&names.of(state))))
        .collect();
    if !copies.is_empty() {
        let live = if copies.len() == 1 {
            "it lives"
        } else {
            "they live"
        };
        let copies = copies.join(", ");
        out.extend([
            "note: of ",
            &copies,
            " a copy was searched: ",
            live,
            " in a backend of the engine\n",
        ]);
    }
    if found.hits.is_empty() {
        let hint = "a sensitive value is found only by its whole text";
        out.extend(["hint: ", hint, "\n"]);
    }
    out
}

pub(crate) fn json(found: &SearchResult) -> Value {
    let hits: Vec<Value> = found
        .hits
        .iter()
        .map(|hit| {
            let value = hit.value.as_ref();
            json!({
                "state": data::state(&hit.state),
                "address": hit.address,
                "path": value.map(|(path, _)| path),
                "value": value.map(|(_, shown)| data::value(shown)),
                "first_version": hit.first,
                "last_version": hit.last,
            })
        })
        .collect();
    let unknown: Vec<Value> = found
        .opaque
        .iter()
        .map(|(state, version, why)| {
            json!({ "state": data::state(state), "version": version, "why": why })
        })
        .collect();
    let copies: Vec<Value> = found.copies.iter().map(data::state).collect();
    json!({ "hits": hits, "copies": copies, "not_searched": unknown, "states": found.states, "versions": found.versions })
}
