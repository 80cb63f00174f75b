//! Holds, and what was done by hand, said wherever they bear on what is shown.

use std::collections::BTreeSet;
use std::time::Duration;

use control::in_force::InForce;
use jiff::Timestamp;
use model::break_glass::BreakGlass;
use model::hold::Hold;
use model::state::StateName;

use super::duration;
use super::table::Table;
use super::text::{clean, count};

/// Each in one line; of several acts only that they are there.
pub(crate) fn lines(in_force: &InForce) -> Vec<String> {
    let held = |hold: &Hold| format!("{} is {}", hold.on.words(), hold.words());
    let by_hand = |act: &BreakGlass| {
        format!(
            "`{}`: {} by `{}`, open until an apply or destroy of it ends well: {}",
            act.state.name,
            act.act.words(),
            act.actor,
            reason(act)
        )
    };
    let acts = match in_force.acts.as_slice() {
        [] => None,
        [act] => Some(by_hand(act)),
        acts => {
            let states: BTreeSet<&StateName> = acts.iter().map(|act| &act.state).collect();
            Some(format!(
                "{} by hand of {} are open until an apply of each ends well: `terrane run list --open` shows them",
                count(acts.len(), "act"),
                count(states.len(), "state"),
            ))
        }
    };
    let holds = in_force.holds.iter().map(held);
    let lines = holds.chain(acts);
    lines.map(|line| clean(&line).into_owned()).collect()
}

pub(crate) fn holds(holds: &[Hold]) -> Table {
    let mut table = Table::new(["HELD", "BY", "UNTIL", "WHY"]);
    for hold in holds {
        table.row([
            hold.on.words().replace('`', ""),
            hold.person.clone(),
            hold.until.strftime("%Y-%m-%d %H:%M UTC").to_string(),
            hold.reason.clone(),
        ]);
    }
    table
}

pub(crate) fn acts(acts: &[BreakGlass], now: Timestamp) -> Table {
    let mut table = Table::new(["BY HAND", "ACT", "BY", "WHEN", "WHY"]);
    for act in acts {
        let ago = Duration::try_from(now.duration_since(act.at)).unwrap_or_default();
        table.row([
            act.state.name.clone(),
            act.act.words().to_owned(),
            act.actor.clone(),
            duration::ago(ago),
            format!("{} ({})", reason(act), act.detail),
        ]);
    }
    table
}

fn reason(act: &BreakGlass) -> &str {
    act.reason.as_deref().unwrap_or("no reason was given yet")
}
