//! `terrane exec`

use std::collections::BTreeSet;

use control::Control;
use control::access::writers::Caller;
use control::changeset::prepare::{ChangeSetRequest, StartedChangeSet};
use control::project::open::{OpenProject, ProjectContext};
use control::request::{self, Requested};
use control::runner::{self as runners};
use model::base::ids::StackName;
use model::project::Project;
use model::run::changeset::{Action, ChangeSet};
use model::run::engine_event::{EngineEvent, EventKind};
use model::run::exec::{Exec, ExecKind, ExecRefusal};
use model::run::{Outcome, Run, RunProblem, RunState, Stage};
use serde_json::json;

use super::change::{
    keeps_state_here, look_after_the_past, prepare_error, record_branches, say_warnings, unknown,
};
use super::manual::reason_text;
use super::{open_home, refuse_new_key, runner, selection, valid_project};
use crate::global::Global;
use crate::view::text::clean;
use crate::watch::{WatchEnd, Watcher};
use crate::{CommandError, ExitStatus, Process, report};

/// Run an engine command on a stack, for commands that terrane does not provide
///
/// The engine gets the stack's source, environment, inputs and state. A command that only reads runs on this
/// terminal, takes no lock and can be interactive (`console`). A command that changes the state is a run like any
/// other: bound by the target's writers, queued in its lane, under the lock, recorded. The exit code is the
/// engine's.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane exec network -- state list\n  terrane exec network -- console\n  \
    terrane exec network --reason \"renamed\" -- state mv aws_subnet.a aws_subnet.b\n  \
    terrane exec network --reason \"made by hand in March\" -- import aws_vpc.main vpc-1234"
)]
pub(crate) struct ExecArgs {
    /// The stack
    stack: String,
    /// Why, in a sentence; it is recorded. Required for commands that edit the state (`state mv`, `state rm`)
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The engine's command and its arguments
    #[arg(last = true, required = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) async fn exec(
    args: ExecArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let reason = args.reason.as_deref().map(str::trim);
    let reason = reason
        .filter(|said| !said.is_empty())
        .map(|said| reason_text(said, global, process))
        .transpose()?;
    let mut exec = Exec::parse(&args.args, reason).map_err(|err| refused(&err))?;
    if exec.kind == ExecKind::Read && global.json {
        return Err(CommandError::new(format!(
            "cannot print `{exec}` as JSON: its output comes from the engine"
        ))
        .hint("use the engine's `-json` after `--`, if it has one")
        .status(ExitStatus::Usage));
    }
    // A read-only command writes to this terminal itself, so it needs to know whether to use colours.
    let is_painted = process.look(global).color && process.data_look(global).color;
    if exec.kind == ExecKind::Read && !is_painted {
        exec.args.insert(0, "-no-color".to_owned());
    }
    let (open, project) = valid_project(global, process)?;
    let name = one_stack(&args.stack, &open, &project, process)?;
    let stacks = BTreeSet::from([name.clone()]);
    let settings = process.settings(global)?;
    if keeps_state_here(&project, &name) {
        refuse_new_key(&settings)?;
    }
    let look = process.look(global);
    let control = open_home(&settings, &open, process, look).await?;
    look_after_the_past(&control, &open, look, process).await?;
    let wanted = ChangeSetRequest {
        keeps_plans: false,
        policy_override: None,
        exceptions: None,
        action: Action::Exec,
        in_any_case: stacks.clone(),
        auto_approve: exec.kind == ExecKind::Write,
        parallelism: 1,
        destroy: false,
        refresh_only: false,
        pinned: None,
        no_state: false,
        who: Caller::new(process.actor()),
        may_keep_state: !settings.is_ci || settings.named_home.is_some(),
        exec: Some(exec.clone()),
        stacks,
    };
    let context = ProjectContext {
        open: &open,
        project: &project,
        env: &process.env,
    };
    let requested = request::start(&control, context, wanted).await;
    let Requested::New(begun) = requested.map_err(|err| prepare_error(&err))? else {
        return Err(CommandError::new(
            "an engine command never joins another change set",
        ));
    };
    match exec.kind {
        ExecKind::Read => attend(&control, begun).await,
        ExecKind::Write => {
            let records = record_branches(&open, &project, process);
            let watcher = Watcher::drive(&control, begun, records, global, process);
            Box::pin(follow(&control, watcher, global, process)).await
        }
    }
}

fn refused(err: &ExecRefusal) -> CommandError {
    CommandError::from_error(err)
}

fn one_stack(
    word: &str,
    open: &OpenProject,
    project: &Project,
    process: &Process,
) -> Result<StackName, CommandError> {
    let found = selection::resolve(&[word.to_owned()], open, project, process, None)?;
    let mut names = found.into_iter();
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name),
        (None, _) => Err(CommandError::new(format!("`{word}` selects no stack"))
            .hint("`terrane graph` shows all stacks")
            .status(ExitStatus::Usage)),
        (Some(_), Some(_)) => Err(
            CommandError::new(format!("`{word}` selects several stacks"))
                .hint("name one: a command of the engine works on one state")
                .status(ExitStatus::Usage),
        ),
    }
}

/// Runs the command on this terminal.
async fn attend(control: &Control, begun: StartedChangeSet) -> Result<ExitStatus, CommandError> {
    let serve = runner::endpoint;
    let ended = Box::pin(runners::attend(control, begun.id, &begun.asker, serve)).await;
    let exit = ended.map_err(|err| CommandError::from_error(&err))?;
    Ok(ExitStatus::Engine(exit.code().unwrap_or(1)))
}

/// Lets a runner run the command; it continues if this terminal is closed.
async fn follow(
    control: &Control,
    mut watcher: Watcher<'_>,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match watcher.wait_until_idle().await? {
        WatchEnd::Over => {}
        WatchEnd::AwaitsConfirm => return waits(watcher.set()),
        WatchEnd::Detached => return Ok(ExitStatus::Interrupted),
    }
    watcher.say_missed_records()?;
    let Some(run) = watcher.runs().first() else {
        return Err(CommandError::new("the run is gone"));
    };
    say_warnings(control, run, process.look(global))?;
    tell(&watcher, run, global)
}

/// The error for a change set that waits for an approval.
fn waits(set: &ChangeSet) -> Result<ExitStatus, CommandError> {
    let said = format!(
        "nothing was changed: change set {} waits for an approval",
        set.id
    );
    let hint = format!(
        "`terrane run approve {}` approves it, and the command continues",
        set.id
    );
    Err(CommandError::new(said).hint(hint).status(ExitStatus::Waits))
}

/// Prints the engine's output to the streams that the engine used, and the serial of the state.
fn tell(watcher: &Watcher<'_>, run: &Run, global: &Global) -> Result<ExitStatus, CommandError> {
    let home = &watcher.control().home;
    let said = |path| {
        let bytes = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let events = said(home.engine_events(run.id, Stage::Applying));
    let stderr = said(home.engine_complaints(run.id));
    let code = said(runners::exit_file(home, run.id)).parse().ok();
    let (status, serial, problem) = ending(run, code);
    let parts: Vec<LogText<'_>> = events.split_inclusive('\n').map(LogText::of).collect();
    if global.json {
        let (stdout, hooks) = apart(&parts);
        report::json_line(&json!({
            "event": "outcome",
            "change_set": watcher.set().id.to_string(),
            "exit": status.code(),
            "stdout": stdout,
            "stderr": stderr,
            "hooks": hooks,
            "serial": serial,
            "problem": problem.map(|problem| &problem.message),
        }))?;
        return Ok(status);
    }
    for part in &parts {
        match part {
            LogText::Engine(line) => report::data(line)?,
            LogText::Hook(line) => report::say(&format!("{}\n", clean(line)))?,
        }
    }
    report::say(&stderr)?;
    if let Some(words) = unknown(run) {
        return Err(CommandError::new(words).status(status));
    }
    match (problem, serial) {
        // The engine has reported the problem.
        (Some(_), _) if code.is_some() => Ok(status),
        (Some(problem), _) => {
            let shown = CommandError::new(&problem.message).status(status);
            Err(problem.hint.iter().fold(shown, CommandError::hint))
        }
        (None, Some(serial)) => {
            report::say(&format!("State `{}` is at serial {serial}.\n", run.stack))?;
            Ok(status)
        }
        (None, None) => Ok(status),
    }
}

/// A line in the log of a command that writes: plain engine output, or the event of a hook.
enum LogText<'a> {
    Engine(&'a str),
    Hook(String),
}

impl<'a> LogText<'a> {
    fn of(line: &'a str) -> Self {
        let event = EngineEvent::parse(line);
        if matches!(event.kind, EventKind::Hook(_)) {
            Self::Hook(event.message)
        } else {
            Self::Engine(line)
        }
    }
}

/// Separates the engine's output from the hooks' messages.
fn apart<'a>(parts: &'a [LogText<'_>]) -> (String, Vec<&'a str>) {
    let (mut engine, mut hooks) = (String::new(), Vec::new());
    for part in parts {
        match part {
            LogText::Engine(line) => engine.push_str(line),
            LogText::Hook(line) => hooks.push(line.as_str()),
        }
    }
    (engine, hooks)
}

fn ending(run: &Run, code: Option<i32>) -> (ExitStatus, Option<i64>, Option<&RunProblem>) {
    let RunState::Finished { outcome, .. } = &run.state else {
        return (ExitStatus::Failed, None, None);
    };
    let engine = code.map(ExitStatus::Engine);
    match outcome {
        Outcome::Applied { serial, .. } => (engine.unwrap_or(ExitStatus::Done), *serial, None),
        Outcome::Failed { problem } => {
            let status = match (problem.interrupted, problem.refused) {
                (true, _) => ExitStatus::Interrupted,
                (false, true) => ExitStatus::Refused,
                (false, false) => engine.unwrap_or(ExitStatus::Failed),
            };
            (status, problem.serial, Some(problem))
        }
        Outcome::Unchanged | Outcome::Untouched => (ExitStatus::Done, None, None),
        Outcome::Skipped { .. } => (ExitStatus::Interrupted, None, None),
        Outcome::Planned { .. }
        | Outcome::Deferred { .. }
        | Outcome::NotDone { .. }
        | Outcome::Unknown { .. } => (ExitStatus::Failed, None, None),
    }
}
