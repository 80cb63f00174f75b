//! A change set at one moment, as text: a title and a row for each stack.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use model::base::ids::RunId;
use model::plan::PlanCounts;
use model::run::changeset::{Action, ChangeSet, LaneBlocker, Status};
use model::run::{Outcome, Preview, Run, RunState, SkipReason, Stage};

use super::tail::Tails;
use super::{action, is_open};
use crate::view::progress::{ProgressFrame, ProgressRow, ProgressStatus};
use crate::view::text::count;

pub(super) fn frame(
    set: &ChangeSet,
    runs: &[Run],
    tails: Option<&Tails>,
    front: Option<&LaneBlocker>,
    before: &BTreeSet<RunId>,
    elapsed: Duration,
) -> ProgressFrame {
    let mut title = format!(
        "change set {}: {} on {}",
        set.id,
        action(set.request.action),
        lanes(set)
    );
    match (&set.status, front) {
        (Status::Waiting, Some(front)) => {
            title = format!("{title}, waits for {}", front.brief());
        }
        (Status::Interrupting, _) => title = format!("{title}, interrupting"),
        (Status::Stopped { why }, _) if why == "interrupted" => {
            title = format!("{title}, interrupted");
        }
        _ => {}
    }
    // Without tails there is no live display: a log shows what was done, not the current work.
    ProgressFrame {
        title,
        elapsed,
        done: runs.iter().filter(|run| !is_open(run)).count(),
        total: runs.len(),
        rows: runs
            .iter()
            .map(|run| row(set, run, runs, before, tails))
            .collect(),
    }
}

/// ``change set c42 on `local`, source 3f9c1e2 (clean)``
pub(super) fn heading(set: &ChangeSet) -> String {
    let source = match &set.request.commit {
        Some(commit) => {
            let state = if set.request.dirty {
                "with changes"
            } else {
                "clean"
            };
            format!(
                ", source {} ({state})",
                commit.chars().take(7).collect::<String>()
            )
        }
        None => String::new(),
    };
    let by = set.request.identity.as_ref().filter(|by| by.verified);
    let by = by.map_or_else(String::new, |by| format!(", by {by}"));
    format!("change set {} on {}{source}{by}", set.id, lanes(set))
}

fn lanes(set: &ChangeSet) -> String {
    let names: Vec<String> = set
        .request
        .lanes
        .iter()
        .map(|lane| format!("`{lane}`"))
        .collect();
    names.join(", ")
}

fn row(
    set: &ChangeSet,
    run: &Run,
    runs: &[Run],
    before: &BTreeSet<RunId>,
    tails: Option<&Tails>,
) -> ProgressRow {
    let since = |at: Timestamp| Duration::try_from(Timestamp::now().duration_since(at)).ok();
    let busy = |word: &str| match tails.and_then(|tails| tails.now(run.id)) {
        Some(now) => format!("{word}   {now}"),
        None => word.to_owned(),
    };
    let (mark, text, elapsed) = match &run.state {
        RunState::Queued => (ProgressStatus::Waiting, why_queued(run, runs), None),
        RunState::Planning { since: at, .. } => {
            let verb = match set.request.action {
                Action::Exec => "preparing",
                Action::Plan | Action::Apply | Action::Destroy => "planning",
            };
            (ProgressStatus::Running, busy(verb), since(*at))
        }
        RunState::Deferred { preview, .. } => {
            let text = [previewed(preview), why_queued(run, runs)].join("   ");
            (ProgressStatus::Waiting, text, None)
        }
        RunState::Planned { .. } if set.request.action == Action::Exec => {
            (ProgressStatus::Waiting, why_queued(run, runs), None)
        }
        RunState::Planned { plan, .. } if tails.is_none() => (
            ProgressStatus::Done,
            planned(plan.counts, set.request.action),
            None,
        ),
        RunState::Planned { plan, .. } => {
            let wait = if set.status == Status::Confirmed {
                why_queued(run, runs)
            } else {
                String::new()
            };
            let text = [planned(plan.counts, set.request.action), wait].join("   ");
            (ProgressStatus::Waiting, text.trim_end().to_owned(), None)
        }
        RunState::Applying { since: at, .. } => {
            let verb = match set.request.action {
                Action::Destroy => "destroying",
                Action::Exec => "the engine is at work",
                Action::Plan | Action::Apply => "applying",
            };
            (ProgressStatus::Running, busy(verb), since(*at))
        }
        RunState::Applied { outcome, .. } => {
            let (_, text) = finished(outcome, set.request.action);
            (ProgressStatus::Waiting, text, None)
        }
        RunState::Completing {
            part, since: at, ..
        } => (ProgressStatus::Running, busy(part.part_word()), since(*at)),
        RunState::Finished { outcome, .. } => {
            let (mark, mut text) = finished(outcome, set.request.action);
            if before.contains(&run.id) && matches!(outcome, Outcome::Applied { .. }) {
                text = format!("{} before", past(set.request.action));
            }
            text.push_str(&stages(run, outcome, set));
            (mark, text, None)
        }
    };
    ProgressRow {
        stack: run.stack.to_string(),
        mark,
        text,
        elapsed,
    }
}

/// The stages after the apply that passed: `, facts published, verified`.
fn stages(run: &Run, outcome: &Outcome, set: &ChangeSet) -> String {
    match outcome {
        Outcome::Applied { .. } | Outcome::Unchanged => {}
        Outcome::Planned { .. }
        | Outcome::Deferred { .. }
        | Outcome::Untouched
        | Outcome::Failed { .. }
        | Outcome::NotDone { .. }
        | Outcome::Skipped { .. }
        | Outcome::Unknown { .. } => return String::new(),
    }
    let skips = set.request.exceptions.iter().flat_map(|it| &it.skip_gates);
    let skips = skips.filter(|one| one.stack == run.stack).count();
    let words = run.stages.iter().filter_map(|stage| match stage {
        Stage::Publishing if set.request.action == Action::Destroy => Some(", facts withdrawn"),
        Stage::Publishing if run.state.published() == Some(false) => Some(", facts unchanged"),
        Stage::Publishing => Some(", facts published"),
        Stage::Bootstrapping => Some(", bootstrapped"),
        Stage::Verifying if skips > 0 => Some(", verified except for skipped gates"),
        Stage::Verifying => Some(", verified"),
        Stage::Preparing | Stage::Planning | Stage::Applying => None,
    });
    words.collect()
}

fn past(action: Action) -> &'static str {
    match action {
        Action::Destroy => "destroyed",
        Action::Plan | Action::Apply | Action::Exec => "applied",
    }
}

fn finished(outcome: &Outcome, action: Action) -> (ProgressStatus, String) {
    match outcome {
        Outcome::Planned { plan } => (
            ProgressStatus::Done,
            format!("planned {}", counts(plan.counts)),
        ),
        Outcome::Deferred { preview, .. } => (ProgressStatus::Skipped, previewed(preview)),
        Outcome::Unchanged if action == Action::Exec => (ProgressStatus::Done, "done".to_owned()),
        Outcome::Unchanged => (ProgressStatus::Unchanged, "no changes".to_owned()),
        Outcome::Untouched => (
            ProgressStatus::Skipped,
            "untouched: nothing it consumes changes".to_owned(),
        ),
        Outcome::Applied { counts: done, .. } => {
            let words = match action {
                Action::Destroy => format!("destroyed {}", count(done.delete, "resource")),
                Action::Exec => "done".to_owned(),
                Action::Plan | Action::Apply => format!("applied {}", counts(*done)),
            };
            (ProgressStatus::Done, words)
        }
        Outcome::Failed { problem } if problem.interrupted => {
            (ProgressStatus::Failed, "interrupted".to_owned())
        }
        Outcome::Failed { problem } if problem.policy.lacks_only_approvals() => (
            ProgressStatus::Failed,
            "not approved as policy requires".to_owned(),
        ),
        Outcome::Failed { problem } if problem.policy.denies() => {
            (ProgressStatus::Failed, "denied by policy".to_owned())
        }
        Outcome::Failed { problem } => (
            ProgressStatus::Failed,
            format!("failed: {}", problem.brief()),
        ),
        Outcome::NotDone { problem, .. } => {
            let first = problem.message.lines().next().unwrap_or_default();
            let done = past(action);
            (
                ProgressStatus::Failed,
                format!("{done}, {}: {first}", outcome.word()),
            )
        }
        Outcome::Skipped {
            because: SkipReason::UpstreamFailed { by, .. },
        } => (
            ProgressStatus::Skipped,
            format!("skipped: `{by}` did not succeed"),
        ),
        Outcome::Skipped {
            because: because @ SkipReason::StillNeeded { .. },
        } => (
            ProgressStatus::Failed,
            format!("not destroyed: {}", because.words()),
        ),
        Outcome::Skipped {
            because: because @ SkipReason::Undermined { .. },
        } => (
            ProgressStatus::Failed,
            format!("not applied: {}", because.words()),
        ),
        Outcome::Skipped { .. } => (ProgressStatus::Skipped, "skipped".to_owned()),
        Outcome::Unknown { .. } => (
            ProgressStatus::Unknown,
            "unknown: its runner was lost".to_owned(),
        ),
    }
}

/// How far a deferred plan could be previewed.
fn previewed(preview: &Preview) -> String {
    match preview {
        Preview::None => "deferred".to_owned(),
        Preview::Planned { plan } => format!("deferred, {} so far", counts(plan.counts)),
        Preview::Unchanged => "deferred, no changes so far".to_owned(),
        Preview::Impossible { .. } => "deferred, no preview".to_owned(),
    }
}

/// What a queued run waits for.
pub(super) fn why_queued(run: &Run, runs: &[Run]) -> String {
    let open: Vec<String> = run
        .upstreams
        .iter()
        .filter(|need| {
            runs.iter()
                .any(|other| other.stack == need.stack && is_open(other))
        })
        .map(|need| format!("`{}`", need.stack))
        .collect();
    if open.is_empty() {
        "waits for its turn".to_owned()
    } else {
        format!("waits for {}", open.join(", "))
    }
}

/// `planned 3 changes`, or how many resources a destroy removes.
fn planned(counts: PlanCounts, action: Action) -> String {
    let all = counts.delete;
    match action {
        Action::Destroy if all == 1 => "planned to destroy 1 resource".to_owned(),
        Action::Destroy if all > 1 => format!("planned to destroy {all} resources"),
        Action::Destroy | Action::Plan | Action::Apply | Action::Exec => {
            format!("planned {}", self::counts(counts))
        }
    }
}

fn counts(counts: PlanCounts) -> String {
    let resources = counts.create + counts.update + counts.replace + counts.delete;
    let parts = [
        (resources, "change"),
        (counts.drift, "drifted resource"),
        (counts.import, "import"),
        (counts.moved, "move"),
        (counts.forget, "removal from state"),
    ];
    let words: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, noun)| format!("{number} {noun}{}", if *number == 1 { "" } else { "s" }))
        .collect();
    match (words.is_empty(), counts.outputs) {
        (false, _) => words.join(", "),
        (true, 1) => "1 output".to_owned(),
        (true, outputs) => format!("{outputs} outputs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destroy_is_planned_as_one() {
        let counts = |delete| PlanCounts {
            delete,
            ..PlanCounts::default()
        };
        let words = |delete, action| planned(counts(delete), action);
        assert_eq!(words(4, Action::Destroy), "planned to destroy 4 resources");
        assert_eq!(words(1, Action::Destroy), "planned to destroy 1 resource");
        assert_eq!(words(4, Action::Apply), "planned 4 changes");
    }
}
