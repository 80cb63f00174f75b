//! Explains why a run or a change set is waiting.

use super::next::{is_held, next, stage_held};
use super::{ChangeSet, DecisionContext, Status};
use crate::base::ids::{ChangeSetId, StackName};
use crate::run::approval::{MissingApproval, missing_approvals};
use crate::run::hold::Hold;
use crate::run::{Outcome, Run, RunState, SkipReason};

/// What a change set is waiting for to get its lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneBlocker {
    /// A change set that holds the lane, with the number of its finished runs.
    Holder {
        lane: String,
        set: ChangeSetId,
        done: usize,
        of: usize,
        /// Change sets that are earlier in the queue, in order.
        before: Vec<ChangeSetId>,
    },
    /// A change set that is earlier in the queue.
    Earlier {
        lane: String,
        set: ChangeSetId,
    },
    Hold(Box<Hold>),
}

impl LaneBlocker {
    pub fn words(&self) -> String {
        match self {
            Self::Holder {
                lane,
                set,
                done,
                of,
                before,
            } => {
                let held =
                    format!("lane `{lane}` is held by change set {set} ({done} of {of} done)");
                if before.is_empty() {
                    return held;
                }
                let before: Vec<String> = before.iter().map(ToString::to_string).collect();
                format!("{held}; before it in the line: {}", before.join(", "))
            }
            Self::Earlier { lane, set } => {
                format!("change set {set} is earlier in the line for lane `{lane}`")
            }
            Self::Hold(hold) => format!("{} is {}", hold.on.words(), hold.words()),
        }
    }
}

impl LaneBlocker {
    /// A short text that does not change during the wait: `change set c1 to release the lane`.
    pub fn brief(&self) -> String {
        match self {
            Self::Holder { set, .. } | Self::Earlier { set, .. } => {
                format!("change set {set} to release the lane")
            }
            Self::Hold(hold) => format!("`{}` to release {}", hold.person, hold.on.words()),
        }
    }
}

/// Why a change set does not continue. None if it continues, or if it ended successfully.
pub fn why_set(
    set: &ChangeSet,
    runs: &[Run],
    around: &DecisionContext<'_>,
    front: Option<&LaneBlocker>,
) -> Option<String> {
    match &set.status {
        Status::Planning | Status::Confirmed | Status::Finished => None,
        Status::Waiting => front.map(LaneBlocker::words),
        Status::AwaitingConfirm => Some(waits_for_a_person(set, runs, around)),
        Status::Interrupting => Some("engines finish what they are doing".to_owned()),
        Status::Stopped { why } => Some(why.clone()),
        Status::Superseded { by } => Some(format!(
            "by change set {by} (newer commit on the same branch)"
        )),
    }
}

fn waits_for_a_person(set: &ChangeSet, runs: &[Run], around: &DecisionContext<'_>) -> String {
    let missing = missing_approvals(set, runs, around.approvals, around.now);
    let mut ready = runs
        .iter()
        .filter(|run| matches!(run.state, RunState::Planned { .. }));
    let held = ready.find_map(|run| is_held(around, &run.stack).map(|hold| (&run.stack, hold)));
    let held = held.or_else(|| {
        let mut runs = runs.iter();
        runs.find_map(|run| stage_held(around, run).map(|hold| (&run.stack, hold)))
    });
    if let Some(words) = waits_for_all(missing.iter()) {
        return words;
    }
    match held {
        Some((stack, hold)) => format!("stack `{stack}` is {}", hold.words()),
        // A hold expired, and no scheduling step has run since.
        None if !next(set, runs, around).is_empty() => format!(
            "nothing any more: run `terrane run confirm {}` to continue",
            set.id
        ),
        None => {
            let yes = format!("confirmation: `terrane run confirm {}`", set.id);
            let denied = runs.iter().find_map(|run| run.state.denied_yes());
            match denied.filter(|_| set.request.policy_override.is_none()) {
                Some(remark) => format!("{yes}; the last one was denied by policy {remark}"),
                None => yes,
            }
        }
    }
}

/// ``0 of 1 approval for r5 (target `prod`)`` Without duplicates; none if nothing is missing.
fn waits_for_all<'a>(missing: impl Iterator<Item = &'a MissingApproval>) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    for words in missing.map(waits_for) {
        if !all.contains(&words) {
            all.push(words);
        }
    }
    (!all.is_empty()).then(|| all.join(", and "))
}

fn waits_for(one: &MissingApproval) -> String {
    let what = match one.run {
        Some(run) => format!("{} for {run}", one.words()),
        None => one.words(),
    };
    format!("{what} ({})", one.by)
}

/// Why a run does not continue. None if it is running or ended successfully.
pub fn why(
    set: &ChangeSet,
    runs: &[Run],
    run: &Run,
    around: &DecisionContext<'_>,
    front: Option<&LaneBlocker>,
) -> Option<String> {
    match &run.state {
        RunState::Planning { .. } | RunState::Applying { .. } | RunState::Completing { .. } => None,
        RunState::Queued
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applied { .. } => match &set.status {
            Status::Planning | Status::Confirmed => Some(waits_inside(set, runs, run, around)),
            Status::Waiting
            | Status::AwaitingConfirm
            | Status::Interrupting
            | Status::Stopped { .. }
            | Status::Superseded { .. } => why_set(set, runs, around, front),
            Status::Finished => None,
        },
        RunState::Finished { outcome, .. } => match outcome {
            Outcome::Planned { .. } | Outcome::Unchanged | Outcome::Applied { .. } => None,
            Outcome::Untouched => Some("nothing it consumes changes".to_owned()),
            Outcome::Deferred { on, .. } => {
                let names: Vec<String> = on.iter().map(|one| format!("`{}`", one.stack)).collect();
                Some(format!("known after {}", names.join(", ")))
            }
            Outcome::Failed { problem } => Some(problem.brief().to_owned()),
            Outcome::NotDone { problem, .. } => {
                let first = problem.message.lines().next().unwrap_or_default();
                Some(format!("{}: {first}", outcome.word()))
            }
            // The change set records who rejected it, and why.
            Outcome::Skipped {
                because: SkipReason::NotConfirmed,
            } => why_set(set, runs, around, front).or(Some(SkipReason::NotConfirmed.words())),
            Outcome::Skipped { because } => Some(because.words()),
            Outcome::Unknown {
                kept: Some(kept), ..
            } => Some(format!("the runner was lost while applying; {kept}")),
            Outcome::Unknown { kept: None, .. } => {
                Some("the runner was lost while applying".to_owned())
            }
        },
    }
}

/// The reason within a change set that continues.
fn waits_inside(set: &ChangeSet, runs: &[Run], run: &Run, around: &DecisionContext<'_>) -> String {
    let is_awaited = |stack: &StackName| {
        runs.iter()
            .any(|other| other.stack == *stack && !other.state.is_finished())
    };
    let upstreams: Vec<String> = run
        .upstreams
        .iter()
        .filter(|need| is_awaited(&need.stack))
        .map(|need| format!("`{}`", need.stack))
        .collect();
    if !upstreams.is_empty() {
        return format!("waits for {}", upstreams.join(", "));
    }
    if set.status == Status::Confirmed && matches!(run.state, RunState::Planned { .. }) {
        let missing = missing_approvals(set, runs, around.approvals, around.now);
        let of_run = missing.iter().filter(|one| one.blocks(run));
        if let Some(words) = waits_for_all(of_run) {
            return words;
        }
    }
    if let Some(hold) = is_held(around, &run.stack) {
        return format!("stack `{}` is {}", run.stack, hold.words());
    }
    match run.state {
        RunState::Planned {
            confirmed: false, ..
        } if set.status == Status::Confirmed => {
            "waits for confirmation, after the others are done".to_owned()
        }
        RunState::Planned { .. } if set.status == Status::Planning => {
            "waits for the plans of the others".to_owned()
        }
        RunState::Applied { next, .. } => format!("{} begins", next.word()),
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Completing { .. }
        | RunState::Finished { .. } => waits_for_place(set, runs),
    }
}

fn waits_for_place(set: &ChangeSet, runs: &[Run]) -> String {
    let engines = runs.iter().filter(|run| run.state.uses_engine());
    let places = set.request.parallelism;
    if engines.count() < places {
        "begins when a process of the change set looks at it".to_owned()
    } else {
        format!("waits: the limit of {places} engines is reached")
    }
}
