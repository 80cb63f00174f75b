//! Carries out gates: all at once, each after those that it waits for, repeatedly until it passes or its time
//! is over. Progress is reported as it happens; evidence is kept for passed gates too.
//!
//! Gates do not have a thread each: a waiting gate takes a few hundred bytes. Not here: when to check again
//! (`model::stage::gate`), the checks (`drivers::probe`).

mod check;
mod clusters;
mod open_gates;
mod stack;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drivers::kubernetes::ClusterClients;
use drivers::probe::Probes;
use drivers::process::Environment;
use jiff::Timestamp;
use model::base::masking::Mask;
use model::stage::gate::{
    BlockingGate, CheckResult, Gate, GateReadiness, GateReport, GateVerdict, NextCheck, mask_report,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

pub use open_gates::OpenGates;
pub use stack::{GateProblem, StackGates, StackGatesError, asked, of_stack, read};

/// The context that gates share.
#[derive(Clone, Debug)]
pub struct GateContext {
    /// The project's files: programs of `command` gates run there.
    pub dir: PathBuf,
    /// The environment of such a program, in addition to its gate's `env`.
    pub env: Environment,
    /// Masks the secrets of the user who runs the gates.
    pub mask: Mask,
    /// Check once, instead of until a gate's time is over.
    pub once: bool,
    /// Gates that need not pass, by name, and who skipped them.
    pub skipped: BTreeMap<String, SkippedGate>,
}

/// The person who skipped a gate, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedGate {
    pub by: String,
    pub reason: String,
}

/// Progress of gates, reported as it happens. Contains no secret.
#[derive(Clone, Debug, PartialEq)]
pub enum GateEvent {
    Began {
        gate: String,
    },
    /// The gate did not pass, and will be checked again.
    Looked {
        gate: String,
        tries: u32,
        said: String,
        again_in: Duration,
    },
    Ended(Box<GateReport>),
}

/// Runs the gates to their end and returns a report for each, in their order. Dropping the future stops all
/// of them.
pub async fn run(
    gates: Vec<Gate>,
    around: GateContext,
    events: &UnboundedSender<GateEvent>,
) -> Vec<GateReport> {
    let work = Arc::new(GateRunner {
        probes: Probes::new(),
        clusters: ClusterClients::new(around.env.clone(), &around.dir),
        around,
        events: events.clone(),
    });
    let mut watching = JoinSet::new();
    let mut started = BTreeMap::new();
    let mut ended: BTreeMap<String, GateVerdict> = BTreeMap::new();
    let mut reports: BTreeMap<String, GateReport> = BTreeMap::new();
    loop {
        let mut moved = false;
        for gate in &gates {
            if reports.contains_key(&gate.name) || started.values().any(|name| *name == gate.name) {
                continue;
            }
            if let Some(skipped) = work.around.skipped.get(&gate.name) {
                moved = true;
                let SkippedGate { by, reason } = skipped.clone();
                let report = never_tried(gate, GateVerdict::Skipped { by, reason });
                work.tell(GateEvent::Ended(Box::new(report.clone())));
                ended.insert(gate.name.clone(), report.verdict.clone());
                reports.insert(gate.name.clone(), report);
                continue;
            }
            match gate.standing(&gates, &ended) {
                GateReadiness::Waits(_) => {}
                GateReadiness::Ready => {
                    let watch = watch(gate.clone(), Arc::clone(&work));
                    started.insert(watching.spawn(watch).id(), gate.name.clone());
                }
                GateReadiness::Stopped(BlockingGate { after }) => {
                    moved = true;
                    let report = never_tried(gate, GateVerdict::NotTried { after });
                    work.tell(GateEvent::Ended(Box::new(report.clone())));
                    ended.insert(gate.name.clone(), report.verdict.clone());
                    reports.insert(gate.name.clone(), report);
                }
            }
        }
        if moved {
            continue;
        }
        let Some(done) = watching.join_next_with_id().await else {
            break;
        };
        let id = match &done {
            Ok((id, _)) => *id,
            Err(err) => err.id(),
        };
        let Some(name) = started.get(&id).cloned() else {
            continue;
        };
        let report = if let Ok((_, report)) = done {
            report
        } else {
            let Some(gate) = gates.iter().find(|gate| gate.name == name) else {
                continue;
            };
            let why = "the probe itself broke: this is a mistake of terrane".to_owned();
            never_tried(gate, GateVerdict::CannotLook { why })
        };
        work.tell(GateEvent::Ended(Box::new(report.clone())));
        ended.insert(name.clone(), report.verdict.clone());
        reports.insert(name, report);
    }
    let in_order = gates.iter().filter_map(|gate| reports.remove(&gate.name));
    in_order.collect()
}

struct GateRunner {
    probes: Probes,
    clusters: ClusterClients,
    around: GateContext,
    events: UnboundedSender<GateEvent>,
}

impl GateRunner {
    fn tell(&self, event: GateEvent) {
        // A closed channel loses nothing: the reports contain everything.
        drop(self.events.send(event));
    }
}

async fn watch(gate: Gate, work: Arc<GateRunner>) -> GateReport {
    let schedule = if work.around.once {
        gate.schedule.once()
    } else {
        gate.schedule
    };
    let start = Instant::now();
    let began = Timestamp::now();
    work.tell(GateEvent::Began {
        gate: gate.name.clone(),
    });
    let mut tries = 0;
    let mut last: Option<(CheckResult, Timestamp)> = None;
    loop {
        // The first check has the gate's whole time.
        let look_began = if tries == 0 {
            Duration::ZERO
        } else {
            start.elapsed()
        };
        let at = Timestamp::now();
        let limit = gate.look_limit(schedule.timeout.saturating_sub(look_began));
        let begun = Instant::now();
        let mut look = check::look(&gate, &work.probes, &work.clusters, &work.around, limit).await;
        tries += 1;
        let was_cut = !look.verdict.is_pass() && begun.elapsed() >= limit;
        let since = match last.take() {
            // The time limit cut this check short: the previous result is more useful.
            Some((before, since)) if was_cut && gate.is_short(limit) => {
                look = before;
                since
            }
            Some((before, since)) if before.verdict.is_like(&look.verdict) => since,
            Some(_) | None => at,
        };
        let CheckResult { verdict, evidence } = look;
        let next = if verdict.is_pass() {
            None
        } else {
            match schedule.next(tries, look_began, start.elapsed()) {
                NextCheck::LookAt(next) => Some(start + next),
                NextCheck::FailAt(_) => None,
            }
        };
        let Some(next) = next else {
            let is_pass = verdict.is_pass();
            let report = GateReport {
                name: gate.name.clone(),
                kind: gate.kind().to_owned(),
                verdict,
                tries,
                began,
                ended: Timestamp::now(),
                since: (!is_pass).then_some(since),
                evidence,
                look_further: if is_pass {
                    Vec::new()
                } else {
                    gate.look_further()
                },
            };
            return mask_report(&report, gate.unmaskable, &[&gate.mask, &work.around.mask]);
        };
        let said = if gate.unmaskable {
            "not yet".to_owned()
        } else {
            let said = gate.mask.mask_text(&verdict.brief());
            work.around.mask.mask_text(&said)
        };
        work.tell(GateEvent::Looked {
            gate: gate.name.clone(),
            tries,
            said,
            again_in: next.saturating_duration_since(Instant::now()),
        });
        last = Some((CheckResult { verdict, evidence }, since));
        sleep_until(next).await;
    }
}

fn never_tried(gate: &Gate, verdict: GateVerdict) -> GateReport {
    let now = Timestamp::now();
    GateReport {
        name: gate.name.clone(),
        kind: gate.kind().to_owned(),
        verdict,
        tries: 0,
        began: now,
        ended: now,
        since: None,
        evidence: None,
        look_further: Vec::new(),
    }
}
