//! The process that evaluates policies: both its own side and its caller's.

use std::io;
use std::path::Path;
use std::time::Duration;

use drivers::process::{self, Capture, CaptureError, Captured, Environment, Exit};
use drivers::rego::{self, EvaluatePolicyError, Rego, RegoError};
use jiff::Timestamp;
use model::policy::{
    ActorFacts, PolicyInput, PolicyPhase, PolicySource, RuleResult, RunFacts, SourceFacts,
    StackFacts,
};
use model::project::Project;
use serde::{Deserialize, Serialize};

use super::PolicyError;

/// Time limit for one policy at one point.
const TIME: Duration = Duration::from_secs(5);
/// Memory limit of the evaluating process.
const MEMORY: u64 = 1 << 30;
/// Maximum size of the whole input.
pub(super) const MAX_INPUT: usize = 64 << 20;

/// The input of the evaluating process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PolicyRequest {
    /// Policies with their names.
    pub(super) policies: Vec<(String, Vec<PolicySource>)>,
    pub(super) document: PolicyInput,
}

/// The result for one policy; the process prints one line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PolicyResult {
    Said {
        answers: Vec<RuleResult>,
        left_off: usize,
    },
    /// The policy cannot be compiled or evaluated.
    Broken(RegoError),
    Trouble(String),
}

impl PolicyResult {
    pub(super) fn trouble(&self) -> String {
        match self {
            Self::Said { .. } => String::new(),
            Self::Broken(err) => err.to_string(),
            Self::Trouble(why) => why.clone(),
        }
    }
}

/// Runs in the evaluating process: reads the question from `input` and writes one line per policy.
pub fn answer(input: impl io::Read, mut output: impl io::Write) -> io::Result<()> {
    rego::limit_memory(MEMORY);
    let question: PolicyRequest = serde_json::from_reader(io::BufReader::new(input))?;
    for (_, sources) in &question.policies {
        let judged = judged(sources, &question.document);
        writeln!(output, "{}", serde_json::to_string(&judged)?)?;
        output.flush()?;
    }
    Ok(())
}

fn judged(sources: &[PolicySource], document: &PolicyInput) -> PolicyResult {
    let mut rego = match Rego::compile(sources) {
        Ok(rego) => rego,
        Err(err) => return PolicyResult::Broken(err),
    };
    match rego.ask(document, TIME) {
        Ok((answers, left_off)) => PolicyResult::Said { answers, left_off },
        Err(EvaluatePolicyError::Evaluate(err)) => PolicyResult::Broken(err),
        Err(err) => PolicyResult::Trouble(err.to_string()),
    }
}

/// Returns one result per policy. If the process ended early, the next result reports that.
pub(super) async fn judge(
    program: &Path,
    dir: &Path,
    question: &PolicyRequest,
) -> Result<Vec<PolicyResult>, PolicyError> {
    let input = serde_json::to_vec(question).map_err(PolicyError::Heard)?;
    if input.len() > MAX_INPUT {
        return Err(PolicyError::TooLarge);
    }
    let mut env = Environment::default();
    env.set("MALLOC_ARENA_MAX", "1");
    let args = ["policy".into(), "judge".into()];
    let count = u32::try_from(question.policies.len()).unwrap_or(u32::MAX);
    // A process that exceeds this is stuck in a single step. The extra time lets a slow machine start it.
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
    let mut all: Vec<PolicyResult> = lines
        .filter(|line| !line.is_empty())
        .map(serde_json::from_slice)
        .collect::<Result<_, _>>()
        .map_err(PolicyError::Heard)?;
    if all.len() < question.policies.len() {
        all.push(PolicyResult::Trouble(ended_early(&heard)));
        let missing = question.policies.len() - all.len();
        all.extend(
            (0..missing).map(|_| PolicyResult::Trouble("another ended before it".to_owned())),
        );
    }
    Ok(all)
}

fn ended_early(heard: &Captured) -> String {
    let said = heard.stderr_text();
    let out_of_memory = said.contains("memory allocation");
    match heard.exit {
        Exit::Signal(_) if said.contains("overflowed its stack") => {
            "a rule or function of it calls itself without an end".to_owned()
        }
        Exit::Signal(_) if out_of_memory => {
            format!("it needs more than {} MiB of memory", MEMORY >> 20)
        }
        exit => format!("its process ended with {exit}"),
    }
}

/// Evaluates all policies of a project against a plan without changes, to find errors that only an evaluation
/// shows.
pub(super) async fn try_out(
    project: &Project,
    program: &Path,
    dir: &Path,
) -> Result<Vec<PolicyResult>, PolicyError> {
    let policies = project.policies.values();
    let question = PolicyRequest {
        policies: policies
            .map(|policy| (policy.name.clone(), policy.sources.clone()))
            .collect(),
        document: PolicyInput {
            plan: serde_json::json!({ "format_version": "1.2", "resource_changes": [] }),
            run: RunFacts {
                id: "r1".to_owned(),
                change_set: "c1".to_owned(),
                action: "plan".to_owned(),
                phase: PolicyPhase::Plan,
                destroy: false,
                auto_approve: false,
                preview: false,
            },
            actor: ActorFacts::default(),
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
