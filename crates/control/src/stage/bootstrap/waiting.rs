//! Waiting for a cluster: polls until everything is healthy or the time is over.

use std::time::Duration;

use drivers::kubernetes::{KubernetesClient, KubernetesError, ObjectFilter};
use model::base::duration::seconds;
use model::base::error::one_line;
use model::stage::kubernetes::{Health, ObjectRef, agent_health, rollout};
use serde_json::Value;

use super::{StepFailure, StepResult};
use crate::stage::cluster::Poll;

/// Waits until the API server answers. A new one may refuse connections or credentials at first.
pub(super) async fn for_api(
    client: &KubernetesClient,
    limit: Duration,
    seen: &mut (dyn FnMut(&str) + Send),
) -> Result<String, StepFailure> {
    let mut poll = Poll::new(limit);
    loop {
        let err = match poll.look(client.version()).await {
            Some(Ok(version)) => return Ok(version),
            Some(Err(err)) => err,
            None => return Err(unanswered(client, limit)),
        };
        let unknown = matches!(err, KubernetesError::Status { code: 401, .. });
        if !err.may_pass() && !unknown {
            return Err(err.into());
        }
        let said = one_line(&err);
        seen(&said);
        if !poll.pause().await {
            return Err(StepFailure {
                why: format!("{said}, for {}", seconds(limit)),
                ..StepFailure::from(err)
            });
        }
    }
}

/// The failure when the time is over without an answer.
fn unanswered(client: &KubernetesClient, limit: Duration) -> StepFailure {
    match client.hung_plugin(limit) {
        Some(hung) => hung.into(),
        None => StepFailure::new(format!("{} does not answer", client.server())),
    }
}

pub(super) fn is_workload(object: &Value) -> bool {
    let kind = object.get("kind").and_then(Value::as_str);
    matches!(kind, Some("Deployment" | "StatefulSet" | "DaemonSet"))
}

/// Objects that Argo CD or Flux reconcile and report on.
pub(super) fn is_of_agent(object: &Value) -> bool {
    let Some(identity) = ObjectRef::of(object) else {
        return false;
    };
    identity.group() == "argoproj.io" || identity.group().ends_with(".toolkit.fluxcd.io")
}

/// Waits until the workloads of the agent are rolled out: those that were installed, or all in its namespace.
pub(super) async fn for_workloads(
    client: &KubernetesClient,
    installed: &[Value],
    namespace: &str,
    limit: Duration,
    seen: &mut (dyn FnMut(&str) + Send),
) -> Result<StepResult, StepFailure> {
    if !installed.is_empty() {
        return for_objects(client, Objects::These(installed), rollout, limit, seen).await;
    }
    for_objects(client, Objects::Namespace(namespace), rollout, limit, seen).await
}

/// Waits until the agent reports the root objects as healthy.
pub(super) async fn for_roots(
    client: &KubernetesClient,
    roots: &[Value],
    limit: Duration,
    seen: &mut (dyn FnMut(&str) + Send),
) -> Result<StepResult, StepFailure> {
    for_objects(client, Objects::These(roots), agent_health, limit, seen).await
}

enum Objects<'a> {
    These(&'a [Value]),
    Namespace(&'a str),
}

async fn for_objects(
    client: &KubernetesClient,
    objects: Objects<'_>,
    judge: fn(&Value) -> Health,
    limit: Duration,
    seen: &mut (dyn FnMut(&str) + Send),
) -> Result<StepResult, StepFailure> {
    let mut poll = Poll::new(limit);
    let mut last = Observed::default();
    loop {
        match poll.look(look(client, &objects, judge)).await {
            Some(Ok(looked)) => last = looked,
            Some(Err(err)) if err.may_pass() => last.trouble = Some(one_line(&err)),
            Some(Err(err)) => return Err(err.into()),
            None => {}
        }
        if last.is_well() {
            return Ok(StepResult {
                notes: last.lines,
                ..StepResult::default()
            });
        }
        seen(&last.brief());
        if !poll.pause().await {
            return Err(last.failure(client, limit).await);
        }
    }
}

/// The objects as one poll saw them.
#[derive(Default)]
struct Observed {
    lines: Vec<String>,
    unwell: Vec<(Option<Value>, String)>,
    /// Why they could not be read.
    trouble: Option<String>,
    any: bool,
}

impl Observed {
    fn is_well(&self) -> bool {
        self.any && self.unwell.is_empty() && self.trouble.is_none()
    }

    fn brief(&self) -> String {
        if let Some(trouble) = &self.trouble {
            return trouble.clone();
        }
        match self.unwell.as_slice() {
            [] => "there is nothing to wait for yet".to_owned(),
            [(_, only)] => only.clone(),
            [(_, first), rest @ ..] => format!("{first}, and {} more", rest.len()),
        }
    }

    async fn failure(self, client: &KubernetesClient, limit: Duration) -> StepFailure {
        const SHOWN: usize = 3;
        let why = format!("not well after {}: {}", seconds(limit), self.brief());
        let mut notes: Vec<String> = self.unwell.iter().map(|(_, line)| line.clone()).collect();
        let objects = self.unwell.iter().filter_map(|(object, _)| object.as_ref());
        for object in objects.take(SHOWN) {
            notes.extend(client.around(object).await);
        }
        StepFailure {
            done: StepResult {
                notes,
                ..StepResult::default()
            },
            ..StepFailure::new(why)
        }
    }
}

async fn look(
    client: &KubernetesClient,
    objects: &Objects<'_>,
    judge: fn(&Value) -> Health,
) -> Result<Observed, KubernetesError> {
    let mut looked = Observed::default();
    match objects {
        Objects::These(these) => {
            for object in *these {
                let Some(identity) = ObjectRef::of(object) else {
                    continue;
                };
                match client.get_ref(&identity).await? {
                    Some(live) => looked.add(live, judge),
                    None => looked
                        .unwell
                        .push((None, format!("{identity}: it does not exist"))),
                }
            }
            // An empty list is healthy.
            looked.any = true;
        }
        Objects::Namespace(namespace) => {
            for kind in ["Deployment", "StatefulSet"] {
                let resource = client.resource(kind).await?;
                let among = ObjectFilter {
                    namespace: Some(namespace),
                    ..ObjectFilter::default()
                };
                for live in client.list(&resource, among).await? {
                    looked.add(live, judge);
                }
            }
        }
    }
    Ok(looked)
}

impl Observed {
    fn add(&mut self, live: Value, judge: fn(&Value) -> Health) {
        self.any = true;
        let health = judge(&live);
        let name = ObjectRef::of(&live).map_or_else(String::new, |identity| identity.to_string());
        let line = format!("{name}: {}", health.seen);
        if health.is_well {
            self.lines.push(line);
        } else {
            self.unwell.push((Some(live), line));
        }
    }
}
