//! Scenarios of small change sets, and long random ones that must never get stuck.

use crate::base::actor::Actor;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::base::ids::ChangeSetId;
use crate::plan::PlanCounts;
use crate::project::WaitFor;
use crate::run::changeset::{
    self, Reopen, ReopenedRun, Request, Trigger, UserCommand, UserCommandError,
};
use crate::run::seal::Seal;
use crate::run::{PlanRecord, Preview, RunProblem, Stage, Upstream, advance};

mod stages;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// Without holds and approvals.
const AROUND: DecisionContext<'static> = DecisionContext {
    holds: &[],
    approvals: &[],
    now: NOW,
};

/// `"b<a:x"` is stack b, which consumes output x of a. `"c<a"` only comes after a.
fn confirmed_by(name: &str) -> UserCommand {
    let by = Actor::named(name);
    UserCommand::Confirm { by }
}

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
                        wait: WaitFor::Verified,
                    }
                });
            Run {
                id: RunId(number),
                change_set: ChangeSetId(1),
                stack: name.parse().unwrap(),
                state: RunState::Queued,
                upstreams: upstreams.collect(),
                is_settled: false,
                stages: Vec::new(),
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
        asked_with: None,
        keeps_plans: false,
        earlier_askers: Vec::new(),
        exceptions: None,
        goes_on_with_stages: false,
        unasked: BTreeSet::new(),
        bundle: None,
        policy_override: None,
        origin: Trigger::Person,
        approvals: Vec::new(),
        identity: None,
        exec: None,
        dependents: Vec::new(),
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
        seal: Box::new(Seal {
            source: String::new(),
            head: None,
            inputs: String::new(),
            each_input: BTreeMap::new(),
            engine: String::new(),
            lock_file: None,
        }),
        preview: false,
        policy: crate::policy::Verdict::default(),
        policy_since: BTreeMap::new(),
        difference: None,
        since: None,
        consumed: None,
        came_after: None,
    }
}

fn problem() -> RunProblem {
    RunProblem::new(Stage::Applying, "no")
}

/// Commits steps until there are none, as the store does. Returns what was started.
fn settle(set: &mut ChangeSet, runs: &mut [Run]) -> Vec<String> {
    let mut started = Vec::new();
    loop {
        if set.status == Status::Waiting {
            set.status = changeset::advance(&set.status, &SetEvent::LanesTaken).unwrap();
        }
        let steps = next(set, runs, &AROUND);
        if steps.is_empty() {
            return started;
        }
        for step in steps {
            let (id, event) = match step {
                Transition::Move(event) => {
                    set.status = changeset::advance(&set.status, &event).unwrap();
                    continue;
                }
                Transition::StartPlan(id) => (id, RunEvent::PlanStarted),
                Transition::StartPreview(id, on) => (id, RunEvent::PreviewStarted { on }),
                Transition::StartApply(id) => (id, RunEvent::ApplyStarted),
                Transition::StartStage(id, part) => (id, RunEvent::StageStarted { part }),
                Transition::Record(id, event) => (id, *event),
            };
            let run = runs.iter_mut().find(|run| run.id == id).unwrap();
            match event {
                RunEvent::PlanStarted => started.push(format!("plan {}", run.stack)),
                RunEvent::PreviewStarted { .. } => started.push(format!("preview {}", run.stack)),
                RunEvent::ApplyStarted => started.push(format!("apply {}", run.stack)),
                RunEvent::StageStarted { part } => {
                    started.push(format!("{} {}", part.word(), run.stack));
                }
                _ => {}
            }
            run.state = advance(&run.state, event, NOW).unwrap();
        }
    }
}

/// Executes a person's command.
fn say(set: &mut ChangeSet, runs: &mut [Run], say: UserCommand) -> Result<(), UserCommandError> {
    say_around(set, runs, say, &AROUND)
}

fn say_around(
    set: &mut ChangeSet,
    runs: &mut [Run],
    say: UserCommand,
    around: &DecisionContext<'_>,
) -> Result<(), UserCommandError> {
    for step in changeset::apply_command(set, runs, around, say)? {
        match step {
            Transition::Move(event) => {
                set.status = changeset::advance(&set.status, &event).unwrap();
            }
            Transition::Record(id, event) => {
                let run = runs.iter_mut().find(|run| run.id == id).unwrap();
                run.state = advance(&run.state, *event, NOW).unwrap();
            }
            Transition::StartPlan(_)
            | Transition::StartPreview(..)
            | Transition::StartApply(_)
            | Transition::StartStage(..) => {
                panic!("a word starts nothing by itself")
            }
        }
    }
    Ok(())
}

fn confirm(set: &mut ChangeSet, runs: &mut [Run]) {
    say(set, runs, confirmed_by("me")).unwrap();
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
        confirmed: false,
        review: false,
        reason: None,
        is_equal: None,
        new: Vec::new(),
    }
}

/// A confirmed plan.
fn said(outputs: &[&str]) -> RunEvent {
    RunEvent::PlanFinished {
        plan: record(outputs, false),
        confirmed: true,
        review: false,
        reason: None,
        is_equal: None,
        new: Vec::new(),
    }
}

fn previewed(outputs: &[&str], review: bool) -> RunEvent {
    let plan = Box::new(record(outputs, false));
    seen(Preview::Planned { plan }, review)
}

fn seen(preview: Preview, review: bool) -> RunEvent {
    RunEvent::Previewed {
        on: Vec::new(),
        preview,
        review,
        new: Vec::new(),
    }
}

fn unchanged() -> RunEvent {
    RunEvent::NothingToChange {
        consumed: None,
        came_after: None,
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

/// The apply finished, and this stage follows.
fn applied_before(stage: Stage) -> RunEvent {
    RunEvent::ApplyFinished {
        counts: PlanCounts::default(),
        serial: None,
        lineage: None,
        then: Some(stage),
    }
}

/// A stage passed, and `then` follows.
fn staged(part: Stage, then: Option<Stage>) -> RunEvent {
    RunEvent::StageFinished {
        part,
        report: serde_json::Value::Null,
        changed: None,
        then: then.filter(|then| *then > part),
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
    assert_eq!(settle(&mut set, &mut runs), ["preview b"]);
    happen(&mut runs, "b", previewed(&["z"], false));
    assert!(settle(&mut set, &mut runs).is_empty());
    assert_eq!(set.status, Status::AwaitingConfirm);
    confirm(&mut set, &mut runs);
    assert_eq!(settle(&mut set, &mut runs), ["apply a"]);
    happen(&mut runs, "a", applied());
    assert_eq!(settle(&mut set, &mut runs), ["plan b"]);
    happen(&mut runs, "b", said(&[]));
    assert_eq!(settle(&mut set, &mut runs), ["apply b"]);
    happen(&mut runs, "b", applied());
    settle(&mut set, &mut runs);
    assert_eq!(set.status, Status::Finished);
}

#[test]
fn an_unchanged_upstream_defers_nobody() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x"]);
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", unchanged());
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
        reason: None,
        is_equal: None,
        new: Vec::new(),
    };
    happen(&mut runs, "a", review);
    assert_eq!(settle(&mut set, &mut runs), ["preview b", "plan c"]);
    happen(&mut runs, "d", unchanged());
    assert!(settle(&mut set, &mut runs).is_empty());
    happen(&mut runs, "b", previewed(&["z"], true));
    assert_eq!(settle(&mut set, &mut runs), ["preview e"]);
    happen(&mut runs, "e", previewed(&[], true));
    assert_eq!(
        words(&runs),
        "a planned, b deferred, c planning, d unchanged, e deferred"
    );
}

#[test]
fn who_said_yes_beforehand_sees_no_previews() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x"]);
    set.status = Status::Confirmed;
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", said(&["x"]));
    assert_eq!(settle(&mut set, &mut runs), ["apply a"]);
    happen(&mut runs, "a", applied());
    assert_eq!(settle(&mut set, &mut runs), ["plan b"]);
}

#[test]
fn what_nobody_is_asked_about_is_not_asked_about_because_it_is_deferred() {
    for (unasked, then) in [
        (vec!["a", "b"], Status::Confirmed),
        (vec!["a"], Status::AwaitingConfirm),
    ] {
        let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x"]);
        set.request.unasked = unasked.iter().map(|name| name.parse().unwrap()).collect();
        settle(&mut set, &mut runs);
        happen(&mut runs, "a", said(&["x"]));
        assert_eq!(settle(&mut set, &mut runs), ["preview b"]);
        happen(&mut runs, "b", previewed(&[], false));
        settle(&mut set, &mut runs);
        assert_eq!(set.status, then, "{unasked:?}");
    }
}

#[test]
fn a_preview_that_changes_no_output_defers_nobody_else() {
    let (mut set, mut runs) = change_set(Action::Plan, &["a", "b<a:x", "c<b:y"]);
    settle(&mut set, &mut runs);
    let review = RunEvent::PlanFinished {
        plan: record(&["x"], false),
        confirmed: false,
        review: true,
        reason: None,
        is_equal: None,
        new: Vec::new(),
    };
    happen(&mut runs, "a", review);
    settle(&mut set, &mut runs);
    happen(&mut runs, "b", previewed(&["z"], true));
    assert_eq!(settle(&mut set, &mut runs), ["plan c"]);
}

#[test]
fn a_stack_that_cannot_be_previewed_neither_fails_nor_poisons() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x", "c<b:y"]);
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", planned(&["x"]));
    settle(&mut set, &mut runs);
    let why = "unknown `for_each`".to_owned();
    happen(&mut runs, "b", seen(Preview::Impossible { why }, false));
    assert_eq!(settle(&mut set, &mut runs), ["preview c"]);
    let RunState::Planning { awaits, .. } = &runs[2].state else {
        panic!("c is being looked at");
    };
    assert_eq!(awaits[0].outputs, ["y"], "all that it takes of b");
}

#[test]
fn a_plan_made_without_its_values_is_never_applied() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x"]);
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", planned(&["x"]));
    settle(&mut set, &mut runs);
    let event = planned(&[]);
    assert!(advance(&runs[1].state, event, NOW).is_err());
    happen(&mut runs, "b", previewed(&[], false));
    for event in [RunEvent::Confirmed, RunEvent::ApplyStarted] {
        assert!(advance(&runs[1].state, event, NOW).is_err());
    }
}

#[test]
fn poison_spreads_to_all_dependents_and_to_no_one_else() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x", "c<b:y", "d"]);
    set.status = Status::Confirmed;
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", said(&["x"]));
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", RunEvent::Failed { problem: problem() });
    happen(&mut runs, "d", unchanged());
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
        SkipReason::UpstreamFailed {
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
    happen(&mut runs, "b", previewed(&[], false));
    settle(&mut set, &mut runs);
    confirm(&mut set, &mut runs);
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", applied());
    settle(&mut set, &mut runs);
    let destroys = RunEvent::PlanFinished {
        plan: record(&[], true),
        confirmed: false,
        review: false,
        reason: None,
        is_equal: None,
        new: Vec::new(),
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
    // The caller reverses the edges: a, which b depends on, waits for b.
    let (mut set, mut runs) = change_set(Action::Destroy, &["a<b", "b"]);
    assert_eq!(settle(&mut set, &mut runs), ["plan a", "plan b"]);
    happen(&mut runs, "a", planned(&[]));
    happen(&mut runs, "b", planned(&[]));
    settle(&mut set, &mut runs);
    confirm(&mut set, &mut runs);
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

#[test]
fn what_nobody_has_to_be_asked_about_goes_on_by_itself() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a"]);
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", said(&[]));
    assert_eq!(settle(&mut set, &mut runs), ["apply a"]);
}

#[test]
fn what_nobody_has_seen_is_shown_before_it_goes_on() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b<a:x"]);
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", said(&["x"]));
    settle(&mut set, &mut runs);
    happen(&mut runs, "b", previewed(&[], false));
    settle(&mut set, &mut runs);
    assert_eq!(
        set.status,
        Status::AwaitingConfirm,
        "a word about `a` is none about `b`"
    );
    set.request.auto_approve = true;
    assert_eq!(settle(&mut set, &mut runs), ["apply a"]);
}

#[test]
fn a_settled_dependent_runs_only_for_what_it_consumes() {
    let stacks = ["a", "b<a:x", "c<a:y", "d<a", "e<b:z"];
    let (mut set, mut runs) = change_set(Action::Apply, &stacks);
    for run in &mut runs {
        run.is_settled = true;
    }
    set.status = Status::Confirmed;
    set.request.parallelism = 9;
    assert_eq!(
        settle(&mut set, &mut runs),
        ["plan a"],
        "what has no upstream here was asked for itself"
    );
    happen(&mut runs, "a", said(&["x"]));
    settle(&mut set, &mut runs);
    assert_eq!(runs[2].state.word(), "untouched", "`y` does not change");
    happen(&mut runs, "a", applied());
    assert_eq!(
        settle(&mut set, &mut runs),
        ["plan b", "plan d"],
        "`order` means: whenever it changes anything"
    );
    happen(&mut runs, "b", unchanged());
    happen(&mut runs, "d", unchanged());
    settle(&mut set, &mut runs);
    assert_eq!(
        words(&runs),
        "a applied, b unchanged, c untouched, d unchanged, e untouched"
    );
    assert_eq!(set.status, Status::Finished);
}

fn held(stack: &str) -> Hold {
    Hold {
        id: 1,
        on: HoldOn::Stack(stack.parse().unwrap()),
        person: Actor::named("ops"),
        reason: "migration".to_owned(),
        since: NOW,
        until: NOW + jiff::SignedDuration::from_hours(1),
        released: None,
    }
}

#[test]
fn a_held_stack_is_not_applied_and_the_rest_is() {
    let (mut set, mut runs) = change_set(Action::Apply, &["a", "b"]);
    settle(&mut set, &mut runs);
    happen(&mut runs, "a", planned(&[]));
    happen(&mut runs, "b", planned(&[]));
    settle(&mut set, &mut runs);
    let holds = [held("a")];
    let around = DecisionContext {
        holds: &holds,
        ..AROUND
    };
    say_around(&mut set, &mut runs, confirmed_by("me"), &around).unwrap();
    set.status = Status::Confirmed;
    assert_eq!(
        next(&set, &runs, &around),
        [Transition::StartApply(RunId(2))]
    );
    runs[1].state = advance(&runs[1].state, RunEvent::ApplyStarted, NOW).unwrap();
    happen(&mut runs, "b", applied());
    // Lanes are not kept for what a person holds.
    let came_to_rest = [Transition::Move(SetEvent::CameToRest)];
    assert_eq!(next(&set, &runs, &around), came_to_rest);
    set.status = Status::AwaitingConfirm;
    let refused = say_around(&mut set, &mut runs, confirmed_by("me"), &around).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "change set `c1` may not be confirmed now: held by `ops`: migration (until 1970-01-01 01:00 UTC)"
    );
    // It was confirmed already: it continues when the hold is over.
    let confirmed = [Transition::Move(SetEvent::Confirmed { by: None })];
    assert_eq!(next(&set, &runs, &AROUND), confirmed);
}

#[test]
fn a_retry_opens_the_run_and_what_it_poisoned() {
    let stacks = ["a", "b<a:x", "c<b:y", "d", "e<d:x"];
    let (mut set, mut runs) = change_set(Action::Apply, &stacks);
    set.request.parallelism = 9;
    set.status = Status::Confirmed;
    settle(&mut set, &mut runs);
    for stack in ["a", "d"] {
        happen(&mut runs, stack, RunEvent::Failed { problem: problem() });
    }
    settle(&mut set, &mut runs);
    let why = "2 failed, 3 skipped".to_owned();
    assert_eq!(set.status, Status::Stopped { why });
    let one = changeset::reopen(&set, &runs, &Reopen::Run(RunId(1))).unwrap();
    let as_it_is = |run| ReopenedRun {
        run: RunId(run),
        moved: false,
    };
    assert_eq!(one, [1, 2, 3].map(as_it_is));
    let rest = changeset::reopen(&set, &runs, &Reopen::rest()).unwrap();
    assert_eq!(rest.len(), 5);
    let poisoned = changeset::reopen(&set, &runs, &Reopen::Run(RunId(3))).unwrap_err();
    assert_eq!(
        poisoned.to_string(),
        "cannot retry run `r3`: it was skipped because of stack `a`; retry that stack's run"
    );
}

#[test]
fn what_moved_since_is_planned_afresh_with_all_that_stand_on_it() {
    let stacks = ["a", "b<a:x", "c<b:y", "d", "e<d:x"];
    let (mut set, mut runs) = change_set(Action::Apply, &stacks);
    set.request.parallelism = 9;
    set.request.auto_approve = true;
    set.status = Status::Confirmed;
    for stack in ["a", "b"] {
        settle(&mut set, &mut runs);
        happen(&mut runs, stack, said(&["x", "y"]));
        settle(&mut set, &mut runs);
        happen(&mut runs, stack, applied());
    }
    settle(&mut set, &mut runs);
    for stack in ["c", "d"] {
        happen(&mut runs, stack, RunEvent::Failed { problem: problem() });
    }
    settle(&mut set, &mut runs);
    assert_eq!(
        words(&runs),
        "a applied, b applied, c failed, d failed, e skipped"
    );
    let moved = BTreeSet::from(["a".parse().unwrap()]);
    let again = changeset::reopen(&set, &runs, &Reopen::Rest { moved }).unwrap();
    let moved: Vec<bool> = again.iter().map(|it| it.moved).collect();
    assert_eq!(moved, [true, true, true, false, false]);
    for (run, it) in runs.iter_mut().zip(again) {
        let event = RunEvent::Reopened { moved: it.moved };
        run.state = advance(&run.state, event, Timestamp::UNIX_EPOCH).unwrap();
    }
    // `b` was applied with values of `a` that may have changed, so it waits for them.
    set.status = Status::Confirmed;
    assert_eq!(settle(&mut set, &mut runs), ["plan a", "plan d"]);
}

#[test]
fn only_what_a_push_started_is_superseded() {
    let set = |id: i64, origin: Trigger, stacks: &[&str], status: Status| {
        let (mut set, _) = change_set(Action::Apply, stacks);
        set.id = ChangeSetId(id);
        set.request.origin = origin;
        set.status = status;
        set
    };
    let push = |branch: &str| Trigger::Push {
        branch: branch.to_owned(),
    };
    let open = [
        set(1, Trigger::Person, &["a"], Status::Waiting),
        set(2, push("main"), &["a"], Status::Waiting),
        set(3, push("main"), &["a", "b"], Status::AwaitingConfirm),
        set(4, push("main"), &["a"], Status::Confirmed),
        set(5, push("next"), &["a"], Status::Planning),
        set(6, push("main"), &["a"], Status::Planning),
    ];
    let new = set(9, push("main"), &["a"], Status::Planning);
    let gone = changeset::superseded(&new, &open);
    assert_eq!(
        gone,
        [ChangeSetId(2), ChangeSetId(6)],
        "not a person's, not one with more stacks, not one under way, not another branch's"
    );
    let asked = set(9, Trigger::Person, &["a"], Status::Planning);
    assert!(changeset::superseded(&asked, &open).is_empty());
}

proptest! {
    /// For random events in any order: no run starts before its upstreams succeeded, the parallelism limit holds, and
    /// the change set comes to rest.
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
            let engines = runs.iter().filter(|run| run.state.uses_engine());
            prop_assert!(engines.count() <= set.request.runs_at_once());
            for run in runs.iter().filter(|run| matches!(run.state, RunState::Applying { .. })) {
                for need in &run.upstreams {
                    let upstream = runs.iter().find(|other| other.stack == need.stack).unwrap();
                    let Some(outcome) = upstream.state.outcome_for(need.wait) else {
                        return Err(TestCaseError::fail("applied before its upstream ended"));
                    };
                    prop_assert!(outcome.is_good());
                }
            }
            if busy.is_empty() {
                match set.status {
                    Status::AwaitingConfirm => {
                        say(&mut set, &mut runs, confirmed_by("me")).unwrap();
                        continue;
                    }
                    _ => break,
                }
            }
            let run = &mut runs[busy[usize::from(which) % busy.len()]];
            let event = match (&run.state, how % 6) {
                (RunState::Planning { awaits, .. }, n @ (0 | 3..)) if !awaits.is_empty() => {
                    let review = action == Action::Plan;
                    match n {
                        0 => seen(Preview::Unchanged, review),
                        3 => seen(Preview::Impossible { why: String::new() }, review),
                        _ => previewed(&["x"], review),
                    }
                }
                (RunState::Planning { .. }, 0) => unchanged(),
                (_, 1) => RunEvent::Failed { problem: problem() },
                (RunState::Planning { .. }, 2) => RunEvent::RunnerLost { kept: None, left: None },
                (RunState::Planning { .. }, n) => RunEvent::PlanFinished {
                    plan: record(&["x"], n == 3),
                    confirmed: n != 3,
                    review: action == Action::Plan,
                    reason: None,
                    is_equal: None,
                    new: Vec::new(),
                },
                (_, 2) => RunEvent::RunnerLost { kept: None, left: None },
                (RunState::Completing { part, .. }, _) => staged(*part, Some(Stage::Verifying)),
                (RunState::Applying { .. }, 4) => applied_before(Stage::Publishing),
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
