//! The order of gates: which can be checked now, and which never will be.

use std::collections::BTreeMap;

use super::settings::GateSettingError;
use super::{Gate, GateVerdict};

/// Whether a gate may be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateReadiness {
    Ready,
    /// Waits for this gate.
    Waits(String),
    Stopped(BlockingGate),
}

/// The gate will never be checked, because this gate did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockingGate {
    pub after: String,
}

impl Gate {
    /// Whether the gate can be checked, given the gates that have ended so far.
    pub fn standing(&self, all: &[Self], ended: &BTreeMap<String, GateVerdict>) -> GateReadiness {
        let mut waits = None;
        for before in self.before(all) {
            match ended.get(&before.name) {
                Some(verdict) if verdict.lets_on() => {}
                Some(_) => {
                    let after = before.name.clone();
                    return GateReadiness::Stopped(BlockingGate { after });
                }
                None => waits = waits.or_else(|| Some(before.name.clone())),
            }
        }
        waits.map_or(GateReadiness::Ready, GateReadiness::Waits)
    }

    fn before<'a>(&'a self, all: &'a [Self]) -> impl Iterator<Item = &'a Self> {
        all.iter().filter(|gate| {
            let mut names = self.after.iter();
            names.any(|name| *name == gate.name || *name == gate.group)
        })
    }
}

/// Finds gates in a cycle and duplicate names. If a gate comes after a group whose `for_each` is empty, it has nothing
/// to wait for. Unknown names are found before anything runs.
pub(super) fn check(gates: &[Gate]) -> Vec<GateSettingError> {
    let mut wrong = Vec::new();
    for (at, gate) in gates.iter().enumerate() {
        if gates[..at].iter().any(|other| other.name == gate.name) {
            wrong.push(GateSettingError::new(gate, "two gates have this name"));
        }
    }
    if !wrong.is_empty() {
        return wrong;
    }
    // Removes gates that could be checked, until nothing changes.
    let mut ended: BTreeMap<String, GateVerdict> = BTreeMap::new();
    loop {
        let ready = gates.iter().find(|gate| {
            !ended.contains_key(&gate.name) && gate.standing(gates, &ended) == GateReadiness::Ready
        });
        match ready {
            Some(gate) => ended.insert(gate.name.clone(), GateVerdict::Passed),
            None => break,
        };
    }
    let left = gates.iter().filter(|gate| !ended.contains_key(&gate.name));
    wrong.extend(left.map(|gate| {
        let names: Vec<String> = gate.after.iter().map(|name| format!("`{name}`")).collect();
        let message = format!("`after`: it waits for itself, through {}", names.join(", "));
        GateSettingError::new(gate, message)
    }));
    wrong
}
