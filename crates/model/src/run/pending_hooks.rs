//! Whether post-apply hooks are pending. An apply that happened gets its hooks, even if its runner was lost.

use super::{RunEvent, Stage};

/// Reads the events of a run, oldest first.
pub fn owes_hooks<'a>(events: impl IntoIterator<Item = &'a RunEvent>) -> bool {
    let (mut is_begun, mut owes) = (false, false);
    for event in events {
        match event {
            RunEvent::ApplyStarted => is_begun = true,
            // The progress of the lost apply is unknown.
            RunEvent::RunnerLost { .. } if is_begun => (is_begun, owes) = (false, true),
            RunEvent::ApplyFinished { then, .. } | RunEvent::NothingToChange { then, .. } => {
                is_begun = false;
                owes = *then == Some(Stage::Applying);
            }
            RunEvent::StageFinished {
                part: Stage::Applying,
                ..
            } => owes = false,
            // Hooks after a failed apply ran immediately. Hooks that failed themselves run again.
            RunEvent::Failed { .. } if is_begun => (is_begun, owes) = (false, false),
            RunEvent::PlanVoided { .. } | RunEvent::ApplyPutOff { .. } => is_begun = false,
            RunEvent::PlanStarted
            | RunEvent::PreviewStarted { .. }
            | RunEvent::Previewed { .. }
            | RunEvent::NothingConsumed { .. }
            | RunEvent::PlanFinished { .. }
            | RunEvent::Deferred { .. }
            | RunEvent::PolicyAsked { .. }
            | RunEvent::Confirmed
            | RunEvent::StageStarted { .. }
            | RunEvent::StageFinished { .. }
            | RunEvent::Failed { .. }
            | RunEvent::Skipped { .. }
            | RunEvent::RunnerLost { .. }
            | RunEvent::CancelAsked { .. }
            | RunEvent::Reopened { .. } => {}
        }
    }
    owes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanCounts;
    use crate::run::RunProblem;

    #[track_caller]
    fn check(expected: bool, events: &[RunEvent]) {
        assert_eq!(owes_hooks(events), expected, "{events:?}");
    }

    #[test]
    fn hooks_are_owed_until_they_ran() {
        let started = || RunEvent::ApplyStarted;
        let lost = || RunEvent::RunnerLost {
            kept: None,
            left: None,
        };
        let applied = |then| RunEvent::ApplyFinished {
            counts: PlanCounts::default(),
            serial: None,
            lineage: None,
            then,
        };
        let unchanged = |then| RunEvent::NothingToChange {
            consumed: None,
            came_after: None,
            serial: None,
            lineage: None,
            then,
        };
        let failed = || RunEvent::Failed {
            problem: RunProblem::new(Stage::Applying, "no"),
        };
        let ran = || RunEvent::StageFinished {
            part: Stage::Applying,
            report: serde_json::Value::Null,
            changed: None,
            then: None,
        };
        let hooks = Some(Stage::Applying);
        check(false, &[lost()]);
        check(true, &[started(), lost()]);
        check(false, &[started(), failed()]);
        check(true, &[started(), applied(hooks)]);
        check(true, &[started(), applied(hooks), failed()]);
        check(false, &[started(), applied(hooks), ran()]);
        check(false, &[started(), applied(Some(Stage::Publishing))]);
        check(true, &[started(), lost(), unchanged(hooks), failed()]);
        check(false, &[started(), lost(), unchanged(hooks), ran()]);
    }
}
