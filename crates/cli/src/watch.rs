//! Watches a change set until it rests: reads the store and the engines' output, draws frames, forwards
//! Ctrl-C. This client carries out nothing: killing it does no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use control::Control;
use control::changeset::orphan_processes;
use control::changeset::prepare::StartedChangeSet;
use control::decision::confirm::{self, ConfirmRequest, ConfirmResult};
use control::decision::stop;
use control::decision::{DecidingUser, DecisionError};
use control::home::retry::Backoff;
use control::request::AttachedChangeSet;
use control::run::client_presence;
use control::run::query::ChangeMark;
use control::schedule::scheduler;
use control::schedule::supervisor::{RecordBranches, SuperviseError, Supervisor};
use control::secrets::caller_env::CallerEnv;
use control::stage::facts::MissedRecord;
use model::base::actor::Actor;
use model::base::error::Explain;
use model::base::ids::{ChangeSetId, RunId, StackName};
use model::policy::Remark;
use model::project::Project;
use model::run::approval::MissingApproval;
use model::run::changeset::{Action, ChangeSet, LaneBlocker, Status, UserCommandError};
use model::run::{Run, RunState};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::global::Global;
use crate::view::text::clean;
use crate::view::{ViewOptions, errors};
use crate::{CommandError, ExitStatus, Process, report};

pub(crate) mod display;
mod frame;
mod tail;

use display::Display;
use tail::Tails;

/// How often a live view reads the store; runners do not wait for it.
const TICK: Duration = Duration::from_millis(80);
/// The shortest and longest interval without a live view; it grows with the elapsed time.
const TICKS: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(250));
/// How often to report what the change set still waits for.
const REPORTS: Duration = Duration::from_secs(1);
/// After this time without progress, check for blocking processes.
const STILL: Duration = Duration::from_secs(2);

/// How long unchanged files mean that the store is unchanged. Files change before a commit can be read.
/// During a slow disk sync a read returns old rows with new files, and later checks would show no difference.
const BELIEVED: Duration = Duration::from_secs(1);

pub(crate) struct Watcher<'a> {
    control: &'a Control,
    id: ChangeSetId,
    supervisor: Arc<Supervisor>,
    _watch: File,
    begun: Instant,
    state: Option<(ChangeSet, Vec<Run>)>,
    /// The state of the store's files when it was last read.
    mark: Option<ChangeMark>,
    read_at: Option<Instant>,
    /// The revision up to which the runs were read; -1 before the first read.
    revision: i64,
    /// The user who watches, and confirms or declines.
    actor: Actor,
    tails: Tails,
    display: Display,
    json: bool,
    said: BTreeMap<StackName, &'static str>,
    /// How long to wait for a home that does not answer.
    away: Option<Backoff>,
    /// When one of the runs last made progress.
    moved: Instant,
    /// When it was last reported what the change set waits for.
    reported: Instant,
    /// Blocking processes that were already reported.
    in_the_way: BTreeSet<String>,
    /// Runs that were applied before this client attached; the report is about later ones.
    before: BTreeSet<RunId>,
    /// Policy warnings that were already shown.
    warned: BTreeMap<StackName, Vec<Remark>>,
    look: ViewOptions,
}

/// Why watching ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchEnd {
    Over,
    AwaitsConfirm,
    /// A second Ctrl-C: the change set ends without this client.
    Detached,
}

impl<'a> Watcher<'a> {
    pub(crate) fn drive(
        control: &'a Control,
        begun: StartedChangeSet,
        records: RecordBranches,
        global: &Global,
        process: &Process,
    ) -> Self {
        let supervisor = Supervisor::new(control, begun.id, Some(begun.asker), Some(records));
        Self::new(control, begun.id, supervisor, begun.watch, global, process)
    }

    /// Watches a change set that another client began.
    pub(crate) fn join(
        control: &'a Control,
        attached: AttachedChangeSet,
        records: RecordBranches,
        global: &Global,
        process: &Process,
    ) -> Self {
        let AttachedChangeSet { id, caller, watch } = attached;
        let supervisor = Supervisor::new(control, id, caller, Some(records));
        Self::new(control, id, supervisor, watch, global, process)
    }

    pub(crate) fn attach(
        control: &'a Control,
        id: ChangeSetId,
        asker: Option<CallerEnv>,
        global: &Global,
        process: &Process,
    ) -> io::Result<Self> {
        let watch = client_presence::attach(control, id)?;
        let supervisor = Supervisor::new(control, id, asker, None);
        Ok(Self::new(control, id, supervisor, watch, global, process))
    }

    fn new(
        control: &'a Control,
        id: ChangeSetId,
        supervisor: Supervisor,
        watch: File,
        global: &Global,
        process: &Process,
    ) -> Self {
        Self {
            control,
            id,
            supervisor: Arc::new(supervisor),
            _watch: watch,
            begun: Instant::now(),
            state: None,
            mark: None,
            read_at: None,
            revision: -1,
            actor: process.actor(),
            tails: Tails::default(),
            display: Display::new(global, process),
            json: global.json,
            said: BTreeMap::new(),
            away: None,
            moved: Instant::now(),
            reported: Instant::now(),
            in_the_way: BTreeSet::new(),
            before: BTreeSet::new(),
            warned: BTreeMap::new(),
            look: process.look(global),
        }
    }

    pub(crate) fn control(&self) -> &Control {
        self.control
    }

    pub(crate) fn set(&self) -> &ChangeSet {
        &self
            .state
            .as_ref()
            .expect("looked at before anybody asks")
            .0
    }

    pub(crate) fn action(&self) -> Action {
        self.set().request.action
    }

    pub(crate) fn runs(&self) -> &[Run] {
        self.state.as_ref().map_or(&[], |(_, runs)| runs)
    }

    /// Whether it was applied before this client attached.
    pub(crate) fn was_before(&self, run: &Run) -> bool {
        self.before.contains(&run.id)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// ``change set c42 on `local`, source 3f9c1e2 (clean)``
    pub(crate) fn heading(&self) -> String {
        frame::heading(self.set())
    }

    /// Confirms the plans. `typed` names protected stacks that the user confirmed one by one.
    pub(crate) async fn confirm(
        &mut self,
        project: &Project,
        process: &Process,
        typed: &[StackName],
    ) -> Result<(), CommandError> {
        let caller = self.supervisor.caller();
        let decider = DecidingUser {
            actor: &self.actor,
            env: &process.env,
            project,
        };
        let set = self.id;
        let request = ConfirmRequest { set, typed };
        let outcome = confirm::confirm(self.control, decider, request, &caller).await;
        let outcome = outcome.map_err(|err| decision_error(&err))?;
        for (stack, said) in &outcome.verdicts.said {
            self.warn(stack, &said.warnings)?;
        }
        match outcome.result {
            ConfirmResult::Confirmed { blocked_by } => self.supervisor.note_blocker(blocked_by),
            ConfirmResult::Missing(missing) => return Err(owes(self.id, &missing)),
            ConfirmResult::Denied(denials) => return Err(denied(self.id, &denials)),
        }
        self.begun = Instant::now(); // the time until the confirmation does not count
        self.look().await
    }

    /// Prints policy warnings that were not shown before.
    pub(crate) fn warn(
        &mut self,
        stack: &StackName,
        warnings: &[Remark],
    ) -> Result<(), CommandError> {
        let known = self.warned.entry(stack.clone()).or_default();
        let new = warnings.iter().filter(|it| !known.contains(it));
        let new: Vec<Remark> = new.cloned().collect();
        known.extend(new.iter().cloned());
        policy_warnings(stack, &new, self.json, self.look)
    }

    /// Marks warnings below a plan as shown, so that they are not repeated.
    pub(crate) fn note_shown(&mut self) {
        for run in self.state.iter().flat_map(|(_, runs)| runs) {
            let said = run.state.policy();
            let said = said.or_else(|| run.state.foreseen().cloned());
            let said = said.unwrap_or_default();
            let known = self.warned.entry(run.stack.clone()).or_default();
            known.extend(said.warnings);
        }
    }

    pub(crate) async fn discard(&mut self) -> Result<(), CommandError> {
        let declined = stop::decline(self.control, self.id, self.actor.clone()).await;
        declined.map_err(|err| decision_error(&err))?;
        self.look().await
    }

    /// Reports branches that could not get the break-glass records.
    pub(crate) fn say_missed_records(&self) -> Result<(), CommandError> {
        say_missed_records(&self.supervisor.take_missed_records(), self.look)
    }

    /// Reads the current state, without advancing or drawing it.
    pub(crate) async fn see(&mut self) -> Result<(), CommandError> {
        self.read().await
    }

    /// Watches until the change set cannot continue on its own.
    pub(crate) async fn wait_until_idle(&mut self) -> Result<WatchEnd, CommandError> {
        let mut interrupts = signal(SignalKind::interrupt())
            .map_err(|err| CommandError::because("could not listen for Ctrl-C", &err))?;
        let mut interrupted = false;
        let supervisor = Arc::clone(&self.supervisor);
        loop {
            let watching = self.watch(&mut interrupts, &mut interrupted);
            match Box::pin(supervisor.run_beside(watching)).await {
                Err(err) if err.is_away => self.bear(err, &mut interrupts).await?,
                watched => return watched,
            }
        }
    }

    /// Waits while the home is unavailable, as long as runners do. They keep running, and keep what engines
    /// do.
    async fn bear(
        &mut self,
        err: CommandError,
        interrupts: &mut Signal,
    ) -> Result<(), CommandError> {
        if self.away.is_none() {
            self.display.print(&format!(
                "The home does not respond: running work of change set {} continues, and this terminal retries.\n",
                self.id
            ))?;
        }
        let left = |err: CommandError| {
            err.hint(format!(
                "change set {0} continues when the home responds again; then follow it with `terrane run logs -f {0}`",
                self.id
            ))
        };
        let patience = self.away.get_or_insert_with(Backoff::begin);
        tokio::select! {
            is_early = patience.again() => if is_early { Ok(()) } else { Err(left(err)) },
            _ = interrupts.recv() => Err(left(err).status(ExitStatus::Interrupted)),
        }
    }

    async fn watch(
        &mut self,
        interrupts: &mut Signal,
        interrupted: &mut bool,
    ) -> Result<WatchEnd, CommandError> {
        self.look().await?;
        loop {
            if let Some(rest) = self.rest() {
                // The plans are shown in full instead.
                let has_plans =
                    rest == WatchEnd::AwaitsConfirm || self.set().request.action == Action::Plan;
                if has_plans {
                    self.display.clear()?;
                } else {
                    self.display.finish()?;
                }
                return Ok(rest);
            }
            if self.wait(interrupts).await {
                if *interrupted {
                    self.display.finish()?;
                    report::say(&format!(
                        "Detached: change set {id} stops on its own once its engines finish their current work. \
                         Follow it with `terrane run logs -f {id}`.\n",
                        id = self.id
                    ))?;
                    return Ok(WatchEnd::Detached);
                }
                *interrupted = true;
                self.interrupt().await?;
            }
            if self.reported.elapsed() > REPORTS {
                self.reported = Instant::now();
                if self.moved.elapsed() > STILL {
                    self.say_what_is_in_the_way().await?;
                }
                self.say_still()?;
            }
            self.look().await?;
        }
    }

    /// Waits one tick; returns whether the user pressed Ctrl-C.
    async fn wait(&self, interrupts: &mut Signal) -> bool {
        let tick = if self.display.is_live() {
            TICK
        } else {
            (self.begun.elapsed() / 25).clamp(TICKS.0, TICKS.1)
        };
        tokio::select! {
            () = tokio::time::sleep(tick) => false,
            _ = interrupts.recv() => true,
        }
    }

    fn rest(&self) -> Option<WatchEnd> {
        match &self.set().status {
            Status::Finished | Status::Stopped { .. } | Status::Superseded { .. } => {
                Some(WatchEnd::Over)
            }
            Status::AwaitingConfirm => Some(WatchEnd::AwaitsConfirm),
            Status::Planning | Status::Waiting | Status::Confirmed | Status::Interrupting => None,
        }
    }

    /// Sends one SIGINT to each engine; then the wait continues.
    async fn interrupt(&mut self) -> Result<(), CommandError> {
        self.display.print(
            "Interrupting: engines finish their current work and save their state. Press Ctrl-C again to detach.\n",
        )?;
        let interrupted = self.supervisor.interrupt(self.actor.clone()).await;
        interrupted.map_err(|err| CommandError::because("cannot interrupt", &err))?;
        self.look().await
    }

    /// Reports a process that an engine left behind and that keeps its locks. Prints it once, because a row
    /// of the frame is too short for it.
    async fn say_what_is_in_the_way(&mut self) -> Result<(), CommandError> {
        let failed = |err: &dyn Explain| CommandError::from_error(err);
        let control = &self.control;
        let mut words: Vec<String> = Vec::new();
        let mut note = |set: &ChangeSet, runs: &[Run]| {
            let found = orphan_processes::in_the_way(self.control, set, runs);
            words.extend(found.iter().map(|(run, why)| format!("Run {run} {why}.\n")));
        };
        note(self.set(), self.runs());
        if let Some(LaneBlocker::Holder { set, .. }) = self.supervisor.blocked_by() {
            let holder = control.change_set(set).await.map_err(|err| failed(&err))?;
            let runs = control.runs(set).await.map_err(|err| failed(&err))?;
            note(&holder, &runs);
        }
        for words in words {
            if self.in_the_way.insert(words.clone()) {
                self.display.print(&words)?;
            }
        }
        Ok(())
    }

    /// Without a live display, prints what stages still wait for from time to time, as a line or as an event.
    fn say_still(&mut self) -> Result<(), CommandError> {
        let Some((_, runs)) = &self.state else {
            return Ok(());
        };
        let waits = |run: &Run| matches!(run.state, RunState::Completing { .. });
        if self.display.is_live() || !runs.iter().any(waits) {
            return Ok(());
        }
        self.tails.follow(self.control, runs);
        for (run, words) in self.tails.take_still() {
            let Some(run) = runs.iter().find(|one| one.id == run) else {
                continue;
            };
            let stack = run.stack.to_string();
            if self.json {
                report::json_line(&json!({
                    "event": "still", "run": run.id.to_string(), "stack": stack,
                    "state": run.state.word(), "message": words,
                }))?;
            }
            self.display.still(self.begun.elapsed(), &stack, &words)?;
        }
        Ok(())
    }

    async fn look(&mut self) -> Result<(), CommandError> {
        // Read first, so that the next check sees commits made during this read.
        let mark = self.control.change_mark();
        let is_believed = self.read_at.is_some_and(|at| at.elapsed() < BELIEVED);
        let is_news = !is_believed || self.mark.as_ref() != Some(&mark);
        if is_news {
            self.read().await?;
            self.read_at = Some(Instant::now());
            self.mark = mark.is_settled(SystemTime::now()).then_some(mark);
        }
        let Some((set, runs)) = &self.state else {
            return Ok(());
        };
        if is_news || self.display.is_live() {
            let tails = self.display.is_live().then(|| {
                self.tails.follow(self.control, runs);
                &self.tails
            });
            let frame = frame::frame(
                set,
                runs,
                tails,
                self.supervisor.blocked_by().as_ref(),
                &self.before,
                self.begun.elapsed(),
            );
            self.display.draw(&frame)?;
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(), CommandError> {
        let failed = |err: &dyn Explain| CommandError::from_error(err);
        let control = &self.control;
        let set = control
            .change_set(self.id)
            .await
            .map_err(|err| failed(&err))?;
        let (changed, revision) = control
            .runs_after(self.id, self.revision)
            .await
            .map_err(|err| failed(&err))?;
        self.away = None;
        let mut runs = self.state.take().map_or_else(Vec::new, |(_, runs)| runs);
        let is_first = runs.is_empty();
        if !changed.is_empty() {
            self.moved = Instant::now();
        }
        for run in changed {
            match runs.iter_mut().find(|known| known.id == run.id) {
                Some(known) => *known = run,
                None => runs.push(run),
            }
        }
        self.revision = revision;
        if is_first {
            let applied = runs.iter().filter(|run| run.state.is_applied());
            self.before = applied.map(|run| run.id).collect();
        }
        if self.json {
            if is_first {
                say_begin(&set)?;
            }
            self.say_events(&runs)?;
        }
        self.state = Some((set, runs));
        Ok(())
    }

    fn say_events(&mut self, runs: &[Run]) -> Result<(), CommandError> {
        for run in runs {
            let word = run.state.word();
            if word != "queued" && self.said.insert(run.stack.clone(), word) != Some(word) {
                report::json_line(&json!({
                    "event": "run", "run": run.id.to_string(), "stack": run.stack.to_string(), "state": word,
                }))?;
            }
        }
        Ok(())
    }
}

/// The error for a decision that is not possible now, with what is missing.
pub(crate) fn advance_error(err: &scheduler::AdvanceError) -> CommandError {
    let shown = CommandError::from_error(err);
    match err.heard() {
        Some(UserCommandError::Owes { set, missing }) => owes(*set, missing),
        Some(heard) => CommandError::from_error(heard),
        None => shown,
    }
}

impl From<SuperviseError> for CommandError {
    fn from(err: SuperviseError) -> Self {
        match &err {
            SuperviseError::Advance(err) => advance_error(err),
            err => Self::from_error(err),
        }
    }
}

/// The error for a decision that is not recorded.
pub(crate) fn decision_error(err: &DecisionError) -> CommandError {
    match err {
        DecisionError::Advance(err) => advance_error(err),
        err => CommandError::from_error(err),
    }
}

/// ``warning: policy `owners`: stack `base`: it is Friday``, or an event.
pub(crate) fn policy_warnings(
    stack: &StackName,
    warnings: &[Remark],
    json: bool,
    look: ViewOptions,
) -> Result<(), CommandError> {
    for warning in warnings {
        if json {
            report::json_line(&json!({ "event": "warning", "stack": stack, "policy": warning }))?;
        } else {
            let said = format!("stack `{stack}`, policy {warning}");
            report::say(&errors::render_warning(&said, &[], look))?;
        }
    }
    Ok(())
}

/// Warns about branches that could not be updated now.
pub(crate) fn say_missed_records(
    missed: &[MissedRecord],
    look: ViewOptions,
) -> Result<(), CommandError> {
    for MissedRecord { place, why } in missed {
        let said = format!(
            "cannot publish the record of break-glass actions to `{place}` now; the next publication does: {why}"
        );
        let said = clean(&said);
        report::say(&errors::render_warning(&said, &[], look))?;
    }
    Ok(())
}

fn denied(set: ChangeSetId, denials: &[Remark]) -> CommandError {
    let shown = CommandError::new(format!("cannot confirm change set {set}: denied by policy"));
    let shown = denials
        .iter()
        .fold(shown, |shown, one| shown.cause(one.to_string()));
    shown
        .hint(format!(
            "it still waits; `terrane run show {set}` shows its status"
        ))
        .status(ExitStatus::Refused)
}

fn owes(set: ChangeSetId, missing: &[MissingApproval]) -> CommandError {
    let mut shown =
        CommandError::new(format!("cannot confirm change set {set} yet")).status(ExitStatus::Waits);
    for one in missing {
        shown = shown.cause(format!("{} ({})", one.words(), one.by));
    }
    let ways = missing.iter().map(|one| one.command(set));
    let ways: BTreeSet<String> = ways.collect();
    ways.into_iter().fold(shown, |shown, way| {
        shown.hint(format!("`{way}` approves it"))
    })
}

fn say_begin(set: &ChangeSet) -> Result<(), CommandError> {
    report::json_line(&json!({
        "event": "change_set", "change_set": set.id.to_string(),
        "action": set.request.action.word(), "stacks": set.request.stacks,
        "identity": set.request.identity,
    }))
}

/// Whether a run still has something to do.
fn is_open(run: &Run) -> bool {
    match run.state {
        RunState::Finished { .. } => false,
        RunState::Queued
        | RunState::Planning { .. }
        | RunState::Deferred { .. }
        | RunState::Planned { .. }
        | RunState::Applying { .. }
        | RunState::Applied { .. }
        | RunState::Completing { .. } => true,
    }
}

/// The action in one word.
fn action(action: Action) -> &'static str {
    match action {
        Action::Plan => "plan",
        Action::Apply => "apply",
        Action::Destroy => "destroy",
        Action::Exec => "exec",
    }
}
