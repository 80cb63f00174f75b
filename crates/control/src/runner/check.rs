//! The checking stage: evaluates policies for a plan when it is made, and again before it is applied.
//!
//! A plan without changes is not evaluated: there is nothing to deny.

use std::collections::BTreeSet;
use std::path::Path;

use drivers::process::engine_environment;
use drivers::snapshot::sha256;
use jiff::Timestamp;
use model::base::masking::Mask;
use model::policy::{
    ActorFacts, ApprovalFacts, PolicyPhase, PolicySource, Remark, RequiredApproval, Verdict, redact,
};
use model::project::Backend;
use model::run::approval::{Approval as Given, MissingApproval, missing_policy_approvals};
use model::run::changeset::{Action, SetEvent};
use model::run::{PlanRecord, Run, RunEvent};
use model::stage::contract::{self, PlannedFields};
use model::state::break_glass::BreakGlassAction;
use serde_json::{Map, Value};
use store::NewBreakGlass;

use super::workspace::Workspace;
use super::{Failure, StageJob};
use crate::policy::{self, Case, CasePolicy, PolicyContext, PolicyError};
use crate::project::contracts::{self, PlanCheck};
use crate::stage::facts::{self, ForecastContext};
use crate::state::outputs;

/// Evaluates policies right after planning. Stores the plan and the policies from its source. Later
/// evaluations use only these.
pub(super) async fn at_plan(
    job: &StageJob<'_>,
    shown: &[u8],
    mask: &Mask,
    workspace: &Workspace,
) -> Result<Verdict, Failure> {
    keeps_contracts(job, Some(shown), workspace).await?;
    let plan = redact(shown, mask);
    let plan = plan.map_err(|err| Failure::because("could not understand the plan", &err))?;
    let policies = policies(job, workspace)?;
    let case = Case { plan, policies };
    let kept = policy::keep(job.control, job.run, job.spec, &case).await;
    kept.map_err(|err| failure(&err))?;
    let author = policy::author(&job.set.request);
    let verdict = ask(job, &case, PolicyPhase::Plan, Vec::new(), author).await?;
    if verdict.denies() && job.set.request.policy_override.is_none() {
        return Err(denied("denied by policy", verdict));
    }
    Ok(verdict)
}

/// Evaluates policies for a preview, and predicts the approvals that its confirmation would require. A denial
/// does not end the run: policies are evaluated again when the missing values are known. A policy that cannot
/// be evaluated counts as a denial.
pub(super) async fn at_preview(
    job: &StageJob<'_>,
    plan: Value,
    workspace: &Workspace,
) -> Result<Verdict, Failure> {
    let is_asked = |point| job.spec.is_asked_at(point);
    if !is_asked(PolicyPhase::Plan) && !is_asked(PolicyPhase::Approval) {
        return Ok(Verdict::default());
    }
    let policies = policies(job, workspace)?;
    let case = Case { plan, policies };
    let mut verdict = Verdict::default();
    if is_asked(PolicyPhase::Plan) {
        verdict = foresee(job, &case, PolicyPhase::Plan).await?;
    }
    if is_asked(PolicyPhase::Approval) {
        let of_yes = foresee(job, &case, PolicyPhase::Approval).await?;
        of_yes.approvals.into_iter().for_each(|it| verdict.want(it));
        let new = of_yes.asked.into_iter();
        let new: Vec<String> = new.filter(|it| !verdict.asked.contains(it)).collect();
        verdict.asked.extend(new);
    }
    Ok(verdict)
}

async fn foresee(job: &StageJob<'_>, case: &Case, point: PolicyPhase) -> Result<Verdict, Failure> {
    let asking = PolicyContext {
        set: job.set,
        run: job.run,
        spec: job.spec,
        point,
        is_preview: true,
        approvals: Vec::new(),
        actor: policy::author(&job.set.request),
        now: job.control.now(),
    };
    let asked = async {
        match policy::ask(job.control, case, asking).await {
            Err(PolicyError::Trouble { policy, why }) => Ok(Verdict {
                asked: vec![policy.clone()],
                denials: vec![Remark {
                    policy,
                    rule: "error".to_owned(),
                    message: format!("it could not be evaluated: {why}"),
                    resource: None,
                }],
                ..Verdict::default()
            }),
            said => said.map_err(|err| failure(&err)),
        }
    };
    job.unless_stopped(None, asked).await
}

/// Checks contracts for a plan without changes. What the stack publishes may have changed, so it may publish
/// less than before.
pub(super) async fn of_nothing(job: &StageJob<'_>, workspace: &Workspace) -> Result<(), Failure> {
    let spec = job.spec;
    let says_nothing = spec.stack.stages.publish.is_empty() && spec.fact_locations.is_empty();
    if says_nothing || spec.refresh_only {
        return Ok(());
    }
    keeps_contracts(job, None, workspace).await
}

/// Refuses a plan that breaks what others rely on, before policies are evaluated. A destroy removes
/// everything, and its plan already shows that. `shown` is the plan's JSON; none if nothing changes.
async fn keeps_contracts(
    job: &StageJob<'_>,
    shown: Option<&[u8]>,
    workspace: &Workspace,
) -> Result<(), Failure> {
    let spec = job.spec;
    if spec.destroy {
        return forecast_facts(job, &PlannedFields::default(), workspace).await;
    }
    let stages = &spec.stack.stages;
    if stages.publish.is_empty() && spec.relied.inputs.is_empty() && spec.fact_locations.is_empty()
    {
        return Ok(());
    }
    let is_ours = spec.target.backend == Backend::Terrane;
    let known = outputs::of_state(job.control, &spec.stack.state, is_ours).await;
    let known = known.map_err(|err| Failure::because("could not read its outputs", &err))?;
    let before: Map<String, Value> = known
        .iter()
        .map(|(name, it)| (name.clone(), it.value.clone()))
        .collect();
    let planned = if let Some(shown) = shown {
        contract::planned(shown)
            .map_err(|err| Failure::because("could not understand the plan", &err))?
    } else {
        let sensitive = known.iter().filter(|(_, it)| it.sensitive);
        PlannedFields {
            sensitive: sensitive.map(|(name, _)| name.clone()).collect(),
            ..PlannedFields::known(before.clone())
        }
    };
    let breaks = contracts::check_plan(PlanCheck {
        source: workspace.tree(),
        root: Path::new(&spec.root),
        blocks: &spec.stack.stages.publish,
        relied: &spec.relied,
        locations: &spec.fact_locations,
        before: &before,
        planned: &planned,
        env: job.asker.env(),
    })
    .map_err(|err| Failure::because("could not check its contracts", &err))?;
    if breaks.is_empty() {
        return forecast_facts(job, &planned, workspace).await;
    }
    let (what, hint) = match (breaks.takes_away(), breaks.narrowed.is_empty()) {
        (false, _) => (
            "outputs violate their contract",
            "fix the outputs, or name what may be missing for now in `partial`",
        ),
        (true, false) => (
            "readers use what it removes",
            "keep the output, or change its readers first",
        ),
        (true, true) => (
            "readers use what it no longer publishes",
            "keep publishing it, or change its readers first",
        ),
    };
    let said = format!(
        "{what}: {}\n{}",
        breaks.names().join(", "),
        breaks.lines().join("\n")
    );
    Err(Failure::new(said).hint(hint).refused())
}

/// Notes what an apply would do to facts, for users who review the plan. Refuses now what the apply would
/// certainly refuse.
async fn forecast_facts(
    job: &StageJob<'_>,
    planned: &PlannedFields,
    workspace: &Workspace,
) -> Result<(), Failure> {
    let spec = job.spec;
    if spec.stack.stages.publish.is_empty() && spec.fact_locations.is_empty() {
        return Ok(());
    }
    let context = ForecastContext {
        control: job.control,
        spec: job.spec,
        asker: job.asker,
        env: &engine_environment(job.asker.env(), job.spec.target.is_open()),
        tree: workspace.tree(),
        planned,
    };
    let forecast = context
        .forecast()
        .await
        .map_err(|err| Failure::explained("cannot publish its facts", &err))?;
    facts::note_forecast(&job.control.home, job.run, &forecast);
    Ok(())
}

/// Evaluates policies for the confirmation of a new plan. `is_said`: the plan is already confirmed and needs
/// no other approval, so a denial ends the run. Otherwise this predicts the required approvals as if the
/// requester confirmed. The confirming user and the time are not known yet.
pub(super) async fn at_yes(job: &StageJob<'_>, is_said: bool) -> Result<Verdict, Failure> {
    let is_past = job.set.request.policy_override.is_some();
    if is_past || !job.spec.is_asked_at(PolicyPhase::Approval) {
        return Ok(Verdict::default());
    }
    let (_, given) = standing(job).await?;
    match ask_about_yes(job, &policy::approvals(&given)).await {
        Ok(said) if is_said && said.denies() => Err(denied("denied by policy", said)),
        Ok(said) if is_said => Ok(said),
        Ok(said) => Ok(Verdict {
            asked: said.asked,
            approvals: said.approvals,
            ..Verdict::default()
        }),
        Err(failure) if is_said || failure.interrupted => Err(failure),
        Err(_) => Ok(Verdict::default()), // the confirming user sees the error
    }
}

/// Whether approvals that policies require for a new plan are still missing. Approvals from before `since`
/// were given to another plan.
pub(super) async fn is_owed(
    job: &StageJob<'_>,
    policy: &Verdict,
    since: Option<Timestamp>,
) -> Result<bool, Failure> {
    if policy.approvals.is_empty() || job.set.request.policy_override.is_some() {
        return Ok(false);
    }
    let (run, given) = standing(job).await?;
    let is_about = |it: &Given| since.is_none_or(|since| it.at >= since);
    let given: Vec<Given> = given.into_iter().filter(is_about).collect();
    let now = job.control.now();
    let missing = |wanted| missing_policy_approvals(job.set, &run, wanted, &given, now).is_some();
    Ok(policy.approvals.iter().any(missing))
}

async fn ask_about_yes(job: &StageJob<'_>, given: &[ApprovalFacts]) -> Result<Verdict, Failure> {
    let case = policy::recall(job.control, job.run, job.spec).await;
    let case = case.map_err(|err| failure(&err))?;
    let events = job.control.store.change_set_events(job.set.id).await;
    let events = events.map_err(|err| Failure::because("cannot read who confirmed", &err))?;
    let said = events.into_iter().rev().find_map(|(_, event)| match event {
        SetEvent::Confirmed { by } => by,
        _ => None,
    });
    let actor = match said {
        Some(person) if !job.auto_approve => ActorFacts::person(&person.name),
        _ => policy::author(&job.set.request),
    };
    ask(job, &case, PolicyPhase::Approval, given.to_vec(), actor).await
}

/// Evaluates policies before the engine starts. An override of policies is recorded. Returns an event if the
/// confirmation requires approvals that were not known before: the apply waits for them.
pub(super) async fn at_apply(
    job: &StageJob<'_>,
    plan: &PlanRecord,
) -> Result<Option<RunEvent>, Failure> {
    if job.spec.policies.is_empty() {
        return Ok(None);
    }
    let (at_plan, request) = (&plan.policy, &job.set.request);
    let note = async |at: PolicyPhase, said: &Verdict| {
        let noted = policy::note(job.control, job.run, plan, at, None, said).await;
        noted.map_err(|err| Failure::because("could not store the results of policies", &err))
    };
    let case = policy::recall(job.control, job.run, job.spec).await;
    let case = case.map_err(|err| failure(&err))?;
    let (run, given) = standing(job).await?;
    let approvals = policy::approvals(&given);
    let author = policy::author(request);
    let mut verdict = ask(
        job,
        &case,
        PolicyPhase::Apply,
        approvals.clone(),
        author.clone(),
    )
    .await?;
    note(PolicyPhase::Apply, &verdict).await?;
    let of_apply = verdict.approvals.clone();
    // Approvals for the plan and for its confirmation are required here too, whether policies are evaluated
    // again or not.
    let is_asked_again = is_yes_to_be_asked_about(job, plan);
    let wanted = plan.wanted();
    let wanted = wanted.filter(|it| !is_asked_again || at_plan.approvals.contains(it));
    wanted.for_each(|it| verdict.want(it.clone()));
    let mut of_yes = Verdict::default();
    if is_asked_again {
        of_yes = ask_about_yes(job, &approvals).await?;
        note(PolicyPhase::Approval, &of_yes).await?;
        let wanted = of_yes.approvals.iter().cloned();
        wanted.for_each(|it| verdict.want(it));
        let new = of_yes.denials.iter();
        let new = new.filter(|it| !verdict.denials.contains(it)).cloned();
        let new: Vec<Remark> = new.collect();
        verdict.denials.extend(new);
    }
    let now = job.control.now();
    let wanted = verdict.approvals.iter();
    let lacks = |wanted: &RequiredApproval| {
        missing_policy_approvals(job.set, &run, wanted, &given, now).is_some()
    };
    let lacks_at_apply = of_apply.iter().any(lacks);
    let missing: Vec<(Remark, MissingApproval)> = wanted
        .filter_map(|wanted| {
            let missing = missing_policy_approvals(job.set, &run, wanted, &given, now)?;
            let (message, wants) = (&wanted.remark.message, wanted.wants());
            let message = format!("{message}: needs {wants}, has {}", missing.given);
            let remark = wanted.remark.clone();
            Some((Remark { message, ..remark }, missing))
        })
        .collect();
    if !verdict.denies() && missing.is_empty() {
        return Ok(None);
    }
    let is_waited_for = of_yes.approvals.iter().any(lacks) && !lacks_at_apply;
    if is_waited_for && !verdict.denies() && request.policy_override.is_none() {
        return Ok(Some(RunEvent::ApplyPutOff { said: of_yes }));
    }
    let Some(reason) = &request.policy_override else {
        return Err(not_allowed(job, at_plan, verdict, &missing));
    };
    let denials = verdict.denials.iter();
    let past = denials.chain(missing.iter().map(|(remark, _)| remark));
    let past: Vec<String> = past.map(ToString::to_string).collect();
    let state = job.control.state_name(&job.spec.stack.state);
    let record = NewBreakGlass {
        act: BreakGlassAction::PolicyOverridden,
        state: &state,
        actor: &request.actor(),
        reason: Some(reason),
        detail: format!("run {}: {}", job.run, past.join("; ")),
    };
    let opened = job.control.store.break_glass_open(&record).await;
    opened
        .map(|_| None)
        .map_err(|err| Failure::because("could not record that policy is overridden", &err))
}

/// The refusal of an apply that policies deny, or that lacks approvals they require.
fn not_allowed(
    job: &StageJob<'_>,
    at_plan: &Verdict,
    mut verdict: Verdict,
    missing: &[(Remark, MissingApproval)],
) -> Failure {
    let agreed = !at_plan.asked.is_empty() && !at_plan.denies();
    let how = match (verdict.denies(), agreed) {
        (true, true) => "denied by policy, which passed when it was planned",
        (true, false) => "denied by policy",
        (false, _) => "not approved as the policy requires",
    };
    let hint = way_to_approve(job, missing.iter().map(|(_, missing)| missing));
    let hint = hint.filter(|_| !verdict.denies());
    let remarks = missing.iter().map(|(remark, _)| remark.clone());
    verdict.denials.extend(remarks);
    hint.into_iter().fold(denied(how, verdict), Failure::hint)
}

/// Whether policies have not evaluated the confirmation yet. It was given in advance, and either others had
/// to approve first or the plan came in a bundle. Also true if policies are overridden, so that their verdict
/// is recorded.
fn is_yes_to_be_asked_about(job: &StageJob<'_>, plan: &PlanRecord) -> bool {
    let request = &job.set.request;
    let is_beforehand = job.auto_approve || job.spec.applies_by_itself();
    let others_speak = !request.approvals.is_empty() || plan.wanted().next().is_some();
    let is_left = is_beforehand && (others_speak || job.is_bundled());
    job.spec.is_asked_at(PolicyPhase::Approval) && (is_left || request.policy_override.is_some())
}

/// The hint how to give approvals that are missing because no user knew of the requirement.
fn way_to_approve<'o>(
    job: &StageJob<'_>,
    missing: impl Iterator<Item = &'o MissingApproval>,
) -> Option<String> {
    let set = job.set.id;
    let commands: BTreeSet<String> = missing
        .map(|one| format!("`{}`", one.command(set)))
        .collect();
    let commands: Vec<String> = commands.into_iter().collect();
    if commands.is_empty() {
        return None;
    }
    // Only an apply that makes its own plan can be resumed.
    let is_resumed = job.set.request.action == Action::Apply && !job.is_bundled();
    Some(if is_resumed {
        let commands = commands.join(", ");
        format!("{commands} approves it, then `terrane apply --resume {set}` continues")
    } else {
        "the same command without `--auto-approve` waits: `terrane run approve` approves it, then `terrane run confirm` starts it"
            .to_owned()
    })
}

/// The run, and the approvals of its change set.
async fn standing(job: &StageJob<'_>) -> Result<(Run, Vec<Given>), Failure> {
    let store = &job.control.store;
    let read = async {
        let run = store.run_get(job.run).await?;
        Ok::<_, store::ChangeSetError>((run, store.approval_list(job.set.id).await?))
    };
    let (run, given) = read
        .await
        .map_err(|err| Failure::because("could not read the approvals", &err))?;
    let run = run.ok_or_else(|| Failure::new("the run no longer exists"))?;
    Ok((run, given))
}

async fn ask(
    job: &StageJob<'_>,
    case: &Case,
    point: PolicyPhase,
    approvals: Vec<ApprovalFacts>,
    actor: ActorFacts,
) -> Result<Verdict, Failure> {
    let asking = PolicyContext {
        set: job.set,
        run: job.run,
        spec: job.spec,
        point,
        is_preview: false,
        approvals,
        actor,
        now: job.control.now(),
    };
    let asked = async {
        let verdict = policy::ask(job.control, case, asking).await;
        verdict.map_err(|err| failure(&err))
    };
    job.unless_stopped(None, asked).await
}

/// The policies of this run, as they are in its source.
fn policies(job: &StageJob<'_>, workspace: &Workspace) -> Result<Vec<CasePolicy>, Failure> {
    let mut policies = Vec::new();
    for applied in &job.spec.policies {
        let mut sources = Vec::new();
        for file in &applied.files {
            let path = &file.path;
            let text = match &file.text {
                Some(text) => text.clone(),
                None => workspace.read(path).map_err(|err| {
                    Failure::because(&format!("could not read policy file `{path}`"), &err)
                })?,
            };
            // Another engine in the same tree may have changed the file.
            if sha256(text.as_bytes()) != file.digest {
                let said = format!("policy file `{path}` has changed since the change set began");
                return Err(Failure::new(said)
                    .hint("run the same command again to use the current file")
                    .refused());
            }
            let path = path.clone();
            sources.push(PolicySource { path, text });
        }
        policies.push(CasePolicy {
            name: applied.name.clone(),
            at: applied.at.clone(),
            enforce: applied.enforce,
            sources,
        });
    }
    Ok(policies)
}

fn failure(err: &PolicyError) -> Failure {
    Failure::explained("not checked", err)
}

/// Reports the first denial and the number of others. The verdict contains all of them, so that each is shown
/// once.
fn denied(how: &str, verdict: Verdict) -> Failure {
    let first = verdict.denials.first().map(ToString::to_string);
    let more = match verdict.denials.len().saturating_sub(1) + verdict.left_off {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let mut failure = Failure::new(format!("{how}: {}{more}", first.unwrap_or_default())).refused();
    failure.policy = Box::new(verdict);
    failure
}
