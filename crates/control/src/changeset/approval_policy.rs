//! Evaluates policies on an approval or a confirmation before it counts.
//!
//! Not here: evaluation at plan and apply (`runner`), the policies themselves (`policy`).

use model::base::actor::Actor;
use model::base::ids::StackName;
use model::policy::{ActorFacts, ApprovalFacts, PolicyPhase, Remark, Verdict};
use model::run::approval::{MissingApproval, missing_policy_approvals};
use model::run::{Run, RunState};

use crate::Control;
use crate::changeset::explain::{ChangeSetDetails, NewApproval};
use crate::policy::{PolicyContext, PolicyError, approvals, ask, note, recall};

/// The verdicts of policies on an approval or a confirmation, for each affected plan.
#[derive(Debug, Default)]
pub struct PolicyVerdicts {
    pub said: Vec<(StackName, Verdict)>,
    /// Missing approvals that policies require now.
    pub missing: Vec<MissingApproval>,
}

impl PolicyVerdicts {
    pub fn denials(&self) -> impl Iterator<Item = &Remark> {
        self.said.iter().flat_map(|(_, said)| &said.denials)
    }
}

/// Evaluates policies for an approval that is about to be given. Their verdicts are recorded, unless they
/// deny the approval.
pub async fn evaluate_approval(
    control: &Control,
    before: &ChangeSetDetails,
    new: &NewApproval,
) -> Result<PolicyVerdicts, PolicyError> {
    if before.set.request.policy_override.is_some() {
        return Ok(PolicyVerdicts::default()); // verdicts are recorded at apply
    }
    let mut given = approvals(&before.approvals);
    given.push(ApprovalFacts {
        person: new.person.name.clone(),
        role: new.role.clone(),
        verified: false,
        verdict: "approve".to_owned(),
        comment: new.comment.clone(),
        at: control.now(),
    });
    let is_meant = |run: &Run| new.run.is_none_or(|meant| meant == run.id);
    let heard = hear(control, before, is_meant, &given, &new.person).await?;
    if heard.denials().next().is_none() {
        note_all(control, before, &heard, &new.person).await?;
    }
    Ok(heard)
}

/// Evaluates policies for a confirmation of the plans, before anything is applied.
pub async fn evaluate_confirmation(
    control: &Control,
    before: &ChangeSetDetails,
    person: &Actor,
) -> Result<PolicyVerdicts, PolicyError> {
    if before.set.request.policy_override.is_some() {
        return Ok(PolicyVerdicts::default()); // verdicts are recorded at apply
    }
    let given = approvals(&before.approvals);
    let heard = hear(control, before, |_| true, &given, person).await?;
    note_all(control, before, &heard, person).await?;
    Ok(heard)
}

async fn hear(
    control: &Control,
    before: &ChangeSetDetails,
    is_meant: impl Fn(&Run) -> bool,
    given: &[ApprovalFacts],
    person: &Actor,
) -> Result<PolicyVerdicts, PolicyError> {
    let (mut heard, now) = (PolicyVerdicts::default(), control.now());
    for run in before.runs.iter().filter(|run| is_meant(run)) {
        let RunState::Planned { .. } = run.state else {
            continue;
        };
        let spec = control.store.run_spec(run.id).await?;
        if spec.policies.is_empty() {
            continue;
        }
        let case = recall(control, run.id, &spec).await?;
        let asking = PolicyContext {
            set: &before.set,
            run: run.id,
            spec: &spec,
            point: PolicyPhase::Approval,
            is_preview: false,
            approvals: given.to_vec(),
            actor: ActorFacts::person(&person.name),
            now,
        };
        let said = ask(control, &case, asking).await?;
        let missing =
            |wanted| missing_policy_approvals(&before.set, run, wanted, &before.approvals, now);
        heard
            .missing
            .extend(said.approvals.iter().filter_map(missing));
        heard.said.push((run.stack.clone(), said));
    }
    Ok(heard)
}

async fn note_all(
    control: &Control,
    before: &ChangeSetDetails,
    heard: &PolicyVerdicts,
    person: &Actor,
) -> Result<(), PolicyError> {
    for (stack, said) in &heard.said {
        let run = before.runs.iter().find(|run| run.stack == *stack);
        if let Some(run) = run
            && let RunState::Planned { plan, .. } = &run.state
        {
            note(
                control,
                run.id,
                plan,
                PolicyPhase::Approval,
                Some(person),
                said,
            )
            .await?;
        }
    }
    Ok(())
}

/// Whether a policy may read approvals. If so, an approval may be given before any is required.
pub async fn hears_approvals(
    control: &Control,
    before: &ChangeSetDetails,
) -> Result<bool, PolicyError> {
    for run in &before.runs {
        if !run.state.is_finished() && control.store.run_spec(run.id).await?.hears_approvals() {
            return Ok(true);
        }
    }
    Ok(false)
}
