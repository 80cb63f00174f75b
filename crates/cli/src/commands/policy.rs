//! `terrane policy`: evaluates policies without a run.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use control::policy::{self, Case, CasePolicy, PolicyContext, PolicyError};
use model::base::diagnostic::{Finding, Severity};
use model::base::error::Explain;
use model::base::ids::RunId;
use model::policy::{PolicyPhase, PolicySource, Verdict};
use serde_json::json;

use super::home_args::HomeHandle;
use super::{read_project, selection};
use crate::global::Global;
use crate::view::findings;
use crate::view::policy::{StackVerdict, render};
use crate::{CommandError, ExitStatus, Process, report};

/// Check an existing plan against policies
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  terrane policy eval network")]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PolicyCommand {
    Eval(EvalArgs),
    /// Read a case from standard input and judge it: what terrane asks of itself
    #[command(hide = true)]
    Judge,
}

/// Check the last plan of a stack, or the plan of a run, against policies
///
/// Uses the project's current policies or the given files, for example to test an edited policy on a real plan.
/// Nothing is planned, changed or recorded. The exit code is 4 if a policy denies it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane policy eval network\n  terrane policy eval r44 --at apply\n  \
    terrane policy eval network --policy policies/owners.rego --json\n  \
    terrane policy eval network --input | opa eval -I -d policies data.terrane.deny"
)]
struct EvalArgs {
    /// A stack, or a run such as `r44`
    #[arg(value_name = "STACK|RUN")]
    what: String,
    /// Evaluate this file instead of the project's policies; may be repeated
    #[arg(long = "policy", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Evaluate as in this phase
    #[arg(long, value_name = "POINT", value_parser = ["plan", "approval", "apply"], default_value = "plan")]
    at: String,
    /// Print the input of `package terrane` policies instead of evaluating them
    #[arg(long)]
    input: bool,
}

pub(crate) async fn policy(
    args: PolicyArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match args.command {
        PolicyCommand::Eval(args) => eval(args, global, process).await,
        PolicyCommand::Judge => {
            policy::answer(io::stdin().lock(), io::stdout().lock())
                .map_err(|err| CommandError::because("could not answer", &err))?;
            Ok(ExitStatus::Done)
        }
    }
}

async fn eval(
    args: EvalArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let mut open = read_project(global, process)?;
    if args.files.is_empty() {
        policy::check(&mut open.loaded);
    }
    let place = HomeHandle::open(global, process).await?;
    let control = &place.control;
    let run = find_run(&args.what, &place).await?;
    let failed = |err: &dyn Explain| CommandError::from_error(err);
    let spec = control.run_spec(run).await.map_err(|err| failed(&err))?;
    let set = control.set_of_run(run).await.map_err(|err| failed(&err))?;
    let case = policy::recall(control, run, &spec)
        .await
        .map_err(|err| shown(&err))?;
    let policies = if args.files.is_empty() {
        let wrong: Vec<Finding> = open
            .loaded
            .findings
            .iter()
            .filter(|it| it.severity == Severity::Error)
            .cloned()
            .collect();
        if !wrong.is_empty() {
            let look = process.look(global);
            report::say(&findings::render(&wrong, &open.loaded.texts, look))?;
            return Err(CommandError::said(ExitStatus::Failed));
        }
        let project = open.loaded.project.as_ref();
        project.map_or_else(Vec::new, |project| {
            policy::current(project, &spec.stack.name)
        })
    } else {
        read_files(&args.files, process)?
    };
    let case = Case { policies, ..case };
    let asking = PolicyContext {
        set: &set,
        run,
        spec: &spec,
        point: point(&args.at),
        is_preview: false,
        approvals: Vec::new(),
        actor: policy::author(&set.request),
        now: jiff::Timestamp::now(),
    };
    if args.input {
        let document = policy::document(control, &case, asking)
            .await
            .map_err(|err| shown(&err))?;
        report::json(&json!(document))?;
        return Ok(ExitStatus::Done);
    }
    let verdict = policy::ask(control, &case, asking)
        .await
        .map_err(|err| shown(&err))?;
    let status = if verdict.denies() {
        ExitStatus::Refused
    } else {
        ExitStatus::Done
    };
    tell(run, verdict, global, process)?;
    Ok(status)
}

fn tell(
    run: RunId,
    verdict: Verdict,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    if global.json {
        return report::json(&json!({ "run": run.to_string(), "policy": verdict }));
    }
    if verdict.asked.is_empty() {
        return report::say("No policy checks this stack in this phase.\n");
    }
    let stack = String::new();
    let look = process.data_look(global);
    let said = StackVerdict {
        stack,
        verdict,
        is_foreseen: false,
    };
    report::data(&render(&[said], 0, look))
}

async fn find_run(what: &str, place: &HomeHandle) -> Result<RunId, CommandError> {
    if let Ok(run) = what.parse::<RunId>() {
        return Ok(run);
    }
    let project = place.project.as_ref();
    let project = project.ok_or_else(|| CommandError::new("the project is empty"))?;
    let stack = selection::one(what, project)?;
    let found = policy::last_planned(&place.control, stack).await;
    found.map_err(|err| shown(&err))?.ok_or_else(|| {
        CommandError::new(format!("no plan of stack `{stack}` with changes is kept"))
            .hint(format!("`terrane plan {stack}` makes one"))
    })
}

/// Reads each file as a separate policy that applies at all points.
fn read_files(files: &[PathBuf], process: &Process) -> Result<Vec<CasePolicy>, CommandError> {
    let read = |file: &PathBuf| {
        let path = file.display().to_string();
        let text = std::fs::read_to_string(process.cwd.join(file))
            .map_err(|err| CommandError::because(format!("could not read `{path}`"), &err))?;
        let name = file.file_stem().unwrap_or_default();
        Ok(CasePolicy {
            name: name.to_string_lossy().into_owned(),
            at: BTreeSet::from(PolicyPhase::ALL),
            enforce: true,
            sources: vec![PolicySource { path, text }],
        })
    };
    files.iter().map(read).collect()
}

fn point(word: &str) -> PolicyPhase {
    let mut all = PolicyPhase::ALL.into_iter();
    all.find(|point| point.as_str() == word)
        .unwrap_or(PolicyPhase::Plan)
}

fn shown(err: &PolicyError) -> CommandError {
    CommandError::from_error(err)
}
