//! Stories of small change sets, and long random ones that must never get stuck.

use std::collections::BTreeSet;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::changeset::Request;
use crate::ids::ChangeSetId;
use crate::plan::PlanCounts;
use crate::run::{PlanRecord, Problem, Seal, Stage, Upstream, advance};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// `"b<a:x"` is stack b, which takes output x of a; `"c<a"` merely comes after a.
fn change_set(action: Action, stacks: &[&str]) -> (ChangeSet, Vec<Run>) {
    let runs: Vec<Run> = (1..)
        .zip(stacks)
        .map(|(number, text)| {
            let (name, needs) = text.split_once('<').unwrap_or((text, ""));
            let upstreams = needs
                .split(',')
                .filter(|need| !need.is_empty())
                .map(|need| {
                    let (stack, output) = need.split_once(':').unwrap_or((need, ""));
                    Upstream {
                        stack: stack.parse().unwrap(),
                        outputs: Some(output.to_owned())
                            .filter(|o| !o.is_empty())
                            .into_iter()
                            .collect(),
                    }
                });
            Run {
                id: RunId(number),
                change_set: ChangeSetId(1),
                stack: name.parse().unwrap(),
                state: RunState::Queued,
                upstreams: upstreams.collect(),
            }
        })
        .collect();
    let request = Request {
        project: "p".to_owned(),
        machine: String::new(),
        action,
        stacks: runs.iter().map(|run| run.stack.clone()).collect(),
        auto_approve: false,
        parallelism: 2,
        lanes: vec!["local".to_owned()],
        source: String::new(),
        commit: None,
        subject: None,
        dirty: false,
        asker: None,
        policy_override: None,
    };
    (
        ChangeSet {
            id: ChangeSetId(1),
            request,
            status: Status::Planning,
            created_at: NOW,
        },
        runs,
    )
}

fn record(outputs: &[&str], destroys: bool) -> PlanRecord {
    PlanRecord {
        counts: PlanCounts {
            create: 1,
            ..PlanCounts::default()
        },
        destroys,
        outputs: outputs.iter().map(|&name| name.to_owned()).collect(),
        seal: Seal {
            source: String::new(),
            head: None,
            inputs: String::new(),
            engine: String::new(),
        },
        preview: false,
        policy: crate::policy::Verdict::default(),
    }
}

fn problem() -> Problem {
    Problem {
        stage: Stage::Applying,
        message: "no".to_owned(),
        diagnostics: Vec::new(),
        serial: None,
        hint: None,
        refused: false,
        interrupted: false,
        policy: crate::policy::Verdict::default(),
    }
}

/// Commits steps until there are none, as the store does; returns what was started.
fn settle(set: &mut ChangeSet, runs: &mut [Run]) -> Vec<String> {
    let mut started = Vec::new();
    loop {
        let steps = next(set, runs);
        if steps.is_empty() {
            return started;
        }
        for step in steps {
            let (id, event) = match step {
                Step::Become(status) => {
                    set.status = status;
                    continue;
                }
                Step::StartPlan(id) => (id, RunEvent::PlanStarted),
                Step::StartApply(id) => (id, RunEvent::ApplyStarted),
                Step::Record(id, event) => (id, event),
            };
            let run = runs.iter_mut().find(|run| run.id == id).unwrap();
            match event {
                RunEvent::PlanStarted => started.push(format!("plan {}", run.stack)),
                RunEvent::ApplyStarted => started.push(format!("apply {}", run.stack)),
                _ => {}
            }
            run.state = advance(&run.state, event, NOW).unwrap();
        }
    }
}

fn happen(runs: &mut [Run], stack: &str, event: RunEvent) {
    let run = runs
        .iter_mut()
        .find(|run| run.stack.as_str() == stack)
        .unwrap();
    run.state = advance(&run.state, event, NOW).unwrap();
}

fn planned(outputs: &[&str]) -> RunEvent {
    RunEvent::PlanFinished {
        plan: record(outputs, false),
        confirmed: true,
        review: false,
    }
}

fn applied() -> RunEvent {
    RunEvent::ApplyFinished {
        counts: PlanCounts::default(),
        serial: None,
    }
}

fn words(runs: &[Run]) -> String {
    let words: Vec<String> = runs
        .iter()
        .map(|run| format!("{} {}", run.stack, run.state.word()))
        .collect();
    words.join(", ")
}

#[test]
fn a_dependent_is_planned_only_when_its_values_are_real() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x"]);
    assert_eq!(settle(&mut set, &mut runs), ["plan a"]);
    happen(&mut runs, "a", planned(&["x"]));
    assert!(settle(&mut set, &mut runs).is_empty());
    assert_eq!(set.status, Status::AwaitingConfirm);
    set.status = Status::Confirmed;
    assert_eq!(settle(&mut set, &mut runs), ["apply a"]);
    happen(&mut runs, "a", applied());
    assert_eq!(settle(&mut set, &mut runs), ["plan b"]);
    happen(&mut runs, "b", planned(&[]));
    assert_eq!(settle(&mut set, &mut runs), ["apply b"]);
    happen(&mut runs, "b", applied());
    settle(&mut set, &mut runs);
    assert_eq!(set.status, Status::Finished);
}

#[test]
fn an_unchanged_upstream_defers_nobody() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x"]);
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", RunEvent::NothingToChange);
    assert_eq!(settle(&mut set, &mut runs), ["plan b"]);
}

#[test]
fn a_review_defers_what_needs_a_changed_output_and_plans_the_rest() {
    let (mut set, mut runs) = change_set(Action::Plan, &["a", "b<a:x", "c<a:y", "d<a", "e<b:z"]);
    assert_eq!(settle(&mut set, &mut runs), ["plan a", "plan d"]);
    let review = RunEvent::PlanFinished {
        plan: record(&["x"], false),
        confirmed: false,
        review: true,
    };
    happen(&mut runs, "a", review);
    assert_eq!(settle(&mut set, &mut runs), ["plan c"]);
    assert_eq!(
        words(&runs),
        "a planned, b deferred, c planning, d planning, e deferred"
    );
}

#[test]
fn poison_spreads_to_all_dependents_and_to_no_one_else() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x", "c<b:y", "d"]);
    set.status = Status::Confirmed;
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", planned(&["x"]));
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", RunEvent::Failed { problem: problem() });
    happen(&mut runs, "d", RunEvent::NothingToChange);
    settle(&mut set, &mut runs);
    assert_eq!(words(&runs), "a failed, b skipped, c skipped, d unchanged");
    let RunState::Finished {
        outcome: Outcome::Skipped { because },
        ..
    } = &runs[2].state
    else {
        panic!("c is skipped");
    };
    let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
    assert_eq!(
        *because,
        Skip::Poisoned {
            by: a,
            through: Some(b)
        }
    );
}

#[test]
fn a_later_plan_that_destroys_is_asked_about_again() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x"]);
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", planned(&["x"]));
    settle(&mut set, &mut runs);
    set.status = Status::Confirmed;
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", applied());
    settle(&mut set, &mut runs);
    let destroys = RunEvent::PlanFinished {
        plan: record(&[], true),
        confirmed: false,
        review: false,
    };
    happen(&mut runs, "b", destroys);
    assert!(settle(&mut set, &mut runs).is_empty());
    assert_eq!(
        set.status,
        Status::AwaitingConfirm,
        "lanes are given up meanwhile"
    );
}

#[test]
fn a_destroy_goes_backwards() {
    // The caller turns the edges round: a, whom b needs, waits for b.
    let (mut set, mut runs) = change_set(Action::Destroy, &["a<b", "b"]);
    assert_eq!(settle(&mut set, &mut runs), ["plan a", "plan b"]);
    happen(&mut runs, "a", planned(&[]));
    happen(&mut runs, "b", planned(&[]));
    settle(&mut set, &mut runs);
    set.status = Status::Confirmed;
    assert_eq!(settle(&mut set, &mut runs), ["apply b"]);
    happen(&mut runs, "b", applied());
    assert_eq!(settle(&mut set, &mut runs), ["apply a"]);
}

#[test]
fn an_interrupt_starts_nothing_more() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b", "c<a"]);
    set.status = Status::Confirmed;
    settle(&mut set, &mut runs);
    set.status = Status::Interrupting;
    assert!(settle(&mut set, &mut runs).is_empty());
    assert_eq!(words(&runs), "a planning, b planning, c skipped");
    happen(&mut runs, "a", RunEvent::Failed { problem: problem() });
    happen(&mut runs, "b", RunEvent::Failed { problem: problem() });
    settle(&mut set, &mut runs);
    assert_eq!(
        set.status,
        Status::Stopped {
            why: "interrupted".to_owned()
        }
    );
}

proptest! {
    /// Whatever happens to runs in whatever order, nothing starts before its upstreams ended well, no
    /// more run at once than allowed, and the change set comes to rest.
    #[test]
    fn no_change_set_gets_stuck(
        action in prop_oneof![Just(Action::Plan), Just(Action::Apply), Just(Action::Destroy)],
        auto in any::<bool>(),
        edges in proptest::collection::btree_set((0_usize..8, 0_usize..8), 0..14),
        choices in proptest::collection::vec((any::<u8>(), any::<u8>()), 200),
    ) {
        let names: Vec<String> = (0..8)
            .map(|n| {
                let needs: BTreeSet<String> = edges
                    .iter()
                    .filter(|(from, to)| *to == n && from < to)
                    .map(|(from, _)| if from % 2 == 0 { format!("s{from}:x") } else { format!("s{from}") })
                    .collect();
                format!("s{n}<{}", needs.into_iter().collect::<Vec<_>>().join(","))
            })
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (mut set, mut runs) = change_set(action, &names);
        if auto && action != Action::Plan {
            set.status = Status::Confirmed;
        }
        for (which, how) in choices {
            settle(&mut set, &mut runs);
            let busy: Vec<usize> =
                (0..runs.len()).filter(|at| runs[*at].state.is_running()).collect();
            prop_assert!(busy.len() <= 2);
            for run in runs.iter().filter(|run| matches!(run.state, RunState::Applying { .. })) {
                for need in &run.upstreams {
                    let upstream = runs.iter().find(|other| other.stack == need.stack).unwrap();
                    let RunState::Finished { outcome, .. } = &upstream.state else {
                        return Err(TestCaseError::fail("applied before its upstream ended"));
                    };
                    prop_assert!(outcome.is_good());
                }
            }
            if busy.is_empty() {
                match set.status {
                    Status::AwaitingConfirm => {
                        for run in &mut runs {
                            if matches!(run.state, RunState::Planned { .. }) {
                                run.state = advance(&run.state, RunEvent::Confirmed, NOW).unwrap();
                            }
                        }
                        set.status = Status::Confirmed;
                        continue;
                    }
                    _ => break,
                }
            }
            let run = &mut runs[busy[usize::from(which) % busy.len()]];
            let event = match (&run.state, how % 6) {
                (RunState::Planning { .. }, 0) => RunEvent::NothingToChange,
                (_, 1) => RunEvent::Failed { problem: problem() },
                (RunState::Planning { .. }, 2) => RunEvent::RunnerLost { kept: None },
                (RunState::Planning { .. }, n) => RunEvent::PlanFinished {
                    plan: record(&["x"], n == 3),
                    confirmed: n != 3,
                    review: action == Action::Plan,
                },
                (_, 2) => RunEvent::RunnerLost { kept: None },
                (_, 3) => RunEvent::PlanVoided { why: String::new() },
                _ => applied(),
            };
            run.state = advance(&run.state, event, NOW).unwrap();
        }
        let busy = runs.iter().any(|run| run.state.is_running());
        let settled = runs.iter().all(|run| run.state.is_finished());
        prop_assert!(busy || settled || !matches!(set.status, Status::Finished), "{}", words(&runs));
        if set.status == Status::Finished {
            prop_assert!(settled);
        }
    }
}
