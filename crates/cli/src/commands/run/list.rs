//! `terrane run list`: every run that is under way or waits, and why.

use std::time::Duration;

use control::changeset::explain::{self, ChangeSetDetails, ChangeSetFilter};
use control::changeset::prepare;
use control::changeset::restrictions::Restrictions;
use control::changeset::upstreams::{self, UnfinishedRun};
use control::run::liveness;
use jiff::Timestamp;
use model::base::ids::StackName;
use model::run::approval::shown;
use model::run::changeset::Status;
use model::run::exec::Exec;
use model::run::{Run, RunState};
use serde_json::{Value, json};

use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::global::at_home;
use crate::view::{ViewOptions, actors, duration, restrictions, table::Table, text::count};
use crate::{CommandError, ExitStatus, Process, report};

/// Show active and waiting runs, and why they wait; `--all` also shows finished ones
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run list\n  terrane run list --open\n  terrane run list --all --limit 5 --json"
)]
pub(super) struct ListArgs {
    /// Also show finished change sets, the newest first
    #[arg(long)]
    all: bool,
    /// At most so many change sets, with `--all`
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
    /// Show open records of break-glass actions
    #[arg(long)]
    open: bool,
}

pub(super) async fn list(
    args: &ListArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    // Must work while the project is being edited: needs no valid project.
    let here = HomeHandle::open(global, process).await?;
    if args.open {
        return open_acts(&here, global, process).await;
    }
    let which = if args.all {
        ChangeSetFilter::Newest(args.limit.into())
    } else {
        ChangeSetFilter::Open
    };
    let in_force = Restrictions::read(&here.control).await;
    let in_force = in_force.map_err(|err| CommandError::from_error(&err))?;
    let sets = explain::list(&here.control, which).await;
    let sets = sets.map_err(|err| CommandError::from_error(&err))?;
    let resting = upstreams::resting(&here.control).await;
    let resting = resting.map_err(|err| CommandError::from_error(&err))?;
    if global.json {
        let sets = sets.iter().map(document).map(actors::by_name);
        let sets: Vec<Value> = sets.collect();
        let resting: Vec<Value> = resting.iter().map(not_done).collect();
        report::json(&json!({
            "change_sets": sets,
            "not_done": resting,
            "holds": actors::by_name(json!(in_force.holds)),
            "open": restrictions::documents(&in_force, here.project.as_ref()),
            "kept_aside": in_force.kept,
        }))?;
        return Ok(ExitStatus::Done);
    }
    if sets.is_empty() && resting.is_empty() {
        report::say(if here.control.home.project().is_empty() {
            "There is no project here: run `terrane run list` in the directory of a project.\n"
        } else if args.all {
            "Nothing has run yet: `terrane plan` shows what would be done.\n"
        } else {
            "Nothing is running. `terrane run list --all` shows earlier runs.\n"
        })?;
        let stopped = prepare::last_stopped(&here.control).await;
        let stopped = stopped.map_err(|err| CommandError::from_error(&err))?;
        if let Some(set) = stopped.filter(|_| !args.all)
            && let Status::Stopped { why } = &set.status
        {
            report::say(&format!(
                "Change set {0} stopped: {why}; `terrane apply --resume {0}` continues it.\n",
                set.id
            ))?;
        }
    }
    let look = process.data_look(global);
    let mut table = Table::new(["SET", "RUN", "STACK", "STATE", "FOR", "WHY"]).right(4);
    for set in &sets {
        let runs = set.runs.iter();
        let mut runs = runs
            .filter(|run| args.all || !run.state.is_finished())
            .peekable();
        if runs.peek().is_some() {
            let is_elsewhere = liveness::is_elsewhere(&here.control, &set.set);
            table.line(heading(set, is_elsewhere, look));
        }
        for run in runs {
            table.row([
                set.set.id.to_string(),
                run.id.to_string(),
                run.stack.to_string(),
                set.word(run).to_owned(),
                span(set, run).map_or_else(|| "–".to_owned(), duration::clock),
                set.why_run(run).unwrap_or_default(),
            ]);
        }
    }
    let others = [
        rests(&resting),
        restrictions::holds(&in_force.holds),
        restrictions::acts(&in_force, Timestamp::now(), |text| at_home(text, global)),
        restrictions::kept(&in_force, Timestamp::now(), |text| at_home(text, global)),
    ];
    let tables = std::iter::once(&table).chain(&others);
    let tables: Vec<String> = tables.map(|table| table.render(look)).collect();
    let shown: Vec<&str> = tables.iter().map(String::as_str).collect();
    let shown: Vec<&str> = shown.into_iter().filter(|it| !it.is_empty()).collect();
    report::data(&shown.join("\n"))?;
    Ok(ExitStatus::Done)
}

/// Stacks that are applied but not done: no runner is working on them, and others may wait.
fn rests(resting: &[UnfinishedRun]) -> Table {
    let mut table = Table::new(["NOT DONE", "RUN", "STATE", "WHY", "WAITING", "NEXT STEP"]);
    for one in resting {
        let waiting: Vec<&str> = one.waiting.iter().map(StackName::as_str).collect();
        table.row([
            one.stack.to_string(),
            one.run.to_string(),
            one.state.clone(),
            one.why.clone().unwrap_or_default(),
            waiting.join(", "),
            one.next_step.to_string(),
        ]);
    }
    table
}

fn not_done(one: &UnfinishedRun) -> Value {
    json!({
        "stack": one.stack,
        "run": one.run.to_string(),
        "state": one.state,
        "why": one.why,
        "waiting": one.waiting,
        "way_on": one.next_step.to_string(),
    })
}

/// ``c42: exec `state list` by `ada`, 3 minutes ago``; if piped, with the time itself.
fn heading(set: &ChangeSetDetails, is_elsewhere: bool, look: ViewOptions) -> String {
    let request = &set.set.request;
    let exec = request.exec.as_ref();
    let exec = exec.map_or_else(String::new, |exec| format!(" `{}`", exec.line()));
    let asker = request.asker.as_ref();
    let asker = asker.map_or("unknown", |asker| &asker.name);
    let at = set.set.created_at;
    let when = if look.piped {
        at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        duration::ago(Duration::try_from(set.now.duration_since(at)).unwrap_or_default())
    };
    let place = match set.set.status {
        _ if !is_elsewhere => "",
        Status::AwaitingConfirm => ", on another machine: confirm it there",
        _ => ", on another machine",
    };
    format!(
        "{}: {}{exec} by `{asker}`, {when}{place}",
        set.set.id,
        request.action.word()
    )
}

/// How long the run has been in its state; none if it is over.
fn span(set: &ChangeSetDetails, run: &Run) -> Option<Duration> {
    Duration::try_from(set.now.duration_since(since(set, run)?)).ok()
}

fn since(set: &ChangeSetDetails, run: &Run) -> Option<Timestamp> {
    Some(match &run.state {
        RunState::Planning { since, .. }
        | RunState::Applying { since, .. }
        | RunState::Completing { since, .. } => *since,
        RunState::Planned { plan, .. } => plan.since.unwrap_or(set.set.created_at),
        RunState::Queued | RunState::Deferred { .. } | RunState::Applied { .. } => {
            set.set.created_at
        }
        RunState::Finished { .. } => return None,
    })
}

pub(super) fn document(set: &ChangeSetDetails) -> Value {
    let runs: Vec<Value> = set
        .runs
        .iter()
        .map(|run| {
            json!({
                "run": run.id.to_string(),
                "stack": run.stack,
                "state": set.word(run),
                "why": set.why_run(run),
                "since": since(set, run),
                "record": run.state,
            })
        })
        .collect();
    json!({
        "change_set": set.set.id.to_string(),
        "action": set.set.request.action.word(),
        "status": set.set.status.word(),
        "why": set.why(),
        "asker": set.set.request.asker,
        "exec": set.set.request.exec.as_ref().map(Exec::line),
        "commit": set.set.request.commit,
        "created_at": set.set.created_at,
        "plan": shown(&set.runs, None).map(|shown| shown.mark),
        "approvals": set.approvals,
        "runs": runs,
    })
}

/// Prints open break-glass records with what closes each, and quarantined states.
async fn open_acts(
    here: &HomeHandle,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let in_force = Restrictions::read(&here.control).await;
    let in_force = in_force.map_err(|err| CommandError::from_error(&err))?;
    let project = here.project.as_ref();
    if global.json {
        let open = restrictions::documents(&in_force, project);
        let kept = &in_force.kept;
        report::json(&json!({ "open": open, "outside": in_force.outside, "kept_aside": kept }))?;
        return Ok(ExitStatus::Done);
    }
    let commands = |text: &str| at_home(text, global);
    let kept = restrictions::kept(&in_force, Timestamp::now(), commands);
    let kept = kept.render(process.data_look(global));
    if in_force.acts.is_empty() && kept.is_empty() {
        report::say(if in_force.outside == 0 {
            "No record of a break-glass action is open.\n"
        } else {
            "No record of a break-glass action in this project is open.\n"
        })?;
    } else {
        let table = restrictions::acts(&in_force, Timestamp::now(), commands);
        let acts = table.render(process.data_look(global));
        let tables = [acts, kept].into_iter().filter(|it| !it.is_empty());
        report::data(&tables.collect::<Vec<_>>().join("\n"))?;
        let closings = restrictions::closings(&in_force, project);
        for sentence in closings.iter().filter(|_| !in_force.acts.is_empty()) {
            report::say(&format!("{}\n", at_home(sentence, global)))?;
        }
    }
    if in_force.outside > 0 {
        report::say(&format!("{}\n", outside(here, in_force.outside)))?;
    }
    Ok(ExitStatus::Done)
}

/// The message about open records outside this project, and how to list them.
fn outside(here: &HomeHandle, acts: usize) -> String {
    let home = here.control.home.store().directory();
    let data = home.map_or_else(String::new, |dir| format!(" --data {}", dir.display()));
    format!(
        "Outside of this project {} {} open: in a directory without a project, \
         `terrane run list --open{data}` lists them.",
        count(acts, "break-glass action"),
        if acts == 1 { "is" } else { "are" }
    )
}
