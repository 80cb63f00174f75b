//! Settings, verdicts and order, as data.

mod judging;
mod reading;

use serde_json::{Value, json};

use super::*;

fn block(kind: &str, name: &str, attrs: Value) -> ResolvedBlock {
    let Value::Object(attrs) = attrs else {
        panic!("attributes are an object");
    };
    ResolvedBlock {
        kind: kind.to_owned(),
        name: name.to_owned(),
        each: None,
        attrs,
        blocks: Vec::new(),
        sensitive: std::collections::BTreeSet::new(),
        at: Location::default(),
    }
}

fn gate(kind: &str, attrs: Value) -> Gate {
    let mut gates = Gate::read_all(&[block(kind, "it", attrs)]).unwrap();
    gates.remove(0)
}

/// The result of a check as shown to people.
fn shown(look: &CheckResult) -> String {
    match &look.verdict {
        GateVerdict::Passed => "passed".to_owned(),
        GateVerdict::CannotLook { why } => format!("cannot look: {why}"),
        GateVerdict::NotTried { after } => format!("not tried, after {after}"),
        GateVerdict::Skipped { by, reason } => format!("skipped by {by}: {reason}"),
        GateVerdict::Failed { misses } => {
            let line = |miss: &GateMismatch| {
                let also = miss.also.as_ref().map(|also| format!(" | {also}"));
                format!(
                    "{} | {} | {}{}",
                    miss.subject,
                    miss.expected,
                    miss.seen,
                    also.unwrap_or_default()
                )
            };
            misses.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    }
}

fn at(text: &str) -> jiff::Timestamp {
    text.parse().unwrap()
}
