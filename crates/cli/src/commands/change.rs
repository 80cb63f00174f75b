//! Shared code of plan, apply and destroy: creates a change set from the arguments, watches it, asks once,
//! and reports the outcome.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use control::Control;
use control::access::writers::Caller;
use control::changeset::backends::UnreadState;
use control::changeset::explain;
use control::changeset::prepare::{self, ChangeSetRequest, PrepareError, ResumeCandidate};
use control::home::HomeSettings;
use control::project::open::{OpenProject, ProjectContext};
use control::request::{self, Requested};
use control::schedule::recovery;
use control::schedule::scheduler::UnattendedOutcome;
use control::schedule::supervisor::{self, CaughtUp, RecordBranches};
use jiff::Timestamp;
use model::base::error::Explain;
use model::base::ids::{ChangeSetId, StackName};
use model::project::{Backend, Project};
use model::run::Run;
use model::run::changeset::{Action, Reopen, Status};
use model::run::exception::Exceptions;
use serde_json::json;

use super::{
    declare_new_project, destroy, exceptions, open_home, refuse_new_key, run, selection,
    valid_project, valid_project_except, warn_removed_stacks,
};
use crate::global::Global;
use crate::view::text::clean;
use crate::view::{ViewOptions, duration, errors};
use crate::watch::{WatchEnd, Watcher};
use crate::{CommandError, ExitStatus, Process, report};
use prompt::PromptOutcome;

pub(crate) mod bundle;
mod outcome;
mod plans;
mod prompt;

pub(super) use outcome::unknown;
pub(super) use plans::AppliedPlans;
pub(super) use prompt::{forget_input, read_line};

pub(crate) struct ChangeOptions {
    pub(crate) action: Action,
    pub(crate) selectors: Vec<String>,
    /// Also plan settled stacks.
    pub(crate) all: bool,
    pub(crate) auto_approve: bool,
    pub(crate) destroy: bool,
    pub(crate) refresh_only: bool,
    /// The older version of the state to plan from.
    pub(crate) pinned: Option<i64>,
    /// Plan without reading a state.
    pub(crate) no_state: bool,
    pub(crate) detailed_exitcode: bool,
    pub(crate) full: bool,
    pub(crate) jobs: Option<NonZeroUsize>,
    /// The reason for applying what policies deny.
    pub(crate) policy_override: Option<String>,
    /// Rules of the stages after the apply that this request ignores.
    pub(crate) exceptions: Option<Exceptions>,
    pub(crate) destroying: DestroyOptions,
    /// The file to write the plan to, for a later apply.
    pub(crate) out: Option<PathBuf>,
    /// The user declares that the project is new, whatever this checkout was before.
    pub(crate) new_project: bool,
    /// Continues an existing change set: the same command does not create another one.
    pub(crate) goes_on: bool,
}

/// Options that only a destroy has.
#[derive(Default)]
pub(crate) struct DestroyOptions {
    /// Names of protected stacks, given instead of typed at the prompt.
    pub(crate) confirm: Vec<String>,
    /// The commit whose code is used.
    pub(crate) from: Option<String>,
}

/// Parses the number of engines that may run at once.
pub(crate) fn jobs(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "give a whole number, 1 or more")
}

pub(crate) async fn carry_out(
    change: ChangeOptions,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    // The project may have no stacks left: its last one may be the one to destroy.
    let but_for: &[&str] = match change.action {
        Action::Destroy => &["empty-project"],
        Action::Plan | Action::Apply | Action::Exec => &[],
    };
    if let Some(file) = &change.out {
        bundle::check_place(file, process)?;
    }
    let (open, project) = valid_project_except(but_for, global, process)?;
    let (open, project) = match &change.destroying.from {
        None => (open, project),
        Some(commit) => destroy::as_of(commit, open, &project, process)?,
    };
    let look = process.look(global);
    if change.new_project {
        declare_new_project(&process.settings(global)?, &open)?;
    }
    let applied = differing(&change, &open, &project, global, process).await?;
    let stacks = selection::resolve(
        &change.selectors,
        &open,
        &project,
        process,
        applied.as_ref(),
    )?;
    if stacks.is_empty() {
        report::say("Nothing is selected, so there is nothing to do.\n")?;
        if global.json {
            report::json_line(&json!({
                "event": "outcome", "change_set": null, "exit": 0, "stacks": {},
            }))?;
        }
        return Ok(ExitStatus::Done);
    }
    if change.action == Action::Destroy {
        destroy::check(&change.destroying, &open, &project, &stacks, process, look)?;
    }
    let settings = process.settings(global)?;
    if change.out.is_some() || stacks.iter().any(|name| keeps_state_here(&project, name)) {
        refuse_new_key(&settings)?;
    }
    let control = open_home(&settings, &open, process, look).await?;
    look_after_the_past(&control, &open, look, process).await?;
    if open.commit.is_none() {
        warn_removed_stacks(&control, &project, look).await?;
        run::imports::warn_unrecorded(&control, &stacks, look).await?;
    }
    if change.action != Action::Plan {
        say_no_home(&settings, look)?;
    }
    let wanted = ChangeSetRequest {
        action: change.action,
        in_any_case: named(&change, &stacks, &project),
        auto_approve: change.auto_approve,
        parallelism: change
            .jobs
            .map(NonZeroUsize::get)
            .or(project.parallelism)
            .unwrap_or_else(cores),
        destroy: change.destroy,
        refresh_only: change.refresh_only,
        pinned: change.pinned,
        no_state: change.no_state,
        keeps_plans: change.out.is_some(),
        who: Caller::new(process.actor()),
        exec: None,
        may_keep_state: !settings.is_ci || settings.named_home.is_some(),
        policy_override: change.policy_override.clone(),
        exceptions: change.exceptions.clone(),
        stacks,
    };
    let mut watcher = start(&control, &open, &project, wanted, global, process).await?;
    let status = follow(&mut watcher, &change, &project, global, process).await;
    for run in watcher.runs() {
        say_warnings(&control, run, look)?;
    }
    say_past_rules(&change, &watcher, global, look).await?;
    watcher.say_missed_records()?;
    control::runner::note_usage("terminal");
    status
}

/// Prints the open break-glass records of this request.
async fn say_past_rules(
    change: &ChangeOptions,
    watcher: &Watcher<'_>,
    global: &Global,
    look: ViewOptions,
) -> Result<(), CommandError> {
    if global.json {
        return Ok(());
    }
    if change.exceptions.is_some() || change.policy_override.is_some() {
        exceptions::say_open(watcher.control(), watcher.runs(), look).await?;
    }
    Ok(())
}

/// Warns that a CI job without a named home has no information about other jobs.
fn say_no_home(settings: &HomeSettings, look: ViewOptions) -> Result<(), CommandError> {
    if settings.is_ci && settings.named_home.is_none() {
        let said = "no home is named: lanes and history are limited to this job";
        report::say(&errors::render_warning(said, &[], look))?;
    }
    Ok(())
}

/// Stacks that the user requested explicitly. They are planned even if nothing that they use has changed.
fn named(
    change: &ChangeOptions,
    stacks: &BTreeSet<StackName>,
    project: &Project,
) -> BTreeSet<StackName> {
    let is_everything = stacks.len() == project.stacks.len();
    let is_named = |stack: &&StackName| {
        change.all
            || change.destroy
            || change.selectors.iter().any(|word| word == stack.as_str())
            || (change.selectors.is_empty() && !is_everything)
    };
    stacks.iter().filter(is_named).cloned().collect()
}

/// The stacks that differ from what was last applied, if a selector requires them.
async fn differing(
    change: &ChangeOptions,
    open: &OpenProject,
    project: &Project,
    global: &Global,
    process: &Process,
) -> Result<Option<BTreeSet<StackName>>, CommandError> {
    if !selection::compares_with_applied(&change.selectors) {
        return Ok(None);
    }
    let settings = process.settings(global)?;
    refuse_new_key(&settings)?;
    let control = open_home(&settings, open, process, process.look(global)).await?;
    let found = control::project::changed::since_applied(&control, open, project).await;
    found
        .map(Some)
        .map_err(|err| selection::changed_error(&err))
}

/// Prints problems that did not fail the run.
pub(super) fn say_warnings(
    control: &Control,
    run: &Run,
    look: ViewOptions,
) -> Result<(), CommandError> {
    let kept = std::fs::read_to_string(control.home.run_warnings(run.id)).unwrap_or_default();
    for line in kept.lines() {
        report::say(&errors::render_warning(line, &[], look))?;
    }
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Where the break-glass records of a change set are published.
pub(crate) fn record_branches(
    open: &OpenProject,
    project: &Project,
    process: &Process,
) -> RecordBranches {
    RecordBranches {
        root: open.root.clone(),
        env: process.env.clone(),
        branches: project.facts.clone(),
    }
}

/// Requests the change set, and reports what the user should know before it starts.
async fn start<'a>(
    control: &'a Control,
    open: &OpenProject,
    project: &Project,
    wanted: ChangeSetRequest,
    global: &Global,
    process: &Process,
) -> Result<Watcher<'a>, CommandError> {
    let records = record_branches(open, project, process);
    let context = ProjectContext {
        open,
        project,
        env: &process.env,
    };
    let requested = request::start(control, context, wanted).await;
    let begun = match requested.map_err(|err| prepare_error(&err))? {
        Requested::New(begun) => begun,
        Requested::UnderWay(attached) => {
            report::say(&format!(
                "Attached to change set {}, which is already under way.\n",
                attached.id
            ))?;
            return Ok(Watcher::join(control, attached, records, global, process));
        }
    };
    say_unseen(&begun.unseen, process.look(global))?;
    if let Some(refusal) = &begun.foreseen {
        let said = format!("a destroy of this would be refused: {refusal}");
        let hints: Vec<String> = refusal.hint().into_iter().collect();
        report::say(&errors::render_warning(&said, &hints, process.look(global)))?;
    }
    for link in &begun.left_out {
        let said = format!("the link `{link}` points outside the project and is skipped");
        report::say(&errors::render_warning(&said, &[], process.look(global)))?;
    }
    Ok(Watcher::drive(control, begun, records, global, process))
}

/// Warns about stacks whose values come from a copy of their state, and why.
fn say_unseen(unseen: &[UnreadState], look: ViewOptions) -> Result<(), CommandError> {
    for UnreadState { stack, since, why } in unseen {
        let since = Duration::try_from(Timestamp::now().duration_since(*since)).unwrap_or_default();
        let said = format!(
            "cannot read the state of stack `{stack}` in its backend, so its values come from a copy ({}): {}",
            duration::ago(since),
            clean(why)
        );
        report::say(&errors::render_warning(&said, &[], look))?;
    }
    Ok(())
}

/// Watches a cancelled change set until it ends, and reports the outcome.
pub(crate) async fn watch_until_finished(
    control: &Control,
    id: ChangeSetId,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let attached = Watcher::attach(control, id, None, global, process);
    let mut watcher = attached.map_err(|err| CommandError::from_error(&err))?;
    match watcher.wait_until_idle().await? {
        WatchEnd::Detached => Ok(ExitStatus::Interrupted),
        WatchEnd::Over | WatchEnd::AwaitsConfirm => {
            outcome::tell(&mut watcher, global, process).await
        }
    }
}

/// Watches until the change set cannot continue on its own, asks for confirmation if needed, and reports the
/// outcome.
async fn follow(
    watcher: &mut Watcher<'_>,
    change: &ChangeOptions,
    project: &Project,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    // The client that started a bundle may have left the confirmation to others. `--auto-approve` gives it
    // once, for the reviewed plans.
    let mut is_said = false;
    loop {
        let rest = watcher.wait_until_idle().await?;
        match rest {
            WatchEnd::Over => break,
            WatchEnd::Detached => {
                if global.json {
                    outcome::say_outcome(watcher, ExitStatus::Interrupted)?;
                }
                return Ok(ExitStatus::Interrupted);
            }
            WatchEnd::AwaitsConfirm => {
                let set = plans::plan_set(watcher, project, AppliedPlans::Named).await?;
                plans::show(&set, change.full, global, process)?;
                watcher.note_shown();
                if let Some(status) = prompt::waits_for_others(watcher, global).await? {
                    return Ok(status);
                }
                let request = &watcher.set().request;
                let is_left = request.bundle.is_some() && !request.auto_approve;
                let answer = if change.auto_approve && is_left && !is_said {
                    is_said = true;
                    PromptOutcome::Yes
                } else {
                    prompt::confirm(change.action, watcher.set(), process).await?
                };
                match answer {
                    PromptOutcome::Yes => watcher.confirm(project, process, &[]).await?,
                    // The change set does not change: a user with permission can confirm it later, on another
                    // terminal.
                    answer @ PromptOutcome::NoTerminal => {
                        if global.json {
                            outcome::say_outcome(watcher, answer.status())?;
                        }
                        return prompt::no_terminal(watcher, change.goes_on)
                            .await
                            .map_err(CommandError::told);
                    }
                    answer => {
                        watcher.discard().await?;
                        if outcome::something_was_applied(watcher.runs()) {
                            outcome::tell(watcher, global, process).await?;
                            return Ok(ExitStatus::Waits);
                        }
                        if global.json {
                            outcome::say_outcome(watcher, answer.status())?;
                        }
                        return prompt::unconfirmed(&answer).map_err(CommandError::told);
                    }
                }
            }
        }
    }
    if change.action == Action::Plan {
        let mut set = plans::plan_set(watcher, project, AppliedPlans::Named).await?;
        if change.no_state {
            set.heading += ", without state: everything shows as new";
        }
        plans::show(&set, change.full, global, process)?;
        let changes_facts = !set.facts.is_empty();
        let detailed = change.detailed_exitcode;
        let mut status = outcome::plan_status(watcher.runs(), changes_facts, detailed);
        let written = match &change.out {
            Some(file) => bundle::write(watcher, file, global, process).await,
            None => Ok(()),
        };
        if let Err(err) = &written {
            status = status.max(err.status);
        }
        if global.json {
            outcome::say_outcome(watcher, status)?;
        }
        let ended = written.map(|()| status);
        return ended.map_err(|err| err.status(status).told());
    }
    outcome::tell(watcher, global, process).await
}

pub(super) fn keeps_state_here(project: &Project, stack: &StackName) -> bool {
    project.targets[&project.stacks[stack].target].backend == Backend::Terrane
}

/// Ends change sets that a crash left open, continues those that wait, and reports both.
pub(super) async fn look_after_the_past(
    control: &Control,
    open: &OpenProject,
    look: ViewOptions,
    process: &Process,
) -> Result<(), CommandError> {
    let caught_up = supervisor::catch_up(control, &open.root, &process.env).await;
    let CaughtUp { ended, continued } =
        caught_up.map_err(|err| CommandError::because("cannot check earlier change sets", &err))?;
    for (set, runs) in ended {
        let lost: Vec<String> = runs.iter().filter_map(unknown).collect();
        for text in &lost {
            report::say(&errors::render_warning(text, &[], look))?;
        }
        // A user confirmed this change set, and nothing else would report its end.
        if let Status::Stopped { why } = &set.status
            && lost.is_empty()
            && why == recovery::GONE
        {
            let fate = UnattendedOutcome::Stopped { why: why.clone() };
            report::say(&told(set.id, &fate))?;
        }
    }
    for (set, fate) in continued {
        report::say(&told(set, &fate))?;
    }
    Ok(())
}

fn told(set: ChangeSetId, fate: &UnattendedOutcome) -> String {
    match fate {
        UnattendedOutcome::GoesOn => format!(
            "Change set {set} continues: what it waited for is over. Follow it with `terrane run logs -f {set}`.\n"
        ),
        UnattendedOutcome::Stopped { why } => format!(
            "Change set {set}, which was confirmed, is stopped: {why}. `terrane run show {set}` shows details.\n"
        ),
    }
}

/// Shows the plans of a change set as the confirming user sees them.
pub(crate) async fn show_plans(
    watcher: &mut Watcher<'_>,
    project: &Project,
    applied: AppliedPlans,
    full: bool,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    watcher.see().await?;
    let plans = plans::plan_set(watcher, project, applied).await?;
    plans::show(&plans, full, global, process)?;
    watcher.note_shown();
    Ok(())
}

/// Continues a change set after a user's decision, and watches it to its end.
pub(crate) async fn go_on(
    watcher: &mut Watcher<'_>,
    project: &Project,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let change = ChangeOptions {
        goes_on: true,
        ..ChangeOptions::of(watcher.action())
    };
    let status = follow(watcher, &change, project, global, process).await;
    for run in watcher.runs() {
        say_warnings(watcher.control(), run, process.look(global))?;
    }
    watcher.say_missed_records()?;
    status
}

/// Reopens runs of a stopped change set and watches them.
pub(crate) async fn reopen_and_watch(
    id: Option<ChangeSetId>,
    what: Reopen,
    change: ChangeOptions,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, project) = valid_project(global, process)?;
    let look = process.look(global);
    let settings = process.settings(global)?;
    let control = open_home(&settings, &open, process, look).await?;
    look_after_the_past(&control, &open, look, process).await?;
    let stopped = prepare::find_stopped(&control, &project, id, what).await;
    let ResumeCandidate {
        set,
        what,
        stacks,
        left,
    } = match stopped {
        Ok(stopped) => stopped,
        Err(err) => {
            let refused = prepare_error(&err);
            return Err(match id {
                Some(set) => explain_stall(&control, set, refused).await,
                None => refused,
            });
        }
    };
    run::imports::warn_unrecorded(&control, &left, look).await?;
    let wanted = ChangeSetRequest {
        policy_override: change.policy_override.clone(),
        exceptions: change.exceptions.clone(),
        action: set.request.action,
        in_any_case: left,
        auto_approve: change.auto_approve,
        parallelism: change
            .jobs
            .map_or(set.request.parallelism, NonZeroUsize::get),
        destroy: false,
        refresh_only: false,
        pinned: None,
        no_state: false,
        keeps_plans: false,
        who: Caller::new(process.actor()),
        exec: None,
        may_keep_state: !settings.is_ci || settings.named_home.is_some(),
        stacks,
    };
    let (created_at, asker) = (set.created_at, set.request.asker.clone());
    let action = wanted.action;
    let context = ProjectContext {
        open: &open,
        project: &project,
        env: &process.env,
    };
    let resumed = prepare::ResumeRequest { set, what, wanted };
    let begun = request::resume(&control, context, resumed)
        .await
        .map_err(|err| prepare_error(&err))?;
    if !global.json {
        let asked = Timestamp::now().duration_since(created_at);
        let asked = Duration::try_from(asked).unwrap_or_default();
        // Names the requester of an older change set: the user may not know it.
        let of = match &asker {
            Some(asker) if asked > Duration::from_mins(1) => {
                format!(", requested by `{asker}` {}", duration::ago(asked))
            }
            Some(_) | None => String::new(),
        };
        report::say(&format!("Resumed change set {}{of}.\n", begun.id))?;
        for (stack, moved) in &begun.moved {
            report::say(&format!("`{stack}` is planned again: {moved}.\n"))?;
        }
    }
    let change = ChangeOptions {
        full: change.full,
        exceptions: change.exceptions.clone(),
        policy_override: change.policy_override.clone(),
        goes_on: true,
        ..ChangeOptions::of(action)
    };
    let records = record_branches(&open, &project, process);
    let mut watcher = Watcher::drive(&control, begun, records, global, process);
    let status = follow(&mut watcher, &change, &project, global, process).await;
    say_past_rules(&change, &watcher, global, process.look(global)).await?;
    watcher.say_missed_records()?;
    status
}

impl ChangeOptions {
    /// Whether it has options for plan or apply, which are already fixed for a waiting change set.
    pub(crate) fn changes_request(&self) -> bool {
        self.all
            || self.jobs.is_some()
            || self.new_project
            || self.policy_override.is_some()
            || self.exceptions.is_some()
    }

    /// A change without any options.
    pub(crate) fn of(action: Action) -> Self {
        Self {
            action,
            selectors: Vec::new(),
            all: false,
            auto_approve: false,
            destroy: false,
            refresh_only: false,
            pinned: None,
            no_state: false,
            detailed_exitcode: false,
            full: false,
            jobs: None,
            destroying: DestroyOptions::default(),
            out: None,
            goes_on: false,
            new_project: false,
            policy_override: None,
            exceptions: None,
        }
    }
}

/// Adds to a refusal why the change set is stalled and how to unblock it.
pub(crate) async fn explain_stall(
    control: &Control,
    set: ChangeSetId,
    refused: CommandError,
) -> CommandError {
    let Ok(explained) = explain::explain(control, set).await else {
        return refused;
    };
    let Some(stalls) = explained.stalls() else {
        return match explained.set.status {
            Status::Waiting | Status::Confirmed | Status::Interrupting => {
                refused.hint(format!("`terrane run logs -f {set}` follows it"))
            }
            Status::Planning
            | Status::AwaitingConfirm
            | Status::Finished
            | Status::Stopped { .. }
            | Status::Superseded { .. } => refused,
        };
    };
    let request = &explained.set.request;
    let refused = refused.cause(stalls);
    if request.action == Action::Apply && request.bundle.is_none() {
        refused.hint(format!(
            "after that, run `terrane apply --resume {set}` to continue"
        ))
    } else {
        refused
    }
}

pub(super) fn prepare_error(err: &PrepareError) -> CommandError {
    CommandError::from_error(err)
}
