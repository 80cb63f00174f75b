//! `terrane run approve`

use std::time::Duration;

use control::Control;
use control::changeset::explain::{self, ApproveError, NewApproval};
use control::changeset::{approval_policy, prepare};
use control::schedule::scheduler;
use control::secrets::caller_env::CallerEnv;
use jiff::Timestamp;
use model::base::error::Explain;
use model::run::approval::{UncountedReason, shown};
use model::run::changeset::{ChangeSet, Status, is_said};
use model::run::{Run, RunState};
use serde_json::json;

use super::{ProjectHandle, RunOrChangeSet};
use crate::global::Global;
use crate::view::text::count;
use crate::view::{duration, errors, plan};
use crate::watch::policy_warnings;
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
    let failed = |err: &dyn Explain| CommandError::from_error(err);
    let (set, run) = RunOrChangeSet::read(&args.what)?.set(&here.control).await?;
    let here = here.of_set(set, process).await?;
    let before = explain::explain(&here.control, set)
        .await
        .map_err(|err| failed(&err))?;
    let is_planning = |run: &Run| matches!(run.state, RunState::Planning { .. });
    let is_nothing_there = before.set.status == Status::Confirmed
        && shown(&before.runs, run).is_none()
        && before.runs.iter().any(is_planning);
    if before.set.status == Status::Planning || is_nothing_there {
        let why = format!("cannot approve change set {set}: it is still being planned");
        return Err(CommandError::new(why)
            .hint(format!(
                "`terrane run show {set} --plan` shows the plan once it exists"
            ))
            .status(ExitStatus::Refused));
    }
    let is_over = before.set.status.is_over();
    let is_heard = if is_over {
        !before.owed_before_resume().is_empty()
    } else {
        !before.set.request.approvals.is_empty()
            || !before.owed().is_empty()
            || approval_policy::hears_approvals(&here.control, &before)
                .await
                .map_err(|err| failed(&err))?
    };
    if !is_heard {
        let why = if is_over {
            format!("change set {set} is {}", before.set.status.word())
        } else {
            format!("change set {set} needs no approval")
        };
        return Err(CommandError::new(why)
            .hint(format!("`terrane run show {set}` shows its status"))
            .status(ExitStatus::Refused));
    }
    let has_role = args.role.is_some();
    let new = NewApproval {
        set,
        run,
        person: process.actor(),
        role: args.role,
        comment: args.comment,
        seen: args.plan,
    };
    let heard = approval_policy::evaluate_approval(&here.control, &before, &new)
        .await
        .map_err(|err| failed(&err))?;
    if let Some(first) = heard.denials().next() {
        return Err(
            CommandError::new(format!("this approval is denied by policy: {first}"))
                .status(ExitStatus::Refused),
        );
    }
    let after = match explain::approve(&here.control, new).await {
        Err(err @ ApproveError::OtherPlans(_)) => {
            return Err(failed(&err)
                .hint(format!(
                    "`terrane run show {set} --plan` shows the current plan and its name"
                ))
                .status(ExitStatus::Refused));
        }
        after => after.map_err(|err| failed(&err))?,
    };
    let shown = shown(&after.runs, run);
    let owed = if is_over {
        after.owed_before_resume()
    } else {
        after.owed()
    };
    let is_here = after.set.request.machine == here.control.home.machine();
    // Approvals of single stacks may still be missing: the others continue first.
    let is_ready = (owed.is_empty() || after.goes_on())
        && is_said(&after.set, &after.runs)
        && after.set.status == Status::AwaitingConfirm;
    // The approved run may start while others are running.
    let is_at_work = after.set.status == Status::Confirmed;
    // A user who approves may have no right to apply.
    let may_begin = owed.is_empty() || is_at_work || is_ready;
    let stands_in_the_way = stands_in_the_way(&here, &after.set).await?;
    let may_apply =
        may_begin && stands_in_the_way.is_none() && here.check_writer(set, process).await.is_ok();
    // The approver's variables and credentials are not the requester's.
    let needs_asker = prepare::needs_caller_env(&here.control, set)
        .await
        .map_err(|err| failed(&err))?;
    let starts = is_here && may_apply && !needs_asker && (is_ready || is_at_work);
    // If not started here, the client or the runners of the change set continue with it.
    let goes_on = starts && is_ready || owed.is_empty() && (starts || is_at_work);
    if starts {
        scheduler::advance(&here.control, set, None, &CallerEnv::default(), None)
            .await
            .map_err(|err| failed(&err))?;
    }
    if global.json {
        let owed: Vec<_> = owed
            .iter()
            .map(|one| json!({ "by": one.by, "given": one.given, "wanted": one.rule.count, "why": one.words() }))
            .collect();
        let warnings = heard.said.iter().flat_map(|(stack, said)| {
            let warnings = said.warnings.iter();
            warnings.map(move |it| json!({ "stack": stack, "policy": it }))
        });
        report::json(&json!({
            "change_set": set.to_string(),
            "plan": shown.as_ref().map(|shown| &shown.mark),
            "approvals": after.approvals,
            "owed": owed,
            "warnings": warnings.collect::<Vec<_>>(),
        }))?;
        return Ok(ExitStatus::Done);
    }
    for (stack, said) in &heard.said {
        policy_warnings(stack, &said.warnings, false, process.look(global))?;
    }
    let what = run.map_or_else(|| format!("change set {set}"), |run| format!("run {run}"));
    report::say(&format!(
        "Approved {what} as `{}` (not verified).\n",
        process.actor()
    ))?;
    // The plan may have been made again since the user saw it.
    if let Some(shown) = shown {
        let (counts, stacks) = (plan::sum(&shown.counts), count(shown.stacks, "stack"));
        let made = shown.since.map_or_else(String::new, |since| {
            let span = Timestamp::now().duration_since(since);
            let span = Duration::try_from(span).unwrap_or_default();
            format!("; made {} ago", duration::clock(span))
        });
        report::say(&format!("Its plan: {counts}, in {stacks}{made}.\n"))?;
    }
    if !can_be_shown(&here.control, &after.runs).await {
        let said = format!(
            "cannot show the plans of change set {set}: they are on the machine that made them"
        );
        report::say(&errors::render_warning(&said, &[], process.look(global)))?;
    }
    let actor = process.actor();
    for one in &owed {
        // Earlier approvals of the same user may not count for another reason.
        let mut not_counted = one.not_counted.iter().rev();
        if let Some(not_counted) = not_counted.find(|one| one.person == actor) {
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
    for one in &owed {
        // A stack that is approved separately is named by its run.
        let way = one
            .run
            .filter(|_| run.is_none())
            .map_or_else(String::new, |_| {
                format!("; `{}` approves it", one.command(set))
            });
        report::say(&format!("Pending: {} ({}){way}\n", one.words(), one.by))?;
    }
    if goes_on && owed.is_empty() {
        report::say(&format!("Change set {set} continues.\n"))?;
    } else if goes_on {
        report::say(&format!("Change set {set} continues with the rest.\n"))?;
    } else if owed.is_empty() && is_over {
        report::say(&format!(
            "Run `terrane apply --resume {set}` to continue.\n"
        ))?;
    } else if let Some((why, way)) = stands_in_the_way {
        report::say(&errors::render_warning(&why, &[way], process.look(global)))?;
    } else if owed.is_empty() || is_ready {
        let (by, place) = (
            if may_apply {
                ""
            } else {
                " by a user who may apply it"
            },
            if !is_here {
                ", on the machine that planned it"
            } else if needs_asker {
                ", where the variables of the request are set"
            } else {
                ""
            },
        );
        report::say(&format!(
            "`terrane run confirm {set}`{by} starts it{place}.\n"
        ))?;
    }
    Ok(ExitStatus::Done)
}

/// Whether the approver could see the plans.
async fn can_be_shown(control: &Control, runs: &[Run]) -> bool {
    for run in runs {
        let has_plan = matches!(run.state, RunState::Planned { .. });
        if has_plan && prepare::plan_view(control, run).await.is_none() {
            return false;
        }
    }
    true
}

/// Why the project's current rules prevent the start of a change set, and the next step.
async fn stands_in_the_way(
    here: &ProjectHandle,
    set: &ChangeSet,
) -> Result<Option<(String, String)>, CommandError> {
    let id = set.id;
    if let Some(by) = prepare::requires_more_approvals(&here.project, &set.request) {
        return Ok(Some((
            format!("{by} now requires more approvals than when change set {id} was requested"),
            format!("`terrane run discard {id} --reason …` drops it; then request it again"),
        )));
    }
    let stack = here.protected_since(id).await?;
    Ok(stack.map(|stack| {
        (
            format!("stack `{stack}` was protected after its destroy was requested"),
            format!("`terrane run confirm {id} --confirm {stack}` destroys it"),
        )
    }))
}
