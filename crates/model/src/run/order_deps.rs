//! The digests, at plan time, of the states of a run's `order` upstreams, read from the run's events.

use std::collections::BTreeMap;

use super::RunEvent;

/// The digests recorded with the last plan that was applied or had nothing to change. Takes the events of the run,
/// oldest first. None if there is no such plan, the stack has no `order` upstream, or the plan predates this record.
pub fn came_after<'a>(
    events: impl IntoIterator<Item = &'a RunEvent>,
) -> Option<&'a BTreeMap<String, String>> {
    let (mut planned, mut found) = (None, None);
    for event in events {
        match event {
            RunEvent::PlanFinished { plan, .. } => planned = plan.came_after.as_ref(),
            RunEvent::ApplyFinished { .. } => found = planned,
            RunEvent::NothingToChange { came_after, .. } => found = came_after.as_ref(),
            RunEvent::PlanStarted
            | RunEvent::PreviewStarted { .. }
            | RunEvent::Previewed { .. }
            | RunEvent::NothingConsumed { .. }
            | RunEvent::Deferred { .. }
            | RunEvent::PolicyAsked { .. }
            | RunEvent::Confirmed
            | RunEvent::ApplyStarted
            | RunEvent::PlanVoided { .. }
            | RunEvent::ApplyPutOff { .. }
            | RunEvent::StageStarted { .. }
            | RunEvent::StageFinished { .. }
            | RunEvent::Failed { .. }
            | RunEvent::Skipped { .. }
            | RunEvent::RunnerLost { .. }
            | RunEvent::CancelAsked { .. }
            | RunEvent::Reopened { .. } => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::PlanCounts;
    use crate::policy::Verdict;
    use crate::run::PlanRecord;
    use crate::run::seal::Seal;

    fn states(held: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("base".to_owned(), held.to_owned())])
    }

    fn planned(held: Option<&str>) -> RunEvent {
        let plan = PlanRecord {
            counts: PlanCounts::default(),
            destroys: false,
            outputs: BTreeSet::new(),
            seal: Box::new(Seal {
                source: String::new(),
                head: None,
                inputs: String::new(),
                each_input: BTreeMap::new(),
                engine: String::new(),
                lock_file: None,
            }),
            preview: false,
            policy: Verdict::default(),
            policy_since: BTreeMap::new(),
            difference: None,
            since: None,
            consumed: Some("consumed".to_owned()),
            came_after: held.map(states),
        };
        RunEvent::PlanFinished {
            plan,
            confirmed: true,
            review: false,
            reason: None,
            is_equal: None,
            new: Vec::new(),
        }
    }

    fn unchanged(held: Option<&str>) -> RunEvent {
        RunEvent::NothingToChange {
            consumed: Some("consumed".to_owned()),
            came_after: held.map(states),
            serial: None,
            lineage: None,
            then: None,
        }
    }

    fn applied() -> RunEvent {
        RunEvent::ApplyFinished {
            counts: PlanCounts::default(),
            serial: None,
            lineage: None,
            then: None,
        }
    }

    #[track_caller]
    fn check(expected: Option<&str>, events: &[RunEvent]) {
        assert_eq!(
            came_after(events),
            expected.map(states).as_ref(),
            "{events:?}"
        );
    }

    #[test]
    fn what_counts_is_the_plan_that_was_applied_or_found_nothing() {
        check(None, &[]);
        check(Some("a"), &[unchanged(Some("a"))]);
        check(Some("a"), &[planned(Some("a")), applied()]);
        let voided = RunEvent::PlanVoided { why: String::new() };
        let again = [planned(Some("a")), voided, planned(Some("b")), applied()];
        check(Some("b"), &again);
    }

    #[test]
    fn a_plan_that_nobody_applied_says_nothing() {
        check(None, &[planned(Some("a"))]);
        let reopened = RunEvent::Reopened { moved: true };
        let events = [planned(Some("a")), applied(), reopened, planned(Some("b"))];
        check(Some("a"), &events);
    }

    #[test]
    fn older_records_say_nothing() {
        check(None, &[planned(None), applied()]);
        let older = r#"{"event":"nothing_to_change","consumed":"consumed","serial":1}"#;
        let older: RunEvent = serde_json::from_str(older).unwrap();
        assert_eq!(
            older,
            RunEvent::NothingToChange {
                consumed: Some("consumed".to_owned()),
                came_after: None,
                serial: Some(1),
                lineage: None,
                then: None,
            }
        );
        check(None, &[older]);
        // Nothing is added to the records of stacks without `order` upstreams.
        let text = serde_json::to_string(&unchanged(None)).unwrap();
        assert!(!text.contains("came_after"), "{text}");
    }
}
