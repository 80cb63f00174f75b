//! Policies in use: read with the project, stored with each plan, evaluated at plan, approval and apply.
//!
//! A separate process of this program (`terrane policy judge`) evaluates them, with a limit on time and
//! memory. A policy that exceeds a limit only ends that process.
//!
//! Not here: Rego (`drivers::rego`), how answers are combined (`model::policy`).

use drivers::process::CaptureError;
use drivers::snapshot::sha256;
use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::error::{Explain, NextStep, advice, command};
use model::base::ids::{RunId, StackName};
use model::plan::PlanCounts;
use model::policy::{
    ActorFacts, AppliedFile, AppliedPolicy, ApprovalFacts, PolicyInput, PolicyPhase, Remark,
    RunFacts, SourceFacts, StackFacts, UpstreamFacts, Verdict,
};
use model::project::Project;
use model::project::identity::IdentityKind;
use model::run::changeset::{ChangeSet, Request};
use model::run::{Outcome, PlanRecord, RunEvent, RunSpec, RunState};
use serde_json::Value;

use crate::Control;

pub use case::{Case, CasePolicy, last_planned, recall};
pub(crate) use case::{keep, place};
pub use evaluator_process::answer;
use evaluator_process::{MAX_INPUT, PolicyRequest, PolicyResult, judge};
pub use findings::{check, check_deeply};

mod case;
mod evaluator_process;
mod findings;
pub(crate) mod missing_policies;

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("cannot evaluate policy `{policy}`: {why}")]
    Trouble { policy: String, why: String },
    #[error("cannot evaluate the policies")]
    Start(#[source] CaptureError),
    #[error("cannot evaluate the policies: cannot parse their results")]
    Heard(#[source] serde_json::Error),
    #[error("cannot evaluate the policies: the plan is larger than {} MiB", MAX_INPUT >> 20)]
    TooLarge,
    #[error("there is no stored plan of run `{run}`")]
    Missing { run: RunId },
    #[error("cannot read the stored plan of run `{run}`")]
    Recall {
        run: RunId,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("cannot store the input of the policies")]
    Keep(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("could not read the runs of the change set")]
    Runs(#[from] store::ChangeSetError),
}

impl Explain for PolicyError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![match self {
            Self::Trouble { .. } => advice(
                "a policy that cannot be evaluated stops the run: fix it, or set `enforce = false`",
            ),
            Self::Missing { .. } => command("plan", "makes a new plan"),
            Self::TooLarge => advice("split the stack: this plan is too large to review"),
            _ => return Vec::new(),
        }]
    }
}

/// The policies of a stack, with the digests of their files.
pub(crate) fn applied(project: &Project, stack: &StackName) -> Vec<AppliedPolicy> {
    let policies = project.policies.values();
    let policies = policies.filter(|policy| policy.stacks.contains(stack));
    policies
        .map(|policy| AppliedPolicy {
            name: policy.name.clone(),
            at: policy.at.clone(),
            enforce: policy.enforce,
            files: policy
                .sources
                .iter()
                .map(|source| AppliedFile {
                    path: source.path.clone(),
                    digest: sha256(source.text.as_bytes()),
                    text: (!policy.is_of_source).then(|| source.text.clone()),
                })
                .collect(),
        })
        .collect()
}

/// The policies of a stack in the current project.
pub fn current(project: &Project, stack: &StackName) -> Vec<CasePolicy> {
    let policies = project.policies.values();
    let policies = policies.filter(|policy| policy.stacks.contains(stack));
    policies
        .map(|policy| CasePolicy {
            name: policy.name.clone(),
            at: policy.at.clone(),
            enforce: policy.enforce,
            sources: policy.sources.clone(),
        })
        .collect()
}

/// Records the verdict of a repeated policy evaluation of a run's plan, if it contains something new.
pub(crate) async fn note(
    control: &Control,
    run: RunId,
    plan: &PlanRecord,
    at: PolicyPhase,
    by: Option<&Actor>,
    said: &Verdict,
) -> Result<(), store::ChangeSetError> {
    if !plan.is_news(at, said) {
        return Ok(());
    }
    let event = RunEvent::PolicyAsked {
        at,
        by: by.cloned(),
        said: said.clone(),
    };
    match control.store.run_record(run, event, control.now()).await {
        // The run no longer has this plan.
        Err(store::ChangeSetError::Run(_)) => Ok(()),
        noted => noted.map(drop),
    }
}

/// The actor who requested a change.
pub fn author(request: &Request) -> ActorFacts {
    match &request.identity {
        None => ActorFacts::person(&request.actor().name),
        Some(who) => ActorFacts {
            name: who.name.clone(),
            kind: match who.kind {
                IdentityKind::Person => "person".to_owned(),
                IdentityKind::Ci => "ci".to_owned(),
            },
            verified: who.verified,
            claims: who
                .claims
                .iter()
                .map(|(name, value)| (name.clone(), Value::String(value.clone())))
                .collect(),
        },
    }
}

/// The approvals of a change set in the form that policies receive.
pub fn approvals(given: &[model::run::approval::Approval]) -> Vec<ApprovalFacts> {
    let given = given.iter();
    given
        .map(|it| ApprovalFacts {
            person: it.person.name.clone(),
            role: it.role.clone(),
            verified: it.verified,
            verdict: "approve".to_owned(),
            comment: it.comment.clone(),
            at: it.at,
        })
        .collect()
}

/// The context of a policy evaluation.
pub struct PolicyContext<'a> {
    pub set: &'a ChangeSet,
    pub run: RunId,
    pub spec: &'a RunSpec,
    pub point: PolicyPhase,
    /// Whether the plan is made again before it is applied.
    pub is_preview: bool,
    pub approvals: Vec<ApprovalFacts>,
    pub actor: ActorFacts,
    pub now: Timestamp,
}

/// Evaluates the policies of a case that apply at this point.
pub async fn ask(
    control: &Control,
    case: &Case,
    asking: PolicyContext<'_>,
) -> Result<Verdict, PolicyError> {
    let point = asking.point;
    let policies = case.policies.iter();
    let policies: Vec<&CasePolicy> = policies.filter(|it| it.at.contains(&point)).collect();
    if policies.is_empty() {
        return Ok(Verdict::default());
    }
    let question = PolicyRequest {
        policies: policies
            .iter()
            .map(|policy| (policy.name.clone(), policy.sources.clone()))
            .collect(),
        document: document(control, case, asking).await?,
    };
    let heard = judge(&control.program, control.home.work(), &question).await?;
    let mut verdict = Verdict::default();
    for (policy, judged) in policies.into_iter().zip(heard) {
        match judged {
            PolicyResult::Said { answers, left_off } => {
                verdict.add(&policy.name, policy.enforce, answers, left_off);
            }
            PolicyResult::Broken(_) | PolicyResult::Trouble(_) if policy.enforce => {
                let policy = policy.name.clone();
                let why = judged.trouble();
                return Err(PolicyError::Trouble { policy, why });
            }
            PolicyResult::Broken(_) | PolicyResult::Trouble(_) => {
                let why = judged.trouble();
                verdict.add(&policy.name, false, Vec::new(), 0);
                verdict.warnings.push(Remark {
                    policy: policy.name.clone(),
                    rule: "error".to_owned(),
                    message: format!("could not be evaluated: {why}"),
                    resource: None,
                });
            }
        }
    }
    Ok(verdict)
}

/// The input document for policies of `package terrane`.
pub async fn document(
    control: &Control,
    case: &Case,
    asking: PolicyContext<'_>,
) -> Result<PolicyInput, PolicyError> {
    let (request, spec) = (&asking.set.request, asking.spec);
    let runs = control.store.run_list(asking.set.id).await?;
    let upstreams = spec.upstreams.iter().filter_map(|upstream| {
        let run = runs.iter().find(|run| run.stack == upstream.stack)?;
        Some(UpstreamFacts {
            stack: upstream.stack.to_string(),
            status: run.state.word().to_owned(),
            outputs: upstream.outputs.clone(),
            counts: counts(&run.state),
        })
    });
    let stack = &spec.stack;
    Ok(PolicyInput {
        plan: case.plan.clone(),
        run: RunFacts {
            id: asking.run.to_string(),
            change_set: asking.set.id.to_string(),
            action: request.action.word().to_owned(),
            phase: asking.point,
            destroy: spec.destroy,
            auto_approve: request.auto_approve,
            preview: asking.is_preview,
        },
        actor: asking.actor,
        approvals: asking.approvals,
        stack: StackFacts {
            name: stack.name.to_string(),
            path: stack.path.clone(),
            layer: stack.layer.clone(),
            target: stack.target.clone(),
            labels: stack.labels.clone(),
            state: stack.state.clone(),
            protected: stack.protected,
        },
        upstreams: upstreams.collect(),
        source: SourceFacts {
            commit: request.commit.clone(),
            subject: request.subject.clone(),
            dirty: request.dirty,
            digest: request.source.clone(),
        },
        time: asking.now.into(),
    })
}

/// The plan counts of a run, as far as they are known.
fn counts(state: &RunState) -> PlanCounts {
    match state {
        RunState::Planned { plan, .. } | RunState::Applying { plan, .. } => plan.counts,
        RunState::Finished { outcome, .. } => ended_counts(outcome),
        RunState::Applied { outcome, .. } | RunState::Completing { outcome, .. } => {
            ended_counts(outcome)
        }
        RunState::Queued | RunState::Planning { .. } | RunState::Deferred { .. } => {
            PlanCounts::default()
        }
    }
}

fn ended_counts(outcome: &Outcome) -> PlanCounts {
    match outcome {
        Outcome::Planned { plan } => plan.counts,
        Outcome::Applied { counts, .. } => *counts,
        Outcome::NotDone { done, .. } => ended_counts(done),
        Outcome::Deferred { .. }
        | Outcome::Unchanged
        | Outcome::Untouched
        | Outcome::Failed { .. }
        | Outcome::Skipped { .. }
        | Outcome::Unknown { .. } => PlanCounts::default(),
    }
}
