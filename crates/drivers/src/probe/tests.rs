//! Probes against real servers on loopback.

mod dns;
mod http;
mod oidc;
mod servers;
mod tls;

use std::collections::BTreeSet;

use model::base::diagnostic::Location;
use model::stage::ResolvedBlock;
use model::stage::gate::{CheckResult, Gate, GateMismatch, GateVerdict, Probe};
use serde_json::Value;

/// For probes that expect an answer; long enough for a busy machine.
const LONG: std::time::Duration = std::time::Duration::from_mins(1);
/// For probes that expect no answer.
const SHORT: std::time::Duration = std::time::Duration::from_millis(300);

fn probe(kind: &str, attrs: Value) -> Probe {
    let Value::Object(attrs) = attrs else {
        panic!("attributes are an object");
    };
    let block = ResolvedBlock {
        kind: kind.to_owned(),
        name: "it".to_owned(),
        each: None,
        attrs,
        blocks: Vec::new(),
        sensitive: BTreeSet::new(),
        at: Location::default(),
    };
    Gate::read_all(&[block]).unwrap().remove(0).probe
}

/// A result as text.
fn shown(look: &CheckResult) -> String {
    match &look.verdict {
        GateVerdict::Passed => "passed".to_owned(),
        GateVerdict::CannotLook { why } => format!("cannot look: {why}"),
        GateVerdict::Skipped { by, reason } => format!("skipped by {by}: {reason}"),
        GateVerdict::NotTried { after } => format!("not tried, after {after}"),
        GateVerdict::Failed { misses } => {
            let line = |miss: &GateMismatch| {
                format!("{} | {} | {}", miss.subject, miss.expected, miss.seen)
            };
            misses.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    }
}
