//! `terrane run show`: one change set or run, with everything that happened to it.

use control::Control;
use control::changeset::explain::{self, ChangeSetDetails, HistoryEvent};
use control::run::logs::attempts;
use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::error::Explain;
use model::base::ids::RunId;
use model::policy::{PolicyPhase, Verdict};
use model::run::approval::shown;
use model::run::changeset::{Action, SetEvent, Status};
use model::run::{Preview, Run, RunEvent, Stage};
use model::stage::gate::GateReport;
use serde_json::{Value, json};

use super::imports::unrecorded_of;
use super::{ProjectHandle, RunOrChangeSet, list};
use crate::commands::change::{self, AppliedPlans};
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::view::plan::sum;
use crate::view::policy::{self, StackVerdict};
use crate::view::table::Table;
use crate::view::{ViewOptions, actors, gates, text, unrecorded};
use crate::watch::Watcher;
use crate::{CommandError, ExitStatus, Process, report};

/// Show a change set or a run: its status, approvals and history
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run show c42\n  terrane run show c42 --plan\n  terrane run show r44 --json"
)]
pub(super) struct ShowArgs {
    /// The change set, such as `c42`, or the run, such as `r44`
    what: String,
    /// Show the plan, as the confirmation shows it
    #[arg(long)]
    plan: bool,
    /// With `--plan`: show every attribute
    #[arg(long, requires = "plan")]
    full: bool,
}

pub(super) async fn show(
    args: &ShowArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    if args.plan {
        return show_plan(args, global, process).await;
    }
    let failed = |err: &dyn Explain| CommandError::from_error(err);
    // Must work while the project is being edited: needs no valid project.
    let here = HomeHandle::open(global, process).await?;
    let (set, run) = RunOrChangeSet::read(&args.what)?.set(&here.control).await?;
    let explained = explain::explain(&here.control, set)
        .await
        .map_err(|err| failed(&err))?;
    let mut history = explain::history(&here.control, set)
        .await
        .map_err(|err| failed(&err))?;
    if let Some(run) = run {
        history.retain(|(_, happened)| matches!(happened, HistoryEvent::Run(id, _) if *id == run));
    }
    if global.json {
        report::json(&actors::by_name(document(
            &here.control,
            &explained,
            &history,
        )))?;
        return Ok(ExitStatus::Done);
    }
    let look = process.data_look(global);
    let runs: Vec<&Run> = explained
        .runs
        .iter()
        .filter(|one| run.is_none_or(|run| run == one.id))
        .collect();
    print_tables(&explained, &runs, &history, look)?;
    let said = runs.iter().filter_map(|one| verdict(one, run.is_none()));
    let said = policy::render(&said.collect::<Vec<_>>(), 0, look);
    if !said.is_empty() {
        report::data(&format!("\n{said}"))?;
    }
    print_stages(&runs, &history, look)?;
    print_attempts(&here.control, &runs)?;
    Ok(ExitStatus::Done)
}

async fn show_plan(
    args: &ShowArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let here = ProjectHandle::open(global, process).await?;
    let (set, run) = RunOrChangeSet::read(&args.what)?.set(&here.control).await?;
    let mut watcher = Watcher::attach(&here.control, set, None, global, process)
        .map_err(|err| CommandError::from_error(&err))?;
    change::show_plans(
        &mut watcher,
        &here.project,
        AppliedPlans::Shown,
        args.full,
        global,
        process,
    )
    .await?;
    let awaits = watcher.set().status == Status::AwaitingConfirm;
    if let Some(shown) = shown(watcher.runs(), run).filter(|_| awaits && !global.json) {
        let (what, mark) = (&args.what, shown.mark);
        let of = run.map_or_else(String::new, |run| format!(" of {run}"));
        report::say(&format!(
            "This is plan `{mark}`{of}; `terrane run approve {what} --plan {mark}` approves no other.\n"
        ))?;
    }
    Ok(ExitStatus::Done)
}

fn document(
    control: &Control,
    explained: &ChangeSetDetails,
    history: &[(Timestamp, HistoryEvent)],
) -> Value {
    let mut document = list::document(explained);
    let runs = document["runs"].as_array_mut().into_iter().flatten();
    for (shown, run) in runs.zip(&explained.runs) {
        shown["attempts"] = json!(attempts(&control.home, run.id));
    }
    document["history"] = history
        .iter()
        .map(|(at, happened)| match happened {
            HistoryEvent::Set(event) => json!({ "at": at, "event": event }),
            HistoryEvent::Run(run, event) => {
                json!({ "at": at, "run": run.to_string(), "event": event })
            }
        })
        .collect();
    document
}

/// Prints the runs, the approvals and the history.
fn print_tables(
    explained: &ChangeSetDetails,
    runs: &[&Run],
    history: &[(Timestamp, HistoryEvent)],
    look: ViewOptions,
) -> Result<(), CommandError> {
    report::data(&heading(explained))?;
    let mut table = Table::new(["RUN", "STACK", "STATE", "WHY"]);
    for one in runs {
        table.row([
            one.id.to_string(),
            one.stack.to_string(),
            explained.word(one).to_owned(),
            explained.why_run(one).unwrap_or_default(),
        ]);
    }
    report::data(&format!("\n{}", table.render(look)))?;
    approvals(explained, look)?;
    let mut table = Table::new(["AT", "", "WHAT HAPPENED"]);
    for (at, happened) in history {
        let (who, words) = words(explained, happened);
        table.row([moment(*at), who, words]);
    }
    report::data(&format!("\n{}", table.render(look)))
}

/// Prints the gates and the failed bootstraps.
fn print_stages(
    runs: &[&Run],
    history: &[(Timestamp, HistoryEvent)],
    look: ViewOptions,
) -> Result<(), CommandError> {
    for one in runs {
        let reports = gates_of(one, history);
        if !reports.is_empty() {
            report::data(&format!(
                "\ngates of `{}`, last checked by {}\n{}",
                one.stack,
                one.id,
                gates::brief(&reports, look)
            ))?;
        }
    }
    for one in runs {
        if let Some(message) = bootstrap_of(one, history) {
            let (stack, id) = (&one.stack, one.id);
            let lines: Vec<_> = message.lines().map(text::clean).collect();
            report::data(&format!(
                "\nbootstrap of `{stack}`, last tried by {id}\n{}\n",
                lines.join("\n")
            ))?;
        }
    }
    Ok(())
}

/// Prints which runs have logs of several attempts, and the resources that no state records.
fn print_attempts(control: &Control, runs: &[&Run]) -> Result<(), CommandError> {
    for one in runs {
        let attempts = attempts(&control.home, one.id);
        if attempts > 1 {
            report::say(&format!(
                "{} of `{}` has the logs of {attempts} attempts; `terrane run logs {} --attempt 1` shows the first.\n",
                one.id, one.stack, one.id
            ))?;
        }
    }
    for one in runs {
        if let Some(left) = unrecorded_of(&one.state) {
            let lines = unrecorded::lines(left, &one.id.to_string(), one.stack.as_str());
            report::data(&format!(
                "\n{} of `{}`: {}\n",
                one.id,
                one.stack,
                lines.join("\n")
            ))?;
        }
    }
    Ok(())
}

/// The policy verdict on a run, from any phase; none if it is empty.
fn verdict(run: &Run, is_named: bool) -> Option<StackVerdict> {
    let foreseen = run.state.foreseen().cloned();
    let is_foreseen = foreseen.is_some();
    let mut verdict = foreseen.or_else(|| run.state.policy()).unwrap_or_default();
    if !is_foreseen {
        verdict.warnings = run.state.warnings();
    }
    verdict.denials.extend(run.state.denied_yes().cloned());
    if verdict.is_silent() {
        return None;
    }
    let warned = verdict.warnings.iter().map(|it| it.policy.clone());
    verdict.asked.extend(warned);
    let stack = run.stack.to_string();
    Some(StackVerdict {
        stack: if is_named { stack } else { String::new() },
        verdict,
        is_foreseen,
    })
}

/// The results of a run's gates when they were last checked, with the evidence.
fn gates_of(run: &Run, history: &[(Timestamp, HistoryEvent)]) -> Vec<GateReport> {
    let mut reports = history.iter().rev().filter_map(|(_, happened)| {
        let report = match happened {
            HistoryEvent::Run(id, event) if *id == run.id => match &**event {
                RunEvent::StageFinished {
                    part: Stage::Verifying,
                    report,
                    ..
                } => report.get("details"),
                RunEvent::Failed { problem } if problem.stage == Stage::Verifying => {
                    problem.report.as_deref()
                }
                _ => None,
            },
            HistoryEvent::Run(..) | HistoryEvent::Set(_) => None,
        };
        serde_json::from_value(report?.clone()).ok()
    });
    reports.next().unwrap_or_default()
}

/// The message of the last bootstrap, if it failed.
fn bootstrap_of<'h>(run: &Run, history: &'h [(Timestamp, HistoryEvent)]) -> Option<&'h str> {
    let mut tried = history.iter().rev().filter_map(|(_, happened)| {
        let HistoryEvent::Run(id, event) = happened else {
            return None;
        };
        match &**event {
            RunEvent::StageFinished {
                part: Stage::Bootstrapping,
                ..
            } if *id == run.id => Some(None),
            RunEvent::Failed { problem }
                if *id == run.id && problem.stage == Stage::Bootstrapping =>
            {
                Some(Some(problem.message.as_str()))
            }
            _ => None,
        }
    });
    tried.next().flatten()
}

fn heading(explained: &ChangeSetDetails) -> String {
    let set = &explained.set;
    let mut lines = vec![format!(
        "change set {}: {} by `{}`, {}",
        set.id,
        set.request.action.word(),
        set.request
            .asker
            .as_ref()
            .map_or("unknown", |asker| &asker.name),
        set.status.word()
    )];
    if let Some(exec) = &set.request.exec {
        let why = exec.reason.as_ref();
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        lines.push(format!("engine command `{}`{why}", exec.line()));
    }
    if let Some(commit) = &set.request.commit {
        let subject = set.request.subject.as_deref().unwrap_or_default();
        let short: String = commit.chars().take(7).collect();
        lines.push(format!("source {short} \"{subject}\""));
    }
    if let Some(why) = explained.why() {
        lines.push(why);
    }
    format!("{}\n", lines.join("\n"))
}

fn approvals(explained: &ChangeSetDetails, look: ViewOptions) -> Result<(), CommandError> {
    let mut table = Table::new(["APPROVED BY", "ROLE", "FOR", "AT", "COMMENT"]);
    for one in &explained.approvals {
        let role = one.role.as_deref().unwrap_or("–");
        let role = if one.verified {
            role.to_owned()
        } else {
            format!("{role} (not verified)")
        };
        table.row([
            one.person.name.clone(),
            role,
            one.run
                .map_or_else(|| "all".to_owned(), |run: RunId| run.to_string()),
            moment(one.at),
            one.comment.clone().unwrap_or_default(),
        ]);
    }
    if !explained.approvals.is_empty() {
        report::data(&format!("\n{}", table.render(look)))?;
    }
    Ok(())
}

fn words(explained: &ChangeSetDetails, happened: &HistoryEvent) -> (String, String) {
    match happened {
        HistoryEvent::Set(event) => (explained.set.id.to_string(), set_words(event)),
        HistoryEvent::Run(run, event) => {
            let stack = explained.runs.iter().find(|one| one.id == *run);
            let stack = stack.map(|one| one.stack.to_string()).unwrap_or_default();
            (stack, run_words(event, explained.set.request.action))
        }
    }
}

fn set_words(event: &SetEvent) -> String {
    let by = |by: &Option<Actor>| {
        by.as_ref()
            .map(|by| format!(" by `{by}`"))
            .unwrap_or_default()
    };
    match event {
        SetEvent::Requested { confirmed: true } => "requested, confirmed in advance".to_owned(),
        SetEvent::Requested { confirmed: false } => "requested".to_owned(),
        SetEvent::CameToRest => "waits for a person".to_owned(),
        SetEvent::Confirmed { by: None } => "continues: no confirmation needed".to_owned(),
        SetEvent::Confirmed { by: who } => format!("confirmed{}", by(who)),
        SetEvent::LanesTaken => "acquired its lanes".to_owned(),
        SetEvent::Completed => "finished".to_owned(),
        SetEvent::Failed { why } => format!("stopped: {why}"),
        SetEvent::Interrupted { by: who } => format!("interrupted{}", by(who)),
        SetEvent::WoundDown => "stopped: every engine has ended".to_owned(),
        SetEvent::Discarded { by: who, reason } => {
            let reason = reason.as_ref().map(|reason| format!(": {reason}"));
            format!("discarded{}{}", by(who), reason.unwrap_or_default())
        }
        SetEvent::Rejected { by, reason } => format!("rejected by `{by}`: {reason}"),
        SetEvent::Abandoned { why } => format!("stopped: {why}"),
        SetEvent::Superseded { by } => format!("superseded by change set {by}"),
        SetEvent::Reopened { by: who, .. } => format!("resumed{}", by(who)),
    }
}

fn run_words(event: &RunEvent, action: Action) -> String {
    let is_exec = action == Action::Exec;
    match event {
        RunEvent::PlanStarted if is_exec => "preparing began".to_owned(),
        RunEvent::NothingToChange { .. } if is_exec => "done, and changed nothing".to_owned(),
        RunEvent::PlanFinished { .. } if is_exec => "prepared".to_owned(),
        RunEvent::ApplyStarted if is_exec => "the engine began".to_owned(),
        RunEvent::ApplyFinished {
            serial: Some(serial),
            ..
        } if is_exec => format!("done: serial {serial}"),
        RunEvent::PlanStarted => "planning began".to_owned(),
        RunEvent::PreviewStarted { .. } => {
            "preview began: its upstreams are not applied yet".to_owned()
        }
        RunEvent::Previewed { preview, .. } => match preview {
            Preview::None => "deferred".to_owned(),
            Preview::Planned { plan } => format!("deferred: {} so far", sum(&plan.counts)),
            Preview::Unchanged => "deferred: no changes so far".to_owned(),
            Preview::Impossible { why } => format!("deferred, no preview: {why}"),
        },
        RunEvent::NothingToChange { .. } => "planned: no changes".to_owned(),
        RunEvent::NothingConsumed { .. } => "untouched: nothing it consumes changes".to_owned(),
        RunEvent::PlanFinished { plan, .. } => format!("planned: {}", sum(&plan.counts)),
        RunEvent::Deferred { .. } => "deferred".to_owned(),
        RunEvent::PolicyAsked { at, by, said } => policy_words(*at, by.as_ref(), said),
        RunEvent::Confirmed => "confirmed".to_owned(),
        RunEvent::ApplyStarted => "applying began".to_owned(),
        RunEvent::ApplyPutOff { .. } => {
            "put off: policies require more approvals of the confirmation".to_owned()
        }
        RunEvent::PlanVoided { why } => format!("planned again: {why}"),
        RunEvent::ApplyFinished { serial, .. } => match serial {
            Some(serial) => format!("applied: serial {serial}"),
            None => "applied".to_owned(),
        },
        RunEvent::StageStarted { part } => format!("{} began", part.part_word()),
        RunEvent::StageFinished {
            part: Stage::Applying,
            ..
        } => format!("{} done", Stage::Applying.part_word()),
        RunEvent::StageFinished { part, report, .. } => match report.get("summary") {
            Some(Value::String(summary)) => {
                format!("{} passed: {summary}", part.word())
            }
            _ => format!("{} passed", part.word()),
        },
        RunEvent::Failed { problem } => {
            let first = problem
                .diagnostics
                .first()
                .map_or(problem.message.as_str(), |first| &first.summary);
            format!("failed: {}", first.lines().next().unwrap_or_default())
        }
        RunEvent::Skipped { .. } => "skipped".to_owned(),
        RunEvent::RunnerLost { .. } => "its runner was lost".to_owned(),
        RunEvent::CancelAsked { by, reason, kill } => {
            let action = if *kill { "kill" } else { "cancel" };
            let reason = reason.as_ref().map(|reason| format!(": {reason}"));
            format!("{action} requested by `{by}`{}", reason.unwrap_or_default())
        }
        RunEvent::Reopened { moved: false } => "reopened".to_owned(),
        RunEvent::Reopened { moved: true } => "reopened: it changed since".to_owned(),
    }
}

/// The policy verdict of a later phase, in one line.
fn policy_words(at: PolicyPhase, by: Option<&Actor>, said: &Verdict) -> String {
    let about = match (at, by) {
        (PolicyPhase::Approval, Some(by)) => format!("for the approval by `{by}`"),
        (PolicyPhase::Approval, None) => "for the confirmation".to_owned(),
        (PolicyPhase::Plan | PolicyPhase::Apply, _) => format!("at {}", at.as_str()),
    };
    let parts: Vec<String> = [
        (said.denials.len(), "denial"),
        (said.approvals.len(), "approval condition"),
        (said.warnings.len(), "warning"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, noun)| text::count(number, noun))
    .collect();
    if parts.is_empty() {
        return format!("policies checked {about}: passed");
    }
    format!("policies checked {about}: {}", parts.join(", "))
}

fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}
