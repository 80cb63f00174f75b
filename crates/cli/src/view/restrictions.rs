//! Holds, open break-glass records and quarantined states, printed wherever they affect what is shown.

use std::collections::BTreeSet;
use std::time::Duration;

use control::changeset::restrictions::{ClosedBy, ENDS_WELL, Restrictions};
use jiff::Timestamp;
use model::base::ids::{BreakGlassId, RunId};
use model::project::Project;
use model::run::hold::Hold;
use model::state::StateName;
use model::state::break_glass::BreakGlass;
use serde_json::{Value, json};

use super::actors;
use super::duration;
use super::table::Table;
use super::text::{clean, count};

/// One line each; several break-glass records are only counted.
pub(crate) fn lines(in_force: &Restrictions) -> Vec<String> {
    let held = |hold: &Hold| format!("{} is {}", hold.on.words(), hold.words());
    let closing = |act: &BreakGlass| in_force.closing(act, None);
    let by_hand = |act: &BreakGlass| {
        let done = format!(
            "`{}`: {} by `{}`, open",
            in_force.name(&act.state),
            act.act.words(),
            act.actor
        );
        let explain = explain(&BreakGlassId(act.id).to_string());
        let reason = reason(act);
        match closing(act) {
            ClosedBy::Run => {
                format!("{done} until its next successful apply or destroy: {reason}")
            }
            ClosedBy::ReasonThenRun => format!("{done}: {reason}, {explain} adds it"),
            ClosedBy::Explanation => format!("{done} until {explain} closes it: {reason}"),
        }
    };
    let acts = match in_force.acts.as_slice() {
        [] => None,
        [act] => Some(by_hand(act)),
        acts => {
            let states: BTreeSet<&StateName> = acts.iter().map(|act| &act.state).collect();
            let (acts_of, states) = (
                count(acts.len(), "break-glass action"),
                count(states.len(), "state"),
            );
            let shown = if acts.iter().all(|act| closing(act) == ClosedBy::Run) {
                "until the next successful apply of each: `terrane run list --open` shows them"
            } else {
                "still: `terrane run list --open` shows them and what closes each"
            };
            Some(format!("{acts_of} on {states} are open {shown}"))
        }
    };
    let kept = in_force.kept.iter().map(|one| {
        let state = in_force.name(&one.state);
        format!(
            "`{state}`: run {} left a quarantined state ({}); nothing is applied before {}",
            one.run,
            one.why,
            decide(&state, one.run)
        )
    });
    let holds = in_force.holds.iter().map(held);
    let lines = holds.chain(acts).chain(kept);
    lines.map(|line| clean(&line).into_owned()).collect()
}

pub(crate) fn holds(holds: &[Hold]) -> Table {
    let mut table = Table::new(["HELD", "BY", "UNTIL", "WHY"]);
    for hold in holds {
        table.row([
            hold.on.words().replace('`', ""),
            hold.person.name.clone(),
            hold.until.strftime("%Y-%m-%d %H:%M UTC").to_string(),
            hold.reason.clone(),
        ]);
    }
    table
}

/// Quarantined states, and how to decide about each.
pub(crate) fn kept(
    in_force: &Restrictions,
    now: Timestamp,
    at_home: impl Fn(&str) -> String,
) -> Table {
    let mut table = Table::new(["QUARANTINED", "RUN", "WHEN", "WHY", "NEXT STEP"]);
    for one in &in_force.kept {
        let ago = Duration::try_from(now.duration_since(one.at)).unwrap_or_default();
        let state = in_force.name(&one.state);
        table.row([
            state.clone(),
            one.run.to_string(),
            duration::ago(ago),
            one.why.clone(),
            at_home(&decide(&state, one.run)),
        ]);
    }
    table
}

/// The two options: push or discard.
fn decide(state: &str, run: RunId) -> String {
    format!(
        "`terrane state push {state} --kept {run} --reason …` or `terrane run discard {run} --reason …`"
    )
}

/// Open break-glass records. `at_home` adds the named home to commands.
pub(crate) fn acts(
    in_force: &Restrictions,
    now: Timestamp,
    at_home: impl Fn(&str) -> String,
) -> Table {
    let mut table = Table::new(["RECORD", "STATE", "ACTION", "BY", "WHEN", "WHY"]);
    for act in &in_force.acts {
        let ago = Duration::try_from(now.duration_since(act.at)).unwrap_or_default();
        let id = BreakGlassId(act.id);
        let missing = match act.reason {
            Some(_) => String::new(),
            None => at_home(&format!(": {}", explain(&id.to_string()))),
        };
        table.row([
            id.to_string(),
            in_force.name(&act.state),
            act.act.words().to_owned(),
            act.actor.name.clone(),
            duration::ago(ago),
            format!("{}{missing} ({})", reason(act), act.detail),
        ]);
    }
    table
}

/// What closes the records, one sentence for each way.
pub(crate) fn closings(in_force: &Restrictions, project: Option<&Project>) -> Vec<String> {
    let closed_by = |closing: ClosedBy| -> Vec<String> {
        let acts = in_force.acts.iter();
        let acts = acts.filter(|act| in_force.closing(act, project) == closing);
        acts.map(|act| BreakGlassId(act.id).to_string()).collect()
    };
    let command = |ids: &[String]| match ids {
        [id] => explain(id),
        _ => explain("ID"),
    };
    let run = closed_by(ClosedBy::Run);
    if run.len() == in_force.acts.len() {
        return vec![format!("Each closes when {ENDS_WELL}.")];
    }
    let owing = closed_by(ClosedBy::ReasonThenRun);
    let explanation = closed_by(ClosedBy::Explanation);
    let sentences = [
        (&run, format!("closed when {ENDS_WELL}.")),
        (
            &owing,
            format!(
                "first add the reason with {}; then closed when {ENDS_WELL}.",
                command(&owing)
            ),
        ),
        (
            &explanation,
            format!("of no stack here; {} closes it.", command(&explanation)),
        ),
    ];
    let sentences = sentences.iter().filter(|(ids, _)| !ids.is_empty());
    let sentences = sentences.map(|(ids, words)| format!("{}: {words}", ids.join(", ")));
    sentences.collect()
}

/// A record as data, with the id that users see.
pub(crate) fn document(act: &BreakGlass) -> Value {
    let mut document = actors::by_name(json!(act));
    document["id"] = json!(BreakGlassId(act.id));
    document
}

/// All open records as data, with what closes each.
pub(crate) fn documents(in_force: &Restrictions, project: Option<&Project>) -> Vec<Value> {
    let with_closing = |act: &BreakGlass| {
        let mut document = document(act);
        document["closed_by"] = json!(in_force.closing(act, project));
        document
    };
    in_force.acts.iter().map(with_closing).collect()
}

fn explain(id: &str) -> String {
    format!("`terrane run explain {id} --reason …`")
}

fn reason(act: &BreakGlass) -> &str {
    act.reason.as_deref().unwrap_or("no reason was given yet")
}
