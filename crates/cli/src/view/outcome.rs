//! The outcome of a change set: what was done, what failed and why, what was skipped because of it, and the
//! next step.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::diagnostics::{self, DiagnosticView};
use super::duration::human;
use super::errors;
use super::progress::ProgressStatus;
use super::style::ViewOptions;
use super::text::{self, clean, count};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeReport {
    /// `c42`
    pub change_set: String,
    pub action: ReportedAction,
    pub elapsed: Duration,
    pub stacks: Vec<StackOutcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedAction {
    Apply,
    /// Apply plans from a file that were made before.
    ApplyBundle,
    Destroy,
    /// Plan only.
    Plan,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackOutcome {
    pub stack: String,
    pub result: StackResult,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackResult {
    /// Applied or destroyed.
    Changed,
    /// Applied or destroyed before this command started.
    Before,
    /// Planned, without changes.
    Unchanged,
    /// Not planned: neither the stack nor anything that it uses changed.
    Untouched,
    /// Not started, although no stack before it failed: a user stopped or declined it.
    Skipped,
    /// Not started, because a user cancelled the change set.
    Cancelled,
    /// Not started, because a stack before it did not succeed.
    UpstreamFailed {
        by: String,
        /// The stacks between, nearest to `by` first.
        through: Vec<String>,
    },
    /// Not destroyed, because another stack depends on it.
    StillNeeded {
        why: String,
    },
    /// Not applied, because a stack that it depends on is being destroyed.
    Undermined {
        why: String,
    },
    /// A policy denied it, before or after it was planned.
    Denied(StackFailure),
    /// A policy requires approvals that are missing.
    NotApproved(StackFailure),
    Failed(StackFailure),
    /// Applied or destroyed, but a stage after it did not pass.
    NotDone(UnfinishedStack),
    /// Stopped by a user.
    Interrupted(StackFailure),
    /// The runner was lost: the change may or may not have happened.
    Unknown(StackFailure),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedStack {
    pub failure: StackFailure,
    /// `r44`
    pub run: String,
    /// It was stopped: nothing is broken.
    pub is_interrupted: bool,
    /// The stage can be retried; otherwise the printed lines name the next step.
    pub can_go_on: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFailure {
    /// The stage it was in: `planning`, `applying`.
    pub stage: String,
    pub after: Duration,
    /// Why, in terrane's words; may be empty if the engine's diagnostics are enough.
    pub lines: Vec<String>,
    pub diagnostics: Vec<DiagnosticView>,
    pub kept: Option<SavedState>,
    /// The run, such as `r44`, whose engine created resources that no state records: an apply would create
    /// them again.
    pub made_by: Option<String>,
}

/// The state that a failure left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedState {
    pub serial: u64,
    /// Resources changed before the failure.
    pub changed: usize,
    /// Resources that were in progress: the next plan shows what became of them.
    pub begun: usize,
}

impl OutcomeReport {
    pub fn is_success(&self) -> bool {
        self.stacks.iter().all(|stack| match stack.result {
            StackResult::Changed
            | StackResult::Before
            | StackResult::Unchanged
            | StackResult::Untouched
            | StackResult::Skipped
            | StackResult::Cancelled => true,
            StackResult::UpstreamFailed { .. }
            | StackResult::StillNeeded { .. }
            | StackResult::Undermined { .. }
            | StackResult::Denied(_)
            | StackResult::NotApproved(_)
            | StackResult::Failed(_)
            | StackResult::NotDone(_)
            | StackResult::Interrupted(_)
            | StackResult::Unknown(_) => false,
        })
    }
}

/// `Done: …` if everything succeeded, else everything that did not, in full.
pub fn render(outcome: &OutcomeReport, look: ViewOptions) -> String {
    if outcome.is_success() {
        return format!("{}\n", done(outcome));
    }
    let widest = outcome
        .stacks
        .iter()
        .map(|stack| text::width(&clean(&stack.stack)))
        .max();
    let mut out = String::new();
    for stack in &outcome.stacks {
        let name = text::pad(&clean(&stack.stack), widest.unwrap_or(0));
        out.push_str(&stack_block(&stack.result, outcome.action, &name, look));
    }
    out.push('\n');
    out.push_str(&verdict(outcome, look));
    out
}

/// `Done: 2 stacks applied, 1 unchanged, 1 untouched in 4 m 12 s.`, or `Cancelled after 3 s: 1 stack not begun.`
fn done(outcome: &OutcomeReport) -> String {
    let tally = Tally::of(outcome);
    let counts = [
        (tally.changed, outcome.action.past()),
        (tally.before, outcome.action.past_before()),
        (tally.unchanged, "unchanged"),
        (tally.untouched, "untouched"),
        (tally.skipped, "skipped"),
        (tally.cancelled, "not begun"),
    ];
    let mut parts: Vec<String> = counts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{number} {word}"))
        .collect();
    let Some(first) = counts.iter().find(|(number, _)| *number > 0) else {
        return "Done: there was nothing to do.".to_owned();
    };
    // Only the first count has the noun.
    parts[0] = format!("{} {}", count(first.0, "stack"), first.1);
    let (parts, took) = (parts.join(", "), human(outcome.elapsed));
    if tally.cancelled > 0 {
        return format!("Cancelled after {took}: {parts}.");
    }
    format!("Done: {parts} in {took}.")
}

/// A stack of a change set that did not succeed; a stack without a problem needs no line.
fn stack_block(
    result: &StackResult,
    action: ReportedAction,
    name: &str,
    look: ViewOptions,
) -> String {
    let line =
        |mark: ProgressStatus, words: &str| format!("{} {name}   {words}\n", mark.painted(look));
    match result {
        StackResult::Changed
        | StackResult::Before
        | StackResult::Unchanged
        | StackResult::Untouched
        | StackResult::Skipped
        | StackResult::Cancelled => String::new(),
        StackResult::UpstreamFailed { by, through } => {
            let quoted = |stack: &String| format!("`{}`", clean(stack));
            let between: Vec<String> = through.iter().map(quoted).collect();
            let way = match between.as_slice() {
                [] => String::new(),
                between => format!(" (through {})", text::list(between)),
            };
            line(
                ProgressStatus::Skipped,
                &format!("skipped: {} did not succeed{way}", quoted(by)),
            )
        }
        StackResult::StillNeeded { why } => line(
            ProgressStatus::Failed,
            &format!("not destroyed: {}", clean(why)),
        ),
        StackResult::Undermined { why } => line(
            ProgressStatus::Failed,
            &format!("not applied: {}", clean(why)),
        ),
        StackResult::Denied(failure) => {
            let headline = format!("denied by policy while {}", clean(&failure.stage));
            line(ProgressStatus::Failed, &headline) + &failure.body("the denial", look)
        }
        StackResult::NotApproved(failure) => {
            line(ProgressStatus::Failed, "not approved as policy requires")
                + &failure.body("the refusal", look)
        }
        StackResult::Failed(failure) => {
            line(ProgressStatus::Failed, &failure.headline("failed while"))
                + &failure.body("the failure", look)
        }
        StackResult::NotDone(not_done) => {
            let failure = &not_done.failure;
            // In `applying`, only the hooks after the apply are left to fail.
            let how = match failure.stage.as_str() {
                _ if not_done.is_interrupted => "interrupted while",
                "applying" => "a hook failed after",
                _ => "failed while",
            };
            let how = format!("{}: {how}", action.not_done());
            line(ProgressStatus::Failed, &failure.headline(&how))
                + &failure.body("the failure", look)
        }
        StackResult::Interrupted(failure) => {
            line(
                ProgressStatus::Failed,
                &failure.headline("interrupted while"),
            ) + &failure.body("the interruption", look)
        }
        StackResult::Unknown(failure) => {
            line(
                ProgressStatus::Unknown,
                &failure.headline("unknown: lost while"),
            ) + &failure.body("it was lost", look)
        }
    }
}

impl StackFailure {
    fn headline(&self, how: &str) -> String {
        format!("{how} {}, after {}", clean(&self.stage), human(self.after))
    }

    /// The lines below the headline; `end` names what ended the run: a failure, an interruption.
    fn body(&self, end: &str, look: ViewOptions) -> String {
        let lines = self
            .lines
            .iter()
            .flat_map(|line| text::wrap(line, look.room(4)));
        let mut out: String = lines
            .flat_map(|line| ["    ".to_owned(), line, "\n".to_owned()])
            .collect();
        for diagnostic in &self.diagnostics {
            out.push_str(&diagnostics::render(diagnostic, 4, look));
        }
        if let Some(kept) = self.kept {
            let changed = match (kept.changed, kept.begun) {
                (0, 0) => "nothing changed".to_owned(),
                (0, begun) => format!("{} begun, none finished", count(begun, "resource")),
                (n, 0) => format!("{} changed", count(n, "resource")),
                (n, begun) => format!("{} changed, {begun} begun", count(n, "resource")),
            };
            let serial = kept.serial;
            let words = format!("state kept: serial {serial} ({changed} before {end})");
            for line in text::wrap(&words, look.room(4)) {
                out.extend(["    ", &line, "\n"]);
            }
        }
        out
    }
}

/// `error: change set c42 stopped: 1 failed, 2 skipped, 1 unchanged`, and the next step.
fn verdict(outcome: &OutcomeReport, look: ViewOptions) -> String {
    let tally = Tally::of(outcome);
    let counts = [
        (tally.denied, "denied"),
        (tally.not_approved, "not approved"),
        (tally.failed, "failed"),
        (tally.not_done, outcome.action.past_but_not_done()),
        (tally.interrupted, "interrupted"),
        (tally.unknown, "unknown"),
        (tally.skipped + tally.cancelled, "skipped"),
        (tally.changed, outcome.action.past()),
        (tally.before, outcome.action.past_before()),
        (tally.unchanged, "unchanged"),
        (tally.untouched, "untouched"),
    ];
    let parts: Vec<String> = counts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{number} {word}"))
        .collect();
    let id = clean(&outcome.change_set);
    let message = format!("change set {id} stopped: {}", parts.join(", "));
    errors::render(&message, &[], &way_on(outcome, &tally), look)
}

fn way_on(outcome: &OutcomeReport, tally: &Tally) -> Vec<String> {
    let mut hints: Vec<String> = outcome
        .stacks
        .iter()
        .filter(|stack| matches!(stack.result, StackResult::Unknown(_)))
        .map(|stack| {
            let stack = clean(&stack.stack);
            format!("`terrane plan {stack}` shows what is left to do in `{stack}`")
        })
        .collect();
    let needed = outcome.stacks.iter();
    let needed = needed.filter(|stack| matches!(stack.result, StackResult::StillNeeded { .. }));
    hints.extend(needed.map(|stack| {
        let stack = clean(&stack.stack);
        format!("`terrane destroy {stack}+` destroys its dependents first")
    }));
    let lost = outcome.stacks.iter();
    let lost = lost.filter(|stack| matches!(stack.result, StackResult::Undermined { .. }));
    hints.extend(lost.map(|stack| {
        let stack = clean(&stack.stack);
        format!("when that is over, `terrane apply +{stack}` applies it with its dependencies")
    }));
    let not_done: Vec<&UnfinishedStack> = outcome
        .stacks
        .iter()
        .filter_map(|stack| match &stack.result {
            StackResult::NotDone(not_done) => Some(not_done),
            _ => None,
        })
        .collect();
    let others =
        tally.denied + tally.not_approved + tally.failed + tally.interrupted + tally.unknown;
    let command = match (outcome.action, not_done.as_slice()) {
        // Only one run, and those that wait for it, are left.
        (ReportedAction::Apply | ReportedAction::ApplyBundle, [only]) if others == 0 => {
            if !only.can_go_on {
                return hints; // its printed lines name the next step
            }
            format!("`terrane run retry {}` continues there", clean(&only.run))
        }
        (ReportedAction::Apply, _) => format!(
            "`terrane apply --resume {}` runs what is left",
            clean(&outcome.change_set)
        ),
        // The plans of a bundle are made once, and not again.
        (ReportedAction::ApplyBundle, _) => {
            "`terrane plan --out FILE` plans what is left into a new one".to_owned()
        }
        (ReportedAction::Plan, _) => "`terrane plan` plans again".to_owned(),
        (ReportedAction::Destroy, [_, ..]) if others == 0 => {
            "the same command again checks what is left".to_owned()
        }
        (ReportedAction::Destroy, _) => "the same command again destroys what is left".to_owned(),
    };
    let is_broken = tally.failed > 0 || not_done.iter().any(|one| !one.is_interrupted);
    // The lines of an unapproved stack name the next step.
    if tally.denied > 0 {
        hints.push(format!("change what is denied, then {command}"));
        let past = past_policy(outcome);
        hints.push(format!(
            "in an emergency, {past} overrides it; the override is recorded"
        ));
    } else if is_broken {
        let made_by = outcome
            .stacks
            .iter()
            .filter_map(|stack| match &stack.result {
                StackResult::Failed(failure) => failure.made_by.as_deref(),
                _ => None,
            });
        let imports: Vec<String> = made_by
            .map(|run| format!("`terrane run imports {}`", clean(run)))
            .collect();
        hints.push(match imports.as_slice() {
            [] => format!("fix the cause, then {command}"),
            some => format!(
                "fix the cause and import what {} names, then {command}",
                text::list(some)
            ),
        });
    } else if tally.interrupted + tally.not_done > 0
        || outcome.action == ReportedAction::ApplyBundle
            && others == 0
            && hints.is_empty()
            && tally.skipped > 0
    {
        hints.push(command);
    }
    hints
}

/// The command that overrides policies, whichever one denied it: a confirmation has no such option.
fn past_policy(outcome: &OutcomeReport) -> String {
    const OPTIONS: &str = "--override-policy --reason \"…\"";
    match outcome.action {
        ReportedAction::Apply => {
            let id = clean(&outcome.change_set);
            format!("`terrane apply --resume {id} {OPTIONS}`")
        }
        ReportedAction::ApplyBundle => format!("`terrane apply FILE {OPTIONS}`"),
        ReportedAction::Destroy => format!("the same `terrane destroy` with `{OPTIONS}`"),
        ReportedAction::Plan => format!("`terrane apply` of the same with `{OPTIONS}`"),
    }
}

impl ReportedAction {
    fn not_done(self) -> &'static str {
        match self {
            Self::Apply | Self::ApplyBundle => "applied, not done",
            Self::Destroy => "destroyed, not done",
            Self::Plan => "planned, not done",
        }
    }

    /// For lists, in which a comma would look like the next item.
    fn past_but_not_done(self) -> &'static str {
        match self {
            Self::Apply | Self::ApplyBundle => "applied but not done",
            Self::Destroy => "destroyed but not done",
            Self::Plan => "planned but not done",
        }
    }

    fn past_before(self) -> &'static str {
        match self {
            Self::Apply | Self::ApplyBundle => "applied before",
            Self::Destroy => "destroyed before",
            Self::Plan => "planned before",
        }
    }

    fn past(self) -> &'static str {
        match self {
            Self::Apply | Self::ApplyBundle => "applied",
            Self::Destroy => "destroyed",
            Self::Plan => "planned",
        }
    }
}

#[derive(Default)]
struct Tally {
    changed: usize,
    before: usize,
    unchanged: usize,
    untouched: usize,
    skipped: usize,
    cancelled: usize,
    denied: usize,
    not_approved: usize,
    failed: usize,
    not_done: usize,
    interrupted: usize,
    unknown: usize,
}

impl Tally {
    fn of(outcome: &OutcomeReport) -> Self {
        let mut tally = Self::default();
        for stack in &outcome.stacks {
            let number = match stack.result {
                StackResult::Changed => &mut tally.changed,
                StackResult::Before => &mut tally.before,
                StackResult::Unchanged => &mut tally.unchanged,
                StackResult::Untouched => &mut tally.untouched,
                StackResult::Skipped
                | StackResult::UpstreamFailed { .. }
                | StackResult::StillNeeded { .. }
                | StackResult::Undermined { .. } => &mut tally.skipped,
                StackResult::Cancelled => &mut tally.cancelled,
                StackResult::Denied(_) => &mut tally.denied,
                StackResult::NotApproved(_) => &mut tally.not_approved,
                StackResult::Failed(_) => &mut tally.failed,
                StackResult::NotDone(_) => &mut tally.not_done,
                StackResult::Interrupted(_) => &mut tally.interrupted,
                StackResult::Unknown(_) => &mut tally.unknown,
            };
            *number += 1;
        }
        tally
    }
}
