//! Periodic messages about gates that have not passed, for output without a live view.

use std::collections::BTreeMap;

use model::stage::gate::Gate;

use super::GateEvent;
use crate::program_output::progress_interval::ProgressInterval;

/// How many gates are named.
const NAMED: usize = 3;

/// The gates of a stack that have not passed yet, with their last results.
#[derive(Clone, Debug)]
pub struct OpenGates {
    cadence: ProgressInterval,
    open: BTreeMap<String, Option<String>>,
}

impl OpenGates {
    pub fn of(gates: &[Gate]) -> Self {
        Self {
            cadence: ProgressInterval::begin(),
            open: gates.iter().map(|gate| (gate.name.clone(), None)).collect(),
        }
    }

    pub fn hear(&mut self, event: &GateEvent) {
        match event {
            GateEvent::Began { .. } => {}
            GateEvent::Looked { gate, said, .. } => {
                self.open.insert(gate.clone(), Some(said.clone()));
            }
            GateEvent::Ended(report) if report.verdict.lets_on() => {
                self.open.remove(&report.name);
            }
            GateEvent::Ended(report) => {
                let said = format!("failed: {}", report.verdict.brief());
                self.open.insert(report.name.clone(), Some(said));
            }
        }
    }

    /// Waits until the next message is due; forever if nothing is missing.
    pub async fn due(&self) {
        if self.open.is_empty() {
            std::future::pending::<()>().await;
        } else {
            self.cadence.due().await;
        }
    }

    /// ``still waits after 40 s for `open` (test: exit code 1) and 4 more gates``, if a message is due.
    pub fn words(&mut self) -> Option<String> {
        if self.open.is_empty() {
            return None;
        }
        let seconds = self.cadence.tick()?;
        let shown = self.open.iter().take(NAMED).map(|(name, said)| match said {
            Some(said) => format!("`{name}` ({said})"),
            None => format!("`{name}`"),
        });
        let shown: Vec<String> = shown.collect();
        let more = match self.open.len().saturating_sub(NAMED) {
            0 => String::new(),
            1 => " and 1 more gate".to_owned(),
            more => format!(" and {more} more gates"),
        };
        Some(format!(
            "still waits after {seconds} s for {}{more}",
            shown.join(", ")
        ))
    }
}
