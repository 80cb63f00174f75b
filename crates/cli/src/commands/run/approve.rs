//! `terrane run approve`

use std::time::Duration;

use control::decision::approve::{self as decision, ApproveOutcome, ApproveRequest};
use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::ids::{ChangeSetId, RunId};
use model::run::approval::{ConfirmPlace, FollowUp, MissingApproval, UncountedReason};
use serde_json::json;

use super::{ProjectHandle, RunOrChangeSet};
use crate::global::Global;
use crate::view::text::count;
use crate::view::{ViewOptions, duration, errors, plan};
use crate::watch::{decision_error, policy_warnings};
use crate::{CommandError, ExitStatus, Process, report};

/// Agree that a change set, or one of its runs, may be applied
///
/// Approving does not start the apply: `terrane run confirm` does, unless `--auto-approve` was given. Without a
/// server your identity is not verified; a role is recorded as claimed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run approve c42\n  terrane run approve r44 --role approver --comment \"checked with the network team\""
)]
pub(super) struct ApproveArgs {
    /// The change set, such as `c42`, or a run whose stack is approved by itself, such as `r44`
    what: String,
    /// The role you are approving as
    #[arg(long)]
    role: Option<String>,
    /// The plan you reviewed, as `terrane run show c42 --plan` names it; fails if the plan has changed since
    #[arg(long, value_name = "PLAN")]
    plan: Option<String>,
    /// A comment for others
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

pub(super) async fn approve(
    args: ApproveArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let here = ProjectHandle::open(global, process).await?;
    let (set, run) = RunOrChangeSet::read(&args.what)?.set(&here.control).await?;
    let here = here.of_set(set, process).await?;
    let has_role = args.role.is_some();
    let request = ApproveRequest {
        set,
        run,
        role: args.role,
        comment: args.comment,
        plan: args.plan,
    };
    let actor = process.actor();
    let decider = here.decider(&actor, process);
    let outcome = decision::approve(&here.control, decider, request).await;
    let outcome = outcome.map_err(|err| decision_error(&err))?;
    if global.json {
        report::json(&document(set, &outcome))?;
        return Ok(ExitStatus::Done);
    }
    let look = process.look(global);
    for (stack, said) in &outcome.verdicts.said {
        policy_warnings(stack, &said.warnings, false, look)?;
    }
    let what = run.map_or_else(|| format!("change set {set}"), |run| format!("run {run}"));
    report::say(&format!("Approved {what} as `{actor}` (not verified).\n"))?;
    print_plan(set, &outcome, look)?;
    print_missing(set, run, &outcome.missing, &actor, has_role)?;
    print_follow_up(set, &outcome, look)?;
    Ok(ExitStatus::Done)
}

fn document(set: ChangeSetId, outcome: &ApproveOutcome) -> serde_json::Value {
    let missing: Vec<_> = outcome
        .missing
        .iter()
        .map(|one| json!({ "by": one.by, "given": one.given, "wanted": one.rule.count, "why": one.words() }))
        .collect();
    let warnings = outcome.verdicts.said.iter().flat_map(|(stack, said)| {
        let warnings = said.warnings.iter();
        warnings.map(move |it| json!({ "stack": stack, "policy": it }))
    });
    json!({
        "change_set": set.to_string(),
        "plan": outcome.subject.as_ref().map(|subject| &subject.mark),
        "approvals": outcome.details.approvals,
        "missing": missing,
        "warnings": warnings.collect::<Vec<_>>(),
    })
}

/// Prints which plan is approved: it may have been made again since the user saw it.
fn print_plan(
    set: ChangeSetId,
    outcome: &ApproveOutcome,
    look: ViewOptions,
) -> Result<(), CommandError> {
    if let Some(subject) = &outcome.subject {
        let (counts, stacks) = (plan::sum(&subject.counts), count(subject.stacks, "stack"));
        let made = subject.since.map_or_else(String::new, |since| {
            let span = Timestamp::now().duration_since(since);
            let span = Duration::try_from(span).unwrap_or_default();
            format!("; made {} ago", duration::clock(span))
        });
        report::say(&format!("Its plan: {counts}, in {stacks}{made}.\n"))?;
    }
    if !outcome.plans_are_here {
        let said = format!(
            "cannot show the plans of change set {set}: they are on the machine that made them"
        );
        report::say(&errors::render_warning(&said, &[], look))?;
    }
    Ok(())
}

fn print_missing(
    set: ChangeSetId,
    run: Option<RunId>,
    missing: &[MissingApproval],
    actor: &Actor,
    has_role: bool,
) -> Result<(), CommandError> {
    for one in missing {
        // Earlier approvals of the same user may not count for another reason.
        let mut not_counted = one.not_counted.iter().rev();
        if let Some(not_counted) = not_counted.find(|one| one.person.name == actor.name) {
            let why = match (not_counted.because, &one.rule.role) {
                (UncountedReason::OtherRole, Some(role)) if !has_role => {
                    format!("gave no role; add `--role {role}`")
                }
                (because, _) => because.words().to_owned(),
            };
            report::say(&format!(
                "It does not count for {}: `{actor}` {why}.\n",
                one.by
            ))?;
        }
    }
    for one in missing {
        // A stack that is approved separately is named by its run.
        let way = one
            .run
            .filter(|_| run.is_none())
            .map_or_else(String::new, |_| {
                format!("; `{}` approves it", one.command(set))
            });
        report::say(&format!("Pending: {} ({}){way}\n", one.words(), one.by))?;
    }
    Ok(())
}

fn print_follow_up(
    set: ChangeSetId,
    outcome: &ApproveOutcome,
    look: ViewOptions,
) -> Result<(), CommandError> {
    let text = match outcome.follow_up {
        FollowUp::Waits => return Ok(()),
        FollowUp::Continues => format!("Change set {set} continues.\n"),
        FollowUp::ContinuesInPart => format!("Change set {set} continues with the rest.\n"),
        FollowUp::Resume => format!("Run `terrane apply --resume {set}` to continue.\n"),
        FollowUp::Blocked => match &outcome.blocked {
            Some((why, step)) => errors::render_warning(why, &[step.to_string()], look),
            None => return Ok(()),
        },
        FollowUp::Confirm { by_this_user, at } => {
            let by = if by_this_user {
                ""
            } else {
                " by an allowed user"
            };
            let place = match at {
                ConfirmPlace::Here => "",
                ConfirmPlace::PlanningMachine => ", on the machine that planned it",
                ConfirmPlace::WithVariables => ", where the variables of the request are set",
            };
            format!("`terrane run confirm {set}`{by} starts it{place}.\n")
        }
    };
    report::say(&text)
}
