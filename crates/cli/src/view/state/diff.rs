//! The differences between two versions, in the form of a plan.

use jiff::Timestamp;
use model::plan::{ChangeAction, Plan};
use model::state::StateVersion;
use model::state::diff::StateDiff;
use serde_json::{Value, json};

use super::json::{value, version};
use super::version_words;
use crate::view::plan;
use crate::view::style::{Symbol, ViewOptions};
use crate::view::text::{clean, count, width};

pub(crate) fn text(
    before: Option<&StateVersion>,
    after: &StateVersion,
    difference: StateDiff,
    now: Timestamp,
    full: bool,
    look: ViewOptions,
) -> String {
    let old = before.map_or_else(
        || "nothing".to_owned(),
        |version| version_words(version, now),
    );
    let start = format!("state `{}`: ", clean(&after.state.name));
    let new = format!("{} {}", look.sign(Symbol::Arrow), version_words(after, now));
    let columns = [&start, &old, &new]
        .map(|part| width(part))
        .iter()
        .sum::<usize>();
    let gap = if columns < look.width {
        " ".to_owned()
    } else {
        format!("\n{}", " ".repeat(width(&start)))
    };
    let heading = format!("{start}{old}{gap}{new}\n");
    if difference.is_empty() {
        return format!("{heading}\nNo difference in resources and outputs.\n");
    }
    let closing = closing(&difference);
    let plan = Plan {
        changes: difference.changes,
        outputs: difference.outputs,
        ..Plan::default()
    };
    let changes = plan::changes(&plan, full, look);
    format!("{heading}\n{changes}\n{closing}\n")
}

/// `1 added, 2 changed, 1 replaced, 0 removed; 1 output differs.`
fn closing(difference: &StateDiff) -> String {
    let of = |fits: fn(ChangeAction) -> bool| {
        let changes = difference.changes.iter();
        changes.filter(|change| fits(change.action)).count()
    };
    let resources = format!(
        "{} added, {} changed, {} replaced, {} removed",
        of(|action| action == ChangeAction::Create),
        of(|action| action == ChangeAction::Update),
        of(ChangeAction::is_replace),
        of(|action| action == ChangeAction::Delete),
    );
    let outputs = match difference.outputs.len() {
        0 => String::new(),
        1 => "; 1 output differs".to_owned(),
        outputs => format!("; {} differ", count(outputs, "output")),
    };
    format!("{resources}{outputs}.")
}

pub(crate) fn json(
    before: Option<&StateVersion>,
    after: &StateVersion,
    difference: &StateDiff,
) -> Value {
    let changes: Vec<Value> = difference
        .changes
        .iter()
        .map(|change| {
            let attributes: Vec<Value> = change
                .attributes
                .iter()
                .map(|it| json!({ "path": it.path, "before": value(&it.before), "after": value(&it.after) }))
                .collect();
            json!({
                "address": change.address,
                "type": change.resource_type,
                "action": action(change.action),
                "attributes": attributes,
                "unchanged": change.unchanged,
            })
        })
        .collect();
    let outputs = difference.outputs.iter().map(|(name, output)| {
        let sides = json!({
            "action": action(output.action),
            "before": value(&output.before),
            "after": value(&output.after),
        });
        (name.clone(), sides)
    });
    json!({
        "from": before.map(version),
        "to": version(after),
        "changes": changes,
        "outputs": outputs.collect::<serde_json::Map<_, _>>(),
    })
}

fn action(action: ChangeAction) -> &'static str {
    match action {
        ChangeAction::Create => "added",
        ChangeAction::Delete | ChangeAction::Forget => "removed",
        ChangeAction::DeleteCreate | ChangeAction::CreateDelete => "replaced",
        ChangeAction::NoOp | ChangeAction::Read | ChangeAction::Update => "changed",
    }
}
