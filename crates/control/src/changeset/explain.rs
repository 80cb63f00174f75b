//! Explains runs and change sets to users, and records their approvals.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use model::base::actor::Actor;
use model::base::error::Explain;
use model::base::ids::{ChangeSetId, RunId};
use model::run::approval::{
    Approval, MissingApproval, missing_approvals, missing_policy_approvals,
};
use model::run::changeset::{
    Action, ChangeSet, DecisionContext, LaneBlocker, SetEvent, Status, next, stage_held, why,
    why_set,
};
use model::run::hold::{Hold, HoldOn};
use model::run::{Outcome, Run, RunEvent, RunState, Stage};
use store::ChangeSetError;

use crate::Control;
use crate::changeset::orphan_processes;
use crate::run::lock::RunLock;
use crate::run::logs::RunLog;
use crate::run::{client_presence, liveness};

/// How long a new change set may take to continue before that is reported.
const A_MOMENT: SignedDuration = SignedDuration::from_secs(3);

/// A change set with everything that explains it.
#[derive(Clone, Debug)]
pub struct ChangeSetDetails {
    pub set: ChangeSet,
    pub runs: Vec<Run>,
    pub approvals: Vec<Approval>,
    pub holds: Vec<Hold>,
    pub front: Option<LaneBlocker>,
    /// It is next in the queue, and a client is attached.
    pub is_watched: bool,
    /// Processes on this machine that block runs.
    pub in_the_way: BTreeMap<RunId, String>,
    /// Current work of stages after an apply.
    pub at_work: BTreeMap<RunId, String>,
    pub now: Timestamp,
}

impl ChangeSetDetails {
    fn around(&self) -> DecisionContext<'_> {
        DecisionContext {
            holds: &self.holds,
            approvals: &self.approvals,
            now: self.now,
        }
    }

    /// Why it is blocked although it is fully confirmed: processes that are gone, or that should be.
    pub fn stalls(&self) -> Option<String> {
        let (run, words) = self.in_the_way.first_key_value()?;
        Some(format!("run {run}: {words}"))
    }

    /// Whether it continues as soon as a client checks it.
    pub fn goes_on(&self) -> bool {
        match self.set.status {
            Status::Waiting => self.front.is_none(),
            Status::AwaitingConfirm => !next(&self.set, &self.runs, &self.around()).is_empty(),
            Status::Planning
            | Status::Confirmed
            | Status::Interrupting
            | Status::Finished
            | Status::Stopped { .. }
            | Status::Superseded { .. } => false,
        }
    }

    /// Why it does not continue.
    pub fn why(&self) -> Option<String> {
        let why = why_set(&self.set, &self.runs, &self.around(), self.front.as_ref());
        why.or_else(|| self.turn_has_come())
    }

    /// The reason if it is first in the queue and has not continued.
    fn turn_has_come(&self) -> Option<String> {
        let is_new = self.now.duration_since(self.set.created_at) < A_MOMENT;
        if self.set.status != Status::Waiting || self.front.is_some() {
            return None;
        }
        Some(if self.is_watched && is_new {
            "first in the queue: its client starts it now".to_owned()
        } else if self.is_watched {
            "first in the queue: its client did not start it; if it is suspended, `fg` continues it"
                .to_owned()
        } else {
            "first in the queue, without a client; the next `terrane plan` or `terrane apply` here continues it"
                .to_owned()
        })
    }

    /// Why a run is in its current state.
    pub fn why_run(&self, run: &Run) -> Option<String> {
        if let Some(words) = self.in_the_way.get(&run.id) {
            return Some(words.clone());
        }
        if let Some(words) = self.at_work.get(&run.id) {
            return Some(words.clone());
        }
        let around = self.around();
        let why = why(&self.set, &self.runs, run, &around, self.front.as_ref());
        why.or_else(|| self.turn_has_come())
    }

    /// The hold that alone blocks it: all plans are confirmed and approved.
    pub fn plan_hold(&self) -> Option<&Hold> {
        let mut planned = self
            .runs
            .iter()
            .filter(|run| matches!(run.state, RunState::Planned { .. }))
            .peekable();
        planned.peek()?;
        let is_said = |run: &&Run| {
            matches!(
                run.state,
                RunState::Planned {
                    confirmed: true,
                    ..
                }
            )
        };
        let is_waiting =
            self.set.status == Status::AwaitingConfirm && self.missing_approvals().is_empty();
        if !is_waiting || !planned.clone().all(|run| is_said(&run)) {
            return None;
        }
        planned.find_map(|run| {
            let on = HoldOn::Stack(run.stack.clone());
            self.holds.iter().find(|hold| hold.on == on)
        })
    }

    /// The hold that alone blocks it: everything is applied, and a later stage may not start.
    pub fn stage_hold(&self) -> Option<&Hold> {
        let is_planned = |run: &Run| matches!(run.state, RunState::Planned { .. });
        if self.set.status != Status::AwaitingConfirm || self.runs.iter().any(is_planned) {
            return None;
        }
        let around = self.around();
        let held = self.runs.iter().find_map(|run| stage_held(&around, run))?;
        self.holds.iter().find(|hold| hold.id == held.id)
    }

    /// The approvals that are missing before it may be confirmed.
    pub fn missing_approvals(&self) -> Vec<MissingApproval> {
        missing_approvals(&self.set, &self.runs, &self.approvals, self.now)
    }

    /// The approvals that policies required at the apply and that are missing. A resume continues the change
    /// set.
    pub fn missing_before_resume(&self) -> Vec<MissingApproval> {
        let request = &self.set.request;
        let is_resumed = request.action == Action::Apply && request.bundle.is_none();
        if !is_resumed || !matches!(self.set.status, Status::Stopped { .. }) {
            return Vec::new();
        }
        let wanted = self.runs.iter().flat_map(|run| {
            let wanted = run.state.refused_for().iter();
            wanted.filter_map(move |it| {
                missing_policy_approvals(&self.set, run, it, &self.approvals, self.now)
            })
        });
        wanted.collect()
    }

    /// The name of a run's state, in combination with that of its change set.
    pub fn word(&self, run: &Run) -> &'static str {
        if self.set.request.action == Action::Exec {
            return exec_word(&run.state);
        }
        match (&run.state, &self.set.status) {
            (
                RunState::Queued | RunState::Deferred { .. } | RunState::Planned { .. },
                Status::Superseded { .. },
            ) => "superseded",
            (RunState::Planned { .. }, Status::AwaitingConfirm)
                if !self.missing_approvals().is_empty() =>
            {
                "awaiting approval"
            }
            (RunState::Planned { .. }, Status::AwaitingConfirm) => "awaiting confirmation",
            (RunState::Planned { .. }, Status::Waiting) => "queued",
            // A run that a person stopped is not shown as failed.
            (
                RunState::Finished {
                    outcome: Outcome::Failed { problem },
                    ..
                },
                _,
            ) if problem.interrupted => "interrupted",
            (
                RunState::Finished {
                    outcome: Outcome::NotDone { .. },
                    ..
                },
                _,
            ) => self.set.request.action.not_done(),
            (state, _) if self.set.request.action == Action::Destroy => match state.word() {
                "applying" => "destroying",
                "applied" => "destroyed",
                word => word,
            },
            (state, _) => state.word(),
        }
    }
}

/// The name of an engine command's state. It has no plan.
fn exec_word(state: &RunState) -> &'static str {
    match state {
        RunState::Queued | RunState::Deferred { .. } | RunState::Planned { .. } => "queued",
        RunState::Planning { .. } => "preparing",
        RunState::Applying { .. } | RunState::Applied { .. } | RunState::Completing { .. } => {
            "running"
        }
        RunState::Finished { outcome, .. } => match outcome {
            Outcome::Planned { .. }
            | Outcome::Deferred { .. }
            | Outcome::Unchanged
            | Outcome::Untouched
            | Outcome::Applied { .. } => "done",
            Outcome::Failed { .. }
            | Outcome::NotDone { .. }
            | Outcome::Skipped { .. }
            | Outcome::Unknown { .. } => outcome.word(),
        },
    }
}

pub async fn explain(
    control: &Control,
    id: ChangeSetId,
) -> Result<ChangeSetDetails, ChangeSetError> {
    let store = &control.store;
    let now = control.now();
    let set = store.change_set_get(id).await?;
    let front = match set.status {
        Status::Waiting => store.change_set_lane_blocker(id, now).await?,
        Status::Planning
        | Status::AwaitingConfirm
        | Status::Confirmed
        | Status::Interrupting
        | Status::Finished
        | Status::Stopped { .. }
        | Status::Superseded { .. } => None,
    };
    let runs = store.run_list(id).await?;
    let mut in_the_way = orphan_processes::in_the_way(control, &set, &runs);
    in_the_way.extend(lost(control, &set, &runs).await?);
    let is_here = !liveness::is_elsewhere(control, &set);
    let mut at_work = BTreeMap::new();
    for run in runs.iter().filter(|_| is_here) {
        if run.state.is_running()
            && let Some(alone) = orphan_processes::engine_alone(&control.home, run.id)
        {
            in_the_way.insert(run.id, alone); // no other process retries anything
        }
        if let RunState::Completing { part, .. } = run.state
            && let Some(said) = last_said(control, run.id, part)
        {
            at_work.insert(run.id, said);
        }
    }
    if liveness::is_gone(control, &set, &runs) {
        for run in runs.iter().filter(|run| !run.state.is_finished()) {
            let words = || {
                "its processes are gone: the next `terrane plan` or `terrane apply` here ends it"
                    .to_owned()
            };
            in_the_way.entry(run.id).or_insert_with(words);
        }
    }
    let is_next = set.status == Status::Waiting && front.is_none();
    let is_watched = is_next
        && (liveness::is_elsewhere(control, &set)
            || client_presence::unattended(control, &set).is_none());
    Ok(ChangeSetDetails {
        is_watched,
        in_the_way,
        at_work,
        runs,
        approvals: store.approval_list(id).await?,
        holds: store.hold_list_active(&set.request.project, now).await?,
        set,
        front,
        now,
    })
}

/// The active run of a stack. Another user may have planned it in the meantime.
pub async fn at_work(control: &Control, stack: &str) -> Result<Option<Run>, ChangeSetError> {
    let store = &control.store;
    let open = store.change_set_list_open(control.home.project()).await?;
    for set in open.iter().rev() {
        let mut runs = store.run_list(set.id).await?.into_iter();
        let is_meant = |run: &Run| run.stack.as_str() == stack && run.state.is_running();
        if let Some(run) = runs.find(is_meant) {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

/// The current work of a stage after the apply.
fn last_said(control: &Control, run: RunId, part: Stage) -> Option<String> {
    let lines = RunLog::new(&control.home, run, Some(part), None).read_new();
    let last = lines.into_iter().next_back()?.event.message;
    Some(last.lines().next()?.to_owned())
}

/// Runs that have lost all their processes, which no process has noticed yet.
async fn lost(
    control: &Control,
    set: &ChangeSet,
    runs: &[Run],
) -> Result<Vec<(RunId, String)>, ChangeSetError> {
    let mut lost = Vec::new();
    let running = runs.iter().filter(|run| run.state.is_running());
    for run in running.filter(|run| !RunLock::is_held(&control.home, run.id)) {
        // It may be alive on another machine, or have ended in the meantime.
        let now = control.store.run_get(run.id).await?;
        if !liveness::is_elsewhere(control, set) && now.is_some_and(|now| now.state == run.state) {
            let words = format!(
                "its processes are gone: `terrane run logs {}` ends it and shows how far it came",
                run.id
            );
            lost.push((run.id, words));
        }
    }
    Ok(lost)
}

/// Which change sets to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeSetFilter {
    /// Change sets that are not over.
    Open,
    /// The newest, over or not.
    Newest(i64),
}

/// Newest first.
pub async fn list(
    control: &Control,
    which: ChangeSetFilter,
) -> Result<Vec<ChangeSetDetails>, ChangeSetError> {
    let project = control.home.project();
    let sets = match which {
        ChangeSetFilter::Open => {
            let mut open = control.store.change_set_list_open(project).await?;
            open.reverse();
            open
        }
        ChangeSetFilter::Newest(limit) => {
            let newest = control.store.change_set_list_newest(project, limit);
            newest.await?
        }
    };
    let mut explained = Vec::new();
    for set in sets {
        explained.push(explain(control, set.id).await?);
    }
    Ok(explained)
}

/// An event of a change set or of one of its runs.
#[derive(Clone, Debug)]
pub enum HistoryEvent {
    Set(SetEvent),
    Run(RunId, Box<RunEvent>),
}

pub async fn history(
    control: &Control,
    set: ChangeSetId,
) -> Result<Vec<(Timestamp, HistoryEvent)>, ChangeSetError> {
    let store = &control.store;
    let of_set = store.change_set_events(set).await?;
    let mut of_runs = Vec::new();
    for run in store.run_list(set).await? {
        let events = store.run_events(run.id).await?.into_iter();
        of_runs.extend(events.map(|(at, event)| (at, run.id, event)));
    }
    Ok(in_order(of_set, of_runs))
}

fn in_order(
    of_set: Vec<(Timestamp, SetEvent)>,
    of_runs: Vec<(Timestamp, RunId, RunEvent)>,
) -> Vec<(Timestamp, HistoryEvent)> {
    let mut all = Vec::new();
    let mut of_set = of_set.into_iter().peekable();
    while let Some((at, event)) = of_set.next() {
        let is_last = of_set.peek().is_none_or(|(next, _)| *next != at);
        let order = order_of_set(&event, is_last);
        all.push((at, order, HistoryEvent::Set(event)));
    }
    let mut before = None;
    for (at, run, event) in of_runs {
        // Events that came with a bundle happened elsewhere: a run's own events stay in their order.
        let earlier = before.filter(|(moment, of, _)| (*moment, *of) == (at, run));
        let order = order_of_run(&event);
        let order = earlier.map_or(order, |(_, _, earlier)| order.max(earlier));
        before = Some((at, run, order));
        all.push((at, order, HistoryEvent::Run(run, Box::new(event))));
    }
    all.sort_by_key(|(at, order, _)| (*at, *order));
    let all = all.into_iter().map(|(at, _, happened)| (at, happened));
    all.collect()
}

/// Events of one moment are committed together, in this order. First the runner's report, then its effect on
/// the change set, then on its runs, then the end of the change set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventOrder {
    Told,
    Set,
    Run,
    End,
}

/// A change set that comes to rest and continues at once has not ended there: its own events stay in their
/// order.
fn order_of_set(event: &SetEvent, is_last: bool) -> EventOrder {
    match event {
        SetEvent::Requested { .. }
        | SetEvent::Confirmed { .. }
        | SetEvent::LanesTaken
        | SetEvent::Reopened { .. }
        | SetEvent::Interrupted { .. }
        | SetEvent::Discarded { .. }
        | SetEvent::Rejected { .. }
        | SetEvent::Superseded { .. }
        | SetEvent::Abandoned { .. } => EventOrder::Set,
        SetEvent::CameToRest
        | SetEvent::Completed
        | SetEvent::Failed { .. }
        | SetEvent::WoundDown => {
            if is_last {
                EventOrder::End
            } else {
                EventOrder::Set
            }
        }
    }
}

fn order_of_run(event: &RunEvent) -> EventOrder {
    match event {
        RunEvent::Previewed { .. }
        | RunEvent::NothingToChange { .. }
        | RunEvent::PlanFinished { .. }
        | RunEvent::PolicyAsked { .. }
        | RunEvent::PlanVoided { .. }
        | RunEvent::ApplyPutOff { .. }
        | RunEvent::ApplyFinished { .. }
        | RunEvent::StageFinished { .. }
        | RunEvent::Failed { .. }
        | RunEvent::RunnerLost { .. } => EventOrder::Told,
        RunEvent::PlanStarted
        | RunEvent::PreviewStarted { .. }
        | RunEvent::NothingConsumed { .. }
        | RunEvent::Deferred { .. }
        | RunEvent::Confirmed
        | RunEvent::ApplyStarted
        | RunEvent::StageStarted { .. }
        | RunEvent::Skipped { .. }
        | RunEvent::CancelAsked { .. }
        | RunEvent::Reopened { .. } => EventOrder::Run,
    }
}

/// An approval and its author.
#[derive(Clone, Debug)]
pub struct NewApproval {
    pub set: ChangeSetId,
    pub run: Option<RunId>,
    pub person: Actor,
    pub role: Option<String>,
    pub comment: Option<String>,
    /// The mark of the plans that the person saw. The approval covers no others.
    pub seen: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ApproveError {
    #[error("nothing was approved: {0}")]
    OtherPlans(ChangeSetError),
    #[error(transparent)]
    Record(ChangeSetError),
}

impl Explain for ApproveError {}

/// Records an approval and returns the change set with what is still missing. Without a server, no identity
/// is verified.
pub async fn approve(
    control: &Control,
    new: NewApproval,
) -> Result<ChangeSetDetails, ApproveError> {
    let approval = Approval {
        change_set: new.set,
        run: new.run,
        person: new.person,
        role: new.role,
        verified: false,
        comment: new.comment,
        at: control.now(),
    };
    let recorded = control
        .store
        .approval_insert(&approval, new.seen.as_deref());
    match recorded.await {
        Err(err @ ChangeSetError::OtherPlans { .. }) => return Err(ApproveError::OtherPlans(err)),
        recorded => recorded.map_err(ApproveError::Record)?,
    }
    let explained = explain(control, new.set).await;
    explained.map_err(ApproveError::Record)
}

#[cfg(test)]
mod tests {
    use model::run::AwaitedOutputs;

    use super::*;

    #[test]
    fn what_came_to_rest_and_went_on_at_once_is_told_in_that_order() {
        let (then, now) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let by = Some(Actor::named("ada"));
        let of_set = vec![
            (now, SetEvent::CameToRest),
            (now, SetEvent::Confirmed { by }),
            (now, SetEvent::LanesTaken),
        ];
        let on: Vec<AwaitedOutputs> = Vec::new();
        let review = false;
        let preview = model::run::Preview::None;
        let of_runs = vec![
            (then, RunId(1), RunEvent::PlanStarted),
            (now, RunId(1), RunEvent::ApplyStarted),
            (
                now,
                RunId(2),
                RunEvent::Previewed {
                    on,
                    preview,
                    review,
                    new: Vec::new(),
                },
            ),
        ];
        let expected = [
            "r1 is planned",
            "r2 tells",
            "brought to rest",
            "confirmed",
            "given its lanes",
            "r1 is applied",
        ];
        assert_eq!(told(of_set, of_runs), expected);
    }

    #[test]
    fn what_came_with_a_bundle_is_told_in_the_order_it_happened() {
        let now = Timestamp::UNIX_EPOCH;
        let requested = SetEvent::Requested { confirmed: false };
        let nothing = || RunEvent::NothingToChange {
            consumed: None,
            came_after: None,
            serial: None,
            lineage: None,
            then: None,
        };
        let of_runs = vec![
            (now, RunId(1), RunEvent::PlanStarted),
            (now, RunId(1), nothing()),
            (now, RunId(2), RunEvent::PlanStarted),
            (now, RunId(2), nothing()),
        ];
        let expected = [
            "requested",
            "r1 is planned",
            "r1 tells",
            "r2 is planned",
            "r2 tells",
        ];
        assert_eq!(told(vec![(now, requested)], of_runs), expected);
    }

    fn told(
        of_set: Vec<(Timestamp, SetEvent)>,
        of_runs: Vec<(Timestamp, RunId, RunEvent)>,
    ) -> Vec<String> {
        let all = in_order(of_set, of_runs).into_iter();
        all.map(|(_, happened)| match happened {
            HistoryEvent::Set(event) => event.word().to_owned(),
            HistoryEvent::Run(run, event) => match *event {
                RunEvent::PlanStarted => format!("{run} is planned"),
                RunEvent::ApplyStarted => format!("{run} is applied"),
                _ => format!("{run} tells"),
            },
        })
        .collect()
    }
}
