//! Policies at work: read with the project, kept with each plan, asked at plan, approval and apply.
//!
//! They are asked in a process of this program that does nothing else (`terrane policy judge`), with a limit on
//! its time and memory: a policy that wants too much ends alone.
//!
//! Not here: Rego (`drivers::rego`), what answers come to (`model::policy`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drivers::process::{self, Capture, CaptureError, Captured, Environment, Exit};
use drivers::rego::{self, AskError, Rego, RegoError};
use drivers::snapshot::sha256;
use jiff::Timestamp;
use model::changeset::{ChangeSet, Request};
use model::identity::IdentityKind;
use model::ids::{RunId, StackName};
use model::plan::PlanCounts;
use model::policy::{
    Actor, Answer, AppliedFile, AppliedPolicy, Approval, Document, Point, PolicySource, Remark,
    RunFacts, SourceFacts, StackFacts, UpstreamFacts, Verdict,
};
use model::project::Project;
use model::run::{Outcome, Run, RunSpec, RunState};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::Scope;

use crate::Control;
use crate::runner::write_private;
use crate::runs::{Explained, NewApproval};

pub use findings::{check, check_deeply};

mod findings;

/// For one policy, at one point.
const TIME: Duration = Duration::from_secs(5);
/// For the process that asks them.
const MEMORY: u64 = 1 << 30;
/// Of a plan with all that is said about it.
const MAX_INPUT: usize = 64 << 20;

/// What a run's policies were asked about, and the policies themselves as they were then. Kept with the run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Case {
    /// Plan JSON without sensitive values.
    pub plan: Value,
    pub policies: Vec<CasePolicy>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CasePolicy {
    pub name: String,
    pub at: std::collections::BTreeSet<Point>,
    pub enforce: bool,
    pub sources: Vec<PolicySource>,
}

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("policy `{policy}` could not be asked: {why}")]
    Trouble { policy: String, why: String },
    #[error("policies could not be asked")]
    Start(#[source] CaptureError),
    #[error("policies could not be asked: what they said was not understood")]
    Heard(#[source] serde_json::Error),
    #[error("policies could not be asked: the plan is larger than {} MiB", MAX_INPUT >> 20)]
    TooLarge,
    #[error("nothing is kept of the plan of run `{run}`")]
    Missing { run: RunId },
    #[error("could not read what is kept of the plan of run `{run}`")]
    Recall {
        run: RunId,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("could not keep what policies are asked about")]
    Keep(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("could not read the runs of the change set")]
    Runs(#[from] store::ChangeSetError),
}

impl PolicyError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Trouble { .. } => Some(
                "nothing goes on past a policy that cannot be asked: mend it, or set `enforce = false`"
                    .to_owned(),
            ),
            Self::Missing { .. } => Some("`terrane plan` makes a fresh plan".to_owned()),
            Self::TooLarge => Some("split the stack: a plan of this size is read by nobody".to_owned()),
            Self::Start(_) | Self::Heard(_) | Self::Recall { .. } | Self::Keep(_) | Self::Runs(_) => None,
        }
    }
}

/// The policies of a stack, by the digests of their files.
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
                })
                .collect(),
        })
        .collect()
}

/// The policies of a stack as the project has them now.
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

/// Asks the policies of a run again, now that somebody approves or confirms it. `approvals` are all that were
/// given, the new one included; `actor` is who gives it.
pub async fn at_approval(
    control: &Control,
    set: &ChangeSet,
    run: &Run,
    approvals: &[Approval],
    actor: Actor,
    now: Timestamp,
) -> Result<Verdict, PolicyError> {
    let spec = control.store.run_spec(run.id).await?;
    if spec.policies.is_empty() {
        return Ok(Verdict::default());
    }
    let case = recall(control, run.id, &spec).await?;
    let asking = Asking {
        set,
        run: run.id,
        spec: &spec,
        point: Point::Approval,
        approvals: approvals.to_vec(),
        actor,
        now,
    };
    ask(control, &case, asking).await
}

/// What policies deny about an approval, for each plan that it is about.
pub async fn denials_of_approval(
    control: &Control,
    before: &Explained,
    new: &NewApproval,
) -> Result<Vec<Remark>, PolicyError> {
    let now = control.now();
    let mut given = approvals(&before.approvals);
    given.push(Approval {
        person: new.person.clone(),
        role: new.role.clone(),
        verified: false,
        verdict: "approve".to_owned(),
        comment: new.comment.clone(),
        at: now,
    });
    let mut denials = Vec::new();
    for run in &before.runs {
        let is_meant = new.run.is_none_or(|meant| meant == run.id);
        if is_meant && matches!(run.state, RunState::Planned { .. }) {
            let actor = Actor {
                name: new.person.clone(),
                kind: "person".to_owned(),
                ..Actor::default()
            };
            let said = at_approval(control, &before.set, run, &given, actor, now).await?;
            denials.extend(said.denials);
        }
    }
    Ok(denials)
}

/// Who asked for a change.
pub fn author(request: &Request) -> Actor {
    match &request.identity {
        None => Actor {
            name: request.asker.clone().unwrap_or_default(),
            kind: "person".to_owned(),
            ..Actor::default()
        },
        Some(who) => Actor {
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

/// The approvals of a change set, as policies see them.
pub fn approvals(given: &[model::approval::Approval]) -> Vec<Approval> {
    let given = given.iter();
    given
        .map(|it| Approval {
            person: it.person.clone(),
            role: it.role.clone(),
            verified: it.verified,
            verdict: "approve".to_owned(),
            comment: it.comment.clone(),
            at: it.at,
        })
        .collect()
}

/// On what occasion policies are asked.
pub struct Asking<'a> {
    pub set: &'a ChangeSet,
    pub run: RunId,
    pub spec: &'a RunSpec,
    pub point: Point,
    pub approvals: Vec<Approval>,
    pub actor: Actor,
    pub now: Timestamp,
}

/// Asks those policies of a case that are to be asked at this point.
pub async fn ask(
    control: &Control,
    case: &Case,
    asking: Asking<'_>,
) -> Result<Verdict, PolicyError> {
    let point = asking.point;
    let policies = case.policies.iter();
    let policies: Vec<&CasePolicy> = policies.filter(|it| it.at.contains(&point)).collect();
    if policies.is_empty() {
        return Ok(Verdict::default());
    }
    let question = Question {
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
            Judged::Said { answers, left_off } => {
                verdict.add(&policy.name, policy.enforce, answers, left_off);
            }
            Judged::Broken(_) | Judged::Trouble(_) if policy.enforce => {
                let policy = policy.name.clone();
                let why = judged.trouble();
                return Err(PolicyError::Trouble { policy, why });
            }
            Judged::Broken(_) | Judged::Trouble(_) => {
                let why = judged.trouble();
                verdict.add(&policy.name, false, Vec::new(), 0);
                verdict.warnings.push(Remark {
                    policy: policy.name.clone(),
                    rule: "error".to_owned(),
                    message: format!("could not be asked: {why}"),
                    resource: None,
                });
            }
        }
    }
    Ok(verdict)
}

/// What policies of `package terrane` are asked about.
pub async fn document(
    control: &Control,
    case: &Case,
    asking: Asking<'_>,
) -> Result<Document, PolicyError> {
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
    Ok(Document {
        plan: case.plan.clone(),
        run: RunFacts {
            id: asking.run.to_string(),
            change_set: asking.set.id.to_string(),
            action: request.action.word().to_owned(),
            phase: asking.point,
            destroy: spec.destroy,
            auto_approve: request.auto_approve,
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

/// How much a run does, as far as that is known.
fn counts(state: &RunState) -> PlanCounts {
    match state {
        RunState::Planned { plan, .. } | RunState::Applying { plan, .. } => plan.counts,
        RunState::Finished { outcome, .. } => match outcome {
            Outcome::Planned { plan } => plan.counts,
            Outcome::Applied { counts, .. } => *counts,
            Outcome::Deferred { .. }
            | Outcome::Unchanged
            | Outcome::Untouched
            | Outcome::Failed { .. }
            | Outcome::Skipped { .. }
            | Outcome::Unknown { .. } => PlanCounts::default(),
        },
        RunState::Queued | RunState::Planning { .. } | RunState::Deferred { .. } => {
            PlanCounts::default()
        }
    }
}

/// What the process that asks is given.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    /// By name.
    policies: Vec<(String, Vec<PolicySource>)>,
    document: Document,
}

/// What it says of each policy, a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Judged {
    Said {
        answers: Vec<Answer>,
        left_off: usize,
    },
    /// It cannot be read or evaluated.
    Broken(RegoError),
    Trouble(String),
}

impl Judged {
    fn trouble(&self) -> String {
        match self {
            Self::Said { .. } => String::new(),
            Self::Broken(err) => err.to_string(),
            Self::Trouble(why) => why.clone(),
        }
    }
}

/// The part of the process that asks: reads the question from its input, answers line by line.
pub fn answer(input: impl io::Read, mut output: impl io::Write) -> io::Result<()> {
    rego::limit_memory(MEMORY);
    let question: Question = serde_json::from_reader(io::BufReader::new(input))?;
    for (_, sources) in &question.policies {
        let judged = judged(sources, &question.document);
        writeln!(output, "{}", serde_json::to_string(&judged)?)?;
        output.flush()?;
    }
    Ok(())
}

fn judged(sources: &[PolicySource], document: &Document) -> Judged {
    let mut rego = match Rego::compile(sources) {
        Ok(rego) => rego,
        Err(err) => return Judged::Broken(err),
    };
    match rego.ask(document, TIME) {
        Ok((answers, left_off)) => Judged::Said { answers, left_off },
        Err(AskError::Evaluate(err)) => Judged::Broken(err),
        Err(err) => Judged::Trouble(err.to_string()),
    }
}

/// One answer for each policy; where the process ended early, that is one.
async fn judge(
    program: &Path,
    dir: &Path,
    question: &Question,
) -> Result<Vec<Judged>, PolicyError> {
    let input = serde_json::to_vec(question).map_err(PolicyError::Heard)?;
    if input.len() > MAX_INPUT {
        return Err(PolicyError::TooLarge);
    }
    let mut env = Environment::default();
    env.set("MALLOC_ARENA_MAX", "1");
    let args = ["policy".into(), "judge".into()];
    let count = u32::try_from(question.policies.len()).unwrap_or(u32::MAX);
    // Beyond its own limits it is stuck in one step; a slow machine is given some time to start it.
    let timeout = TIME.saturating_mul(count) + Duration::from_secs(30);
    let call = Capture {
        stdin: &input,
        timeout,
        ..Capture::new(program, &args, dir, &env)
    };
    let heard = match process::capture(call).await {
        Ok(heard) => heard,
        Err(CaptureError::TimedOut { .. }) => {
            let names: Vec<&str> = question.policies.iter().map(|it| it.0.as_str()).collect();
            return Err(PolicyError::Trouble {
                policy: names.join("`, `"),
                why: "a step of it does not come to an end".to_owned(),
            });
        }
        Err(err) => return Err(PolicyError::Start(err)),
    };
    let lines = heard.stdout.split(|byte| *byte == b'\n');
    let mut all: Vec<Judged> = lines
        .filter(|line| !line.is_empty())
        .map(serde_json::from_slice)
        .collect::<Result<_, _>>()
        .map_err(PolicyError::Heard)?;
    if all.len() < question.policies.len() {
        all.push(Judged::Trouble(ended_early(&heard)));
        let missing = question.policies.len() - all.len();
        all.extend((0..missing).map(|_| Judged::Trouble("another ended before it".to_owned())));
    }
    Ok(all)
}

fn ended_early(heard: &Captured) -> String {
    let out_of_memory = heard.stderr_text().contains("memory allocation");
    match heard.exit {
        Exit::Signal(_) if out_of_memory => {
            format!("it needs more than {} MiB of memory", MEMORY >> 20)
        }
        exit => format!("its process ended with {exit}"),
    }
}

/// Asks all policies of a project about a plan without changes, to find what only evaluation finds.
async fn try_out(
    project: &Project,
    program: &Path,
    dir: &Path,
) -> Result<Vec<Judged>, PolicyError> {
    let policies = project.policies.values();
    let question = Question {
        policies: policies
            .map(|policy| (policy.name.clone(), policy.sources.clone()))
            .collect(),
        document: Document {
            plan: serde_json::json!({ "format_version": "1.2", "resource_changes": [] }),
            run: RunFacts {
                id: "r1".to_owned(),
                change_set: "c1".to_owned(),
                action: "plan".to_owned(),
                phase: Point::Plan,
                destroy: false,
                auto_approve: false,
            },
            actor: Actor::default(),
            approvals: Vec::new(),
            stack: StackFacts {
                name: "stack".to_owned(),
                path: "stack".to_owned(),
                layer: "layer".to_owned(),
                target: "target".to_owned(),
                labels: std::collections::BTreeSet::new(),
                state: "stack".to_owned(),
                protected: false,
            },
            upstreams: Vec::new(),
            source: SourceFacts {
                commit: None,
                subject: None,
                dirty: false,
                digest: String::new(),
            },
            time: Timestamp::UNIX_EPOCH.into(),
        },
    };
    judge(program, dir, &question).await
}

fn case_path(control: &Control, run: RunId) -> PathBuf {
    control.home.run_dir(run).join("policy.case")
}

fn purpose(run: RunId) -> String {
    format!("policy-case {run}")
}

/// Keeps a case with its run: small and sealed.
pub(crate) async fn keep(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    case: &Case,
) -> Result<(), PolicyError> {
    let bytes = serde_json::to_vec(case).map_err(|err| PolicyError::Keep(err.into()))?;
    let small =
        zstd::encode_all(bytes.as_slice(), 1).map_err(|err| PolicyError::Keep(err.into()))?;
    let scope = Scope::State(control.state_name(&spec.stack.state));
    let sealed = control.store.seal(scope, &purpose(run), small).await;
    let sealed = sealed.map_err(|err| PolicyError::Keep(err.into()))?;
    write_private(&case_path(control, run), &sealed).map_err(|err| PolicyError::Keep(err.into()))
}

/// What was kept of a run's plan.
pub async fn recall(control: &Control, run: RunId, spec: &RunSpec) -> Result<Case, PolicyError> {
    let failed = |source| PolicyError::Recall { run, source };
    let sealed = match fs::read(case_path(control, run)) {
        Ok(sealed) => sealed,
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            return Err(PolicyError::Missing { run });
        }
        Err(err) => return Err(failed(err.into())),
    };
    let scope = Scope::State(control.state_name(&spec.stack.state));
    let small = control.store.unseal(scope, &purpose(run), sealed).await;
    let small = small.map_err(|err| failed(err.into()))?;
    let bytes = zstd::decode_all(small.as_slice()).map_err(|err| failed(err.into()))?;
    serde_json::from_slice(&bytes).map_err(|err| failed(err.into()))
}

/// The newest run of a stack of which a plan is kept.
pub async fn last_planned(
    control: &Control,
    stack: &StackName,
) -> Result<Option<RunId>, PolicyError> {
    for run in control.store.run_list_of_stack(stack).await? {
        let (set, _) = control.store.run_brief(run).await?;
        if set.request.project == control.home.project() && case_path(control, run).is_file() {
            return Ok(Some(run));
        }
    }
    Ok(None)
}
