//! Generates the reference page of runs and change sets by calling `advance` for every state and event. Transitions
//! that the page does not list are impossible.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;

use crate::base::actor::Actor;
use crate::base::ids::ChangeSetId;
use crate::plan::PlanCounts;
use crate::policy::{PolicyPhase, Verdict};
use crate::run::changeset::{self, SetEvent, Status};
use crate::run::seal::Seal;
use crate::run::{
    self, AwaitedOutputs, Outcome, PlanRecord, Preview, RunEvent, RunProblem, RunState, SkipReason,
    Stage,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

pub fn render() -> String {
    let mut page = String::from(
        "<!-- Written by `cargo xtask docs`; a change here is lost. -->\n\n\
         # Runs and change sets, state by state\n\n\
         A **run** is one stack's way; a **change set** is one request and all its runs. Both move only by \
         these events: what is not listed cannot happen. Each event is stored together with the state it leads \
         to, and replaying the stored events gives the stored state. `terrane run show` prints them.\n\n\
         After an apply come the stages that its stack asks for, in this order: publishing, bootstrapping, verifying \
         (the tables show the first and the last; the one between behaves alike). If their runner dies, they begin \
         again.\n\n\
         A plan holds nothing: if its runner dies, it is made again. Only apply is never repeated by itself: \
         if its runner dies, the run ends `unknown`, and the next step is a new plan.\n",
    );
    let moves = moves_of_a_run();
    section(&mut page, "A run", &moves);
    page.push_str(
        "\nA change set holds its lanes while it is `applying` or `interrupting`, and in no other state: \
         nothing that waits for a person keeps others waiting.\n",
    );
    section(&mut page, "A change set", &moves_of_a_set());
    page
}

/// From, event, to.
type Move = (String, String, String);

fn section(page: &mut String, title: &str, moves: &[Move]) {
    let _ = write!(page, "\n## {title}\n\n```mermaid\nstateDiagram-v2\n");
    let mut drawn = BTreeSet::new();
    for (from, by, to) in moves {
        if drawn.insert((from, to, by)) {
            let _ = writeln!(page, "    {} --> {}: {by}", node(from), node(to));
        }
    }
    page.push_str("```\n\n| in state | event | leads to |\n|---|---|---|\n");
    for (from, by, to) in moves {
        let _ = writeln!(page, "| {from} | {by} | {to} |");
    }
}

fn node(state: &str) -> String {
    state.replace([' ', ':'], "_")
}

fn moves_of_a_run() -> Vec<Move> {
    let mut moves = Vec::new();
    for (from, state) in run_states() {
        for (by, event) in run_events() {
            if let Ok(to) = run::advance(&state, event, NOW) {
                let to = name_of(&to);
                moves.push((from.clone(), by.to_owned(), to));
            }
        }
    }
    moves
}

fn name_of(state: &RunState) -> String {
    match state {
        RunState::Planned {
            confirmed: true, ..
        } => "planned and confirmed".to_owned(),
        RunState::Planning { awaits, .. } if !awaits.is_empty() => "previewing".to_owned(),
        RunState::Applied { next, .. } => format!("before {}", next.word()),
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Completing { .. }
        | RunState::Finished { .. } => state.word().to_owned(),
    }
}

fn run_states() -> Vec<(String, RunState)> {
    let finished = |outcome| RunState::Finished {
        outcome,
        at: NOW,
        published: None,
    };
    let planned = |confirmed| RunState::Planned {
        plan: plan(),
        confirmed,
    };
    let applied = || {
        Box::new(Outcome::Applied {
            counts: PlanCounts::default(),
            serial: None,
            outputs: BTreeSet::new(),
            warnings: Vec::new(),
        })
    };
    let before = |next| RunState::Applied {
        outcome: applied(),
        next,
        lost: 0,
        published: None,
    };
    let completing = |part| RunState::Completing {
        part,
        outcome: applied(),
        since: NOW,
        lost: 0,
        published: None,
    };
    let not_done = |stage| {
        finished(Outcome::NotDone {
            done: applied(),
            problem: RunProblem::new(stage, ""),
        })
    };
    let states = vec![
        RunState::Queued,
        RunState::Planning {
            since: NOW,
            awaits: Vec::new(),
        },
        RunState::Planning {
            since: NOW,
            awaits: awaited(),
        },
        RunState::Deferred {
            on: awaited(),
            preview: Preview::Unchanged,
        },
        planned(false),
        planned(true),
        RunState::Applying {
            plan: plan(),
            since: NOW,
        },
        before(Stage::Publishing),
        before(Stage::Verifying),
        completing(Stage::Publishing),
        completing(Stage::Verifying),
        finished(Outcome::Unchanged),
        finished(Outcome::Untouched),
        finished(Outcome::Applied {
            counts: PlanCounts::default(),
            serial: None,
            outputs: BTreeSet::new(),
            warnings: Vec::new(),
        }),
        finished(Outcome::Failed { problem: problem() }),
        not_done(Stage::Publishing),
        not_done(Stage::Verifying),
        finished(Outcome::Skipped {
            because: SkipReason::Interrupted,
        }),
        finished(Outcome::Unknown {
            kept: None,
            left: None,
        }),
        finished(Outcome::Deferred {
            on: awaited(),
            preview: Preview::Unchanged,
        }),
    ];
    let named = states.into_iter();
    named.map(|state| (name_of(&state), state)).collect()
}

/// Over a hundred lines, because it is a table: one entry for each event.
fn run_events() -> Vec<(&'static str, RunEvent)> {
    let previewed = |review| RunEvent::Previewed {
        on: awaited(),
        preview: Preview::Unchanged,
        review,
        new: Vec::new(),
    };
    let finished = |confirmed, review| RunEvent::PlanFinished {
        plan: plan(),
        confirmed,
        review,
        reason: None,
        is_equal: None,
        new: Vec::new(),
    };
    let started = |part| RunEvent::StageStarted { part };
    let ended = |part, then| RunEvent::StageFinished {
        part,
        report: serde_json::Value::Null,
        changed: None,
        then,
    };
    vec![
        ("plan started", RunEvent::PlanStarted),
        (
            "preview started",
            RunEvent::PreviewStarted { on: awaited() },
        ),
        ("previewed", previewed(false)),
        ("previewed, for review", previewed(true)),
        (
            "nothing to change",
            RunEvent::NothingToChange {
                consumed: None,
                came_after: None,
                serial: None,
                lineage: None,
                then: None,
            },
        ),
        (
            "nothing to change, stages follow",
            RunEvent::NothingToChange {
                consumed: None,
                came_after: None,
                serial: None,
                lineage: None,
                then: Some(Stage::Publishing),
            },
        ),
        ("nothing consumed", RunEvent::NothingConsumed { then: None }),
        (
            "nothing consumed, stages follow",
            RunEvent::NothingConsumed {
                then: Some(Stage::Publishing),
            },
        ),
        ("plan finished", finished(false, false)),
        ("plan finished, confirmed in advance", finished(true, false)),
        ("plan finished, for review", finished(false, true)),
        ("deferred", RunEvent::Deferred { on: awaited() }),
        ("confirmed", RunEvent::Confirmed),
        ("apply started", RunEvent::ApplyStarted),
        ("plan voided", RunEvent::PlanVoided { why: String::new() }),
        (
            "apply put off",
            RunEvent::ApplyPutOff {
                said: Verdict::default(),
            },
        ),
        (
            "apply finished",
            RunEvent::ApplyFinished {
                counts: PlanCounts::default(),
                serial: None,
                lineage: None,
                then: None,
            },
        ),
        (
            "apply finished, stages follow",
            RunEvent::ApplyFinished {
                counts: PlanCounts::default(),
                serial: None,
                lineage: None,
                then: Some(Stage::Publishing),
            },
        ),
        ("publishing started", started(Stage::Publishing)),
        ("verifying started", started(Stage::Verifying)),
        (
            "published, gates follow",
            ended(Stage::Publishing, Some(Stage::Verifying)),
        ),
        ("published, nothing follows", ended(Stage::Publishing, None)),
        ("verified", ended(Stage::Verifying, None)),
        ("failed", RunEvent::Failed { problem: problem() }),
        (
            "skipped",
            RunEvent::Skipped {
                because: SkipReason::Interrupted,
            },
        ),
        (
            "runner lost",
            RunEvent::RunnerLost {
                kept: None,
                left: None,
            },
        ),
        (
            "policy asked again",
            RunEvent::PolicyAsked {
                at: PolicyPhase::Approval,
                by: None,
                said: Verdict::default(),
            },
        ),
        (
            "cancel asked",
            RunEvent::CancelAsked {
                by: Actor::default(),
                reason: None,
                kill: false,
            },
        ),
        ("reopened", RunEvent::Reopened { moved: false }),
        (
            "reopened, as it moved since",
            RunEvent::Reopened { moved: true },
        ),
    ]
}

fn moves_of_a_set() -> Vec<Move> {
    let statuses = [
        Status::Planning,
        Status::AwaitingConfirm,
        Status::Waiting,
        Status::Confirmed,
        Status::Interrupting,
        Status::Finished,
        Status::Stopped { why: String::new() },
        Status::Superseded { by: ChangeSetId(0) },
    ];
    let text = String::new;
    let events = [
        ("requested", SetEvent::Requested { confirmed: false }),
        (
            "requested, confirmed in advance",
            SetEvent::Requested { confirmed: true },
        ),
        ("came to rest", SetEvent::CameToRest),
        ("confirmed", SetEvent::Confirmed { by: None }),
        ("lanes taken", SetEvent::LanesTaken),
        ("completed", SetEvent::Completed),
        ("failed", SetEvent::Failed { why: text() }),
        ("interrupted", SetEvent::Interrupted { by: None }),
        ("wound down", SetEvent::WoundDown),
        (
            "discarded",
            SetEvent::Discarded {
                by: None,
                reason: None,
            },
        ),
        (
            "rejected",
            SetEvent::Rejected {
                by: Actor::default(),
                reason: text(),
            },
        ),
        ("abandoned", SetEvent::Abandoned { why: text() }),
        ("superseded", SetEvent::Superseded { by: ChangeSetId(0) }),
        (
            "reopened",
            SetEvent::Reopened {
                by: None,
                confirmed: false,
            },
        ),
        (
            "reopened, confirmed in advance",
            SetEvent::Reopened {
                by: None,
                confirmed: true,
            },
        ),
    ];
    let mut moves = Vec::new();
    for from in &statuses {
        for (by, event) in &events {
            if let Ok(to) = changeset::advance(from, event) {
                moves.push((
                    from.word().to_owned(),
                    (*by).to_owned(),
                    to.word().to_owned(),
                ));
            }
        }
    }
    moves
}

fn awaited() -> Vec<AwaitedOutputs> {
    let stack = "upstream".parse().ok();
    let awaited = |stack| AwaitedOutputs {
        stack,
        outputs: Vec::new(),
    };
    stack.map(awaited).into_iter().collect()
}

fn plan() -> PlanRecord {
    PlanRecord {
        policy: Verdict::default(),
        policy_since: BTreeMap::new(),
        difference: None,
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
        since: None,
        consumed: None,
        came_after: None,
    }
}

fn problem() -> RunProblem {
    RunProblem::new(Stage::Applying, "")
}
