//! Probes against real servers on loopback.

mod dns;
mod http;
mod oidc;
mod servers;
mod tls;

use std::collections::BTreeSet;

use model::diagnostic::Location;
use model::gate::{Gate, Look, Miss, Probe, Verdict};
use model::stage::ResolvedBlock;
use serde_json::Value;

/// Long enough for a busy machine, where an answer is expected.
const LONG: std::time::Duration = std::time::Duration::from_mins(1);
/// Where none is expected.
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

/// A look as people read it.
fn shown(look: &Look) -> String {
    match &look.verdict {
        Verdict::Passed => "passed".to_owned(),
        Verdict::CannotLook { why } => format!("cannot look: {why}"),
        Verdict::Skipped { by, reason } => format!("skipped by {by}: {reason}"),
        Verdict::NotTried { after } => format!("not tried, after {after}"),
        Verdict::Failed { misses } => {
            let line =
                |miss: &Miss| format!("{} | {} | {}", miss.subject, miss.expected, miss.seen);
            misses.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    }
}
