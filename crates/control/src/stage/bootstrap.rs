//! Carries out `bootstrap` blocks: each step with its own time limit and evidence.
//!
//! A second run changes nothing: objects are compared before they are applied. Objects that others manage are
//! reported and left alone, unless a person takes them back. Dropping the future stops between two requests;
//! the next run continues from what it finds.
//!
//! Not here: which steps there are (`model::stage::bootstrap`), applying objects (`cluster`).

mod command;
mod manifests;
mod waiting;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drivers::kubernetes::{KubernetesClient, KubernetesError};
use model::base::duration::seconds;
use model::base::error::{Explain, one_line};
use model::base::masking::Mask;
use model::stage::bootstrap::{
    Agent, Bootstrap, BootstrapAction, BootstrapReport, BootstrapStep, CommandStep, ObjectOutcome,
    ObjectReport, StepEnd, StepReport,
};
use serde_json::{Value, json};

use crate::stage::cluster::ClusterContext;
use crate::stage::cluster::apply::{self, ApplyAll};
use manifests::ManifestsError;

/// What happens to objects that others manage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// They are left alone.
    #[default]
    Yield,
    /// They are taken back: a person gave a reason.
    Reinstall,
}

/// Progress, reported as it happens.
#[derive(Debug)]
pub enum BootstrapProgress<'a> {
    Began(BootstrapStep),
    /// What the step waits for, each time that changes.
    Seen(BootstrapStep, &'a str),
    Ended(&'a StepReport),
}

/// Carries out a `bootstrap` block. The report ends with the step that failed, if one did.
pub async fn run(
    bootstrap: &Bootstrap,
    cluster: ClusterContext<'_>,
    manner: ConflictPolicy,
    said: &mut (dyn FnMut(BootstrapProgress<'_>) + Send),
) -> BootstrapReport {
    let mut report = BootstrapReport {
        kind: bootstrap.kind().to_owned(),
        steps: Vec::new(),
    };
    let mut work = BootstrapRun {
        bootstrap,
        cluster,
        manner,
        mask: Mask::new(&[bootstrap.hidden(), cluster.hidden.to_vec()].concat()),
        client: None,
        workloads: Vec::new(),
        roots: Vec::new(),
    };
    for step in bootstrap.steps() {
        said(BootstrapProgress::Began(step));
        let began = Instant::now();
        let ended = work
            .step(step, &mut |seen| said(BootstrapProgress::Seen(step, seen)))
            .await;
        let took = began.elapsed();
        let step = work.report(step, ended, took);
        said(BootstrapProgress::Ended(&step));
        let failed = step.end != StepEnd::Done;
        report.steps.push(step);
        if failed {
            break;
        }
    }
    report
}

/// What a step did.
#[derive(Debug, Default)]
struct StepResult {
    objects: Vec<ObjectReport>,
    notes: Vec<String>,
}

/// Why a step failed, and what it had done until then.
#[derive(Debug)]
struct StepFailure {
    why: String,
    hint: Option<String>,
    done: StepResult,
}

impl StepFailure {
    fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            hint: None,
            done: StepResult::default(),
        }
    }
}

impl From<KubernetesError> for StepFailure {
    fn from(err: KubernetesError) -> Self {
        Self {
            hint: err.hint(),
            ..Self::new(one_line(&err))
        }
    }
}

impl From<ManifestsError> for StepFailure {
    fn from(err: ManifestsError) -> Self {
        Self {
            hint: err.hint(),
            ..Self::new(one_line(&err))
        }
    }
}

struct BootstrapRun<'a> {
    bootstrap: &'a Bootstrap,
    cluster: ClusterContext<'a>,
    manner: ConflictPolicy,
    mask: Mask,
    client: Option<KubernetesClient>,
    /// Objects of the installation and of the root manifests that a step waits for.
    workloads: Vec<Value>,
    roots: Vec<Value>,
}

impl<'a> BootstrapRun<'a> {
    async fn step(
        &mut self,
        step: BootstrapStep,
        seen: &mut (dyn FnMut(&str) + Send),
    ) -> Result<StepResult, StepFailure> {
        let limit = self.bootstrap.limit(step);
        match step {
            BootstrapStep::WaitForApi => self.wait_for_api(limit, seen).await,
            BootstrapStep::WaitForAgent => self.wait_for_agent(limit, seen).await,
            BootstrapStep::WaitForRoot => {
                let client = self.client()?;
                waiting::for_roots(&client, &self.roots, limit, seen).await
            }
            BootstrapStep::Namespaces => within(limit, self.namespaces()).await,
            BootstrapStep::Secrets => within(limit, self.secrets()).await,
            BootstrapStep::Install => within(limit, self.install()).await,
            BootstrapStep::Root => within(limit, self.root()).await,
            BootstrapStep::Command => self.command(limit).await,
        }
    }

    fn report(
        &self,
        step: BootstrapStep,
        ended: Result<StepResult, StepFailure>,
        took: Duration,
    ) -> StepReport {
        let (end, done) = match ended {
            Ok(done) => (StepEnd::Done, done),
            Err(failure) => (
                StepEnd::Failed {
                    why: self.mask.mask_text(&failure.why),
                    hint: failure.hint.map(|hint| self.mask.mask_text(&hint)),
                },
                failure.done,
            ),
        };
        let all = done.objects.len();
        let objects: Vec<ObjectReport> = done
            .objects
            .into_iter()
            .filter(|object| object.outcome != ObjectOutcome::Same)
            .collect();
        StepReport {
            title: match &self.bootstrap.action {
                BootstrapAction::Agent(agent) if step == BootstrapStep::Install => {
                    format!("install {} {}", agent.kind.title(), agent.version)
                }
                BootstrapAction::Agent(agent) if step == BootstrapStep::WaitForAgent => {
                    format!("wait for {}", agent.kind.title())
                }
                _ => step.title().to_owned(),
            },
            end,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            same: all - objects.len(),
            objects,
            notes: done
                .notes
                .iter()
                .map(|note| self.mask.mask_text(note))
                .collect(),
        }
    }

    fn client(&self) -> Result<KubernetesClient, StepFailure> {
        let client = self.client.clone();
        client.ok_or_else(|| StepFailure::new("there is no connection to a cluster"))
    }

    async fn wait_for_api(
        &mut self,
        limit: Duration,
        seen: &mut (dyn FnMut(&str) + Send),
    ) -> Result<StepResult, StepFailure> {
        let Some((config, _)) = &self.bootstrap.kubeconfig else {
            return Ok(StepResult::default());
        };
        let client =
            KubernetesClient::new(config.clone(), self.cluster.env, self.cluster.source).await?;
        let version = waiting::for_api(&client, limit, seen).await?;
        let note = format!("{version} at {}", client.server());
        self.client = Some(client);
        Ok(StepResult {
            notes: vec![note],
            ..StepResult::default()
        })
    }

    async fn namespaces(&self) -> Result<StepResult, StepFailure> {
        let manifest = |name: &&str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let objects: Vec<Value> = self.bootstrap.namespaces().iter().map(manifest).collect();
        self.apply(objects, false).await
    }

    async fn secrets(&self) -> Result<StepResult, StepFailure> {
        let secrets = self.bootstrap.secrets.iter();
        let objects = secrets.map(|secret| secret.manifest(|text| STANDARD.encode(text)));
        self.apply(objects.collect(), false).await
    }

    async fn install(&mut self) -> Result<StepResult, StepFailure> {
        let Some(agent) = self.agent() else {
            return Ok(StepResult::default());
        };
        let found = manifests::of_agent(agent, self.cluster).await?;
        let objects = self.placed(found.objects, &agent.namespace).await?;
        self.workloads = objects
            .iter()
            .filter(|object| waiting::is_workload(object))
            .cloned()
            .collect();
        let mut done = self.apply(objects, agent.adopt).await?;
        done.notes.push(found.note);
        Ok(done)
    }

    async fn root(&mut self) -> Result<StepResult, StepFailure> {
        let Some(agent) = self.agent() else {
            return Ok(StepResult::default());
        };
        let found = manifests::of_root(agent, self.cluster).await?;
        let objects = self.placed(found, &agent.namespace).await?;
        self.roots = objects
            .iter()
            .filter(|object| waiting::is_of_agent(object))
            .cloned()
            .collect();
        self.apply(objects, agent.adopt).await
    }

    async fn wait_for_agent(
        &mut self,
        limit: Duration,
        seen: &mut (dyn FnMut(&str) + Send),
    ) -> Result<StepResult, StepFailure> {
        let client = self.client()?;
        let namespace = self.agent().map_or("", |agent| agent.namespace.as_str());
        waiting::for_workloads(&client, &self.workloads, namespace, limit, seen).await
    }

    async fn command(&self, limit: Duration) -> Result<StepResult, StepFailure> {
        let BootstrapAction::Command(step) = &self.bootstrap.action else {
            return Ok(StepResult::default());
        };
        let step: &CommandStep = step;
        let kubeconfig = self.bootstrap.kubeconfig.as_ref().map(|(_, text)| text);
        command::run(step, kubeconfig, self.cluster, limit, &self.mask).await
    }

    fn agent(&self) -> Option<&'a Agent> {
        match &self.bootstrap.action {
            BootstrapAction::Agent(agent) => Some(agent),
            BootstrapAction::Command(_) => None,
        }
    }

    async fn apply(&self, objects: Vec<Value>, adopt: bool) -> Result<StepResult, StepFailure> {
        let call = ApplyAll {
            client: self.client()?,
            objects,
            adopt,
            force: self.manner == ConflictPolicy::Reinstall,
        };
        let objects = call.run().await?;
        Ok(StepResult {
            objects,
            notes: Vec::new(),
        })
    }

    /// Gives namespaced objects without a namespace that of the agent.
    async fn placed(
        &self,
        objects: Vec<Value>,
        namespace: &str,
    ) -> Result<Vec<Value>, StepFailure> {
        let client = self.client()?;
        let mut placed = Vec::new();
        for mut object in objects {
            apply::place(&client, &mut object, namespace).await?;
            placed.push(object);
        }
        // The cluster does not have kinds yet that the manifests themselves define.
        apply::place_by_definitions(&mut placed, namespace);
        Ok(placed)
    }
}

async fn within(
    limit: Duration,
    work: impl Future<Output = Result<StepResult, StepFailure>>,
) -> Result<StepResult, StepFailure> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(StepFailure::new(format!(
            "it did not finish within {}",
            seconds(limit)
        )))
    })
}
