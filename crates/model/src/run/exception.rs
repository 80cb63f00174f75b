//! Emergency exceptions to the usual rules of post-apply stages: gates that are skipped, and a bootstrap that takes
//! back objects from others. They always have a reason and are always recorded.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::ids::StackName;
use crate::stage::gate::Gate;

/// Stored in `change_set.request`: fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceptions {
    /// Gates that are skipped.
    #[serde(default)]
    pub skip_gates: Vec<GateOfStack>,
    /// A bootstrap takes back objects that others manage now.
    #[serde(default)]
    pub reinstall: bool,
    pub reason: String,
}

impl Exceptions {
    /// Whether a gate of a stack is skipped, by its own name or by the name of its `for_each` group.
    pub fn skips(&self, stack: &StackName, gate: &Gate) -> bool {
        self.skip_gates
            .iter()
            .any(|one| one.stack == *stack && (one.gate == gate.name || one.gate == gate.group))
    }
}

/// A gate in the notation `STACK/GATE`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GateOfStack {
    pub stack: StackName,
    pub gate: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a gate is named as `STACK/GATE`")]
pub struct ReadGateError;

impl FromStr for GateOfStack {
    type Err = ReadGateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (stack, gate) = text.split_once('/').ok_or(ReadGateError)?;
        let stack = stack.parse().map_err(|_| ReadGateError)?;
        if gate.is_empty() {
            return Err(ReadGateError);
        }
        Ok(Self {
            stack,
            gate: gate.to_owned(),
        })
    }
}

impl std::fmt::Display for GateOfStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.stack, self.gate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_named_with_its_stack() {
        let named: GateOfStack = "k8s-prod/wildcard-dev".parse().unwrap();
        assert_eq!(named.to_string(), "k8s-prod/wildcard-dev");
        for wrong in ["wildcard", "k8s-prod/", "/wildcard", ""] {
            assert_eq!(wrong.parse::<GateOfStack>(), Err(ReadGateError));
        }
    }
}
