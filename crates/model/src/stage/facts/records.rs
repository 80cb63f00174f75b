//! Break-glass records on a facts branch: those of this home, beside those of the project's other homes.

use serde_json::{Value, json};

use crate::state::break_glass::BreakGlass;

/// The new file. `there` are its current bytes; records of other homes are kept.
pub fn records(there: Option<&[u8]>, acts: &[BreakGlass]) -> Vec<u8> {
    let own: Vec<Value> = acts.iter().map(document).collect();
    let there: Option<Value> = there.and_then(|bytes| serde_json::from_slice(bytes).ok());
    let there = there
        .as_ref()
        .and_then(|it| it.get("break_glass")?.as_array());
    let is_own = |one: &&Value| own.iter().any(|known| identity(known) == identity(one));
    let others = there.into_iter().flatten().filter(|one| !is_own(one));
    let mut all: Vec<Value> = others.cloned().collect();
    all.extend(own.iter().cloned());
    all.sort_by_key(|one| text(one, "at").to_owned());
    let mut bytes = serde_json::to_vec_pretty(&json!({ "break_glass": all })).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn document(act: &BreakGlass) -> Value {
    json!({
        "act": act.act.words(),
        "state": act.state.name,
        "actor": act.actor.name,
        "reason": act.reason,
        "detail": act.detail,
        "at": act.at.to_string(),
        "closed_at": act.closed_at.map(|at| at.to_string()),
    })
}

/// What identifies a record.
fn identity(act: &Value) -> [&str; 4] {
    ["act", "state", "actor", "at"].map(|name| text(act, name))
}

fn text<'a>(act: &'a Value, name: &str) -> &'a str {
    act.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::actor::Actor;
    use crate::state::StateName;
    use crate::state::break_glass::BreakGlassAction;

    #[test]
    fn acts_of_other_homes_stay_and_own_ones_are_closed() {
        let act = |minute: u8, actor: &str, closed: bool| BreakGlass {
            id: 1,
            act: BreakGlassAction::LockBroken,
            state: StateName::new("p", "net"),
            actor: Actor::named(actor),
            reason: Some("why".to_owned()),
            detail: "lock `a`".to_owned(),
            at: format!("2026-01-10T12:{minute:02}:00Z").parse().unwrap(),
            closed_at: closed.then(|| "2026-01-11T12:00:00Z".parse().unwrap()),
        };
        let theirs = records(None, &[act(5, "ci", false)]);
        let both = records(Some(&theirs), &[act(3, "me", false), act(7, "me", false)]);
        let closed = records(Some(&both), &[act(3, "me", true), act(7, "me", false)]);
        let read: Value = serde_json::from_slice(&closed).unwrap();
        let said = read["break_glass"].as_array().unwrap().iter();
        let said: Vec<_> = said
            .map(|one| (text(one, "actor"), one["closed_at"].is_null()))
            .collect();
        assert_eq!(said, [("me", false), ("ci", true), ("me", true)]);
        assert_eq!(records(Some(b"no JSON"), &[]), records(None, &[]));
    }
}
