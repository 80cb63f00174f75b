//! Waiting for a cluster: looks, and looks again a little later, until all is well or the time is over.

use std::time::{Duration, Instant};

use drivers::kubernetes::{Among, Client, KubernetesError};
use model::duration::seconds;
use model::kubernetes::{Health, ObjectRef, agent_health, rollout};
use serde_json::Value;

use super::{Done, Failure, told};

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// Until the API server answers: a new one does not at first, and may not know us yet.
pub(super) async fn for_api(
    client: &Client,
    limit: Duration,
    seen: &mut (dyn FnMut(&str) + Send),
) -> Result<String, Failure> {
    let mut pace = Pace::new(limit);
    loop {
        let err = match pace.look(client.version()).await {
            Some(Ok(version)) => return Ok(version),
            Some(Err(err)) => err,
            None => return Err(unanswered(client, limit)),
        };
        let unknown = matches!(err, KubernetesError::Status { code: 401, .. });
        if !err.may_pass() && !unknown {
            return Err(err.into());
        }
        let said = told(&err);
        seen(&said);
        if !pace.pause().await {
            return Err(Failure {
                why: format!("{said}, for {}", seconds(limit)),
                ..Failure::from(err)
            });
        }
    }
}

/// The time was over before anybody answered.
fn unanswered(client: &Client, limit: Duration) -> Failure {
    match client.hung_plugin(limit) {
        Some(hung) => hung.into(),
        None => Failure::new(format!("{} does not answer", client.server())),
    }
}

pub(super) fn is_workload(object: &Value) -> bool {
    let kind = object.get("kind").and_then(Value::as_str);
    matches!(kind, Some("Deployment" | "StatefulSet" | "DaemonSet"))
}

/// Objects that Argo CD or Flux reconcile and say something of.
pub(super) fn is_of_agent(object: &Value) -> bool {
    let Some(identity) = ObjectRef::of(object) else {
        return false;
    };
    identity.group() == "argoproj.io" || identity.group().ends_with(".toolkit.fluxcd.io")
}

/// Until the workloads of the agent are rolled out: those that were installed, or whatever is in its namespace.
pub(super) async fn for_workloads(
    client: &Client,
    installed: &[Value],
    namespace: &str,
    limit: Duration,
    seen: &mut (dyn FnMut(&str) + Send),
) -> Result<Done, Failure> {
    if !installed.is_empty() {
        return for_objects(client, Whose::These(installed), rollout, limit, seen).await;
    }
    for_objects(client, Whose::Namespace(namespace), rollout, limit, seen).await
}

/// Until the root objects are what their agent calls healthy.
pub(super) async fn for_roots(
    client: &Client,
    roots: &[Value],
    limit: Duration,
    seen: &mut (dyn FnMut(&str) + Send),
) -> Result<Done, Failure> {
    for_objects(client, Whose::These(roots), agent_health, limit, seen).await
}

enum Whose<'a> {
    These(&'a [Value]),
    Namespace(&'a str),
}

async fn for_objects(
    client: &Client,
    whose: Whose<'_>,
    judge: fn(&Value) -> Health,
    limit: Duration,
    seen: &mut (dyn FnMut(&str) + Send),
) -> Result<Done, Failure> {
    let mut pace = Pace::new(limit);
    let mut last = Looked::default();
    loop {
        match pace.look(look(client, &whose, judge)).await {
            Some(Ok(looked)) => last = looked,
            Some(Err(err)) if err.may_pass() => last.trouble = Some(told(&err)),
            Some(Err(err)) => return Err(err.into()),
            None => {}
        }
        if last.is_well() {
            return Ok(Done {
                notes: last.lines,
                ..Done::default()
            });
        }
        seen(&last.brief());
        if !pace.pause().await {
            return Err(last.failure(client, limit).await);
        }
    }
}

/// All objects at one moment.
#[derive(Default)]
struct Looked {
    lines: Vec<String>,
    unwell: Vec<(Option<Value>, String)>,
    /// Why nothing could be seen.
    trouble: Option<String>,
    any: bool,
}

impl Looked {
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

    async fn failure(self, client: &Client, limit: Duration) -> Failure {
        const SHOWN: usize = 3;
        let why = format!("not well after {}: {}", seconds(limit), self.brief());
        let mut notes: Vec<String> = self.unwell.iter().map(|(_, line)| line.clone()).collect();
        let objects = self.unwell.iter().filter_map(|(object, _)| object.as_ref());
        for object in objects.take(SHOWN) {
            notes.extend(client.around(object).await);
        }
        Failure {
            done: Done {
                notes,
                ..Done::default()
            },
            ..Failure::new(why)
        }
    }
}

async fn look(
    client: &Client,
    whose: &Whose<'_>,
    judge: fn(&Value) -> Health,
) -> Result<Looked, KubernetesError> {
    let mut looked = Looked::default();
    match whose {
        Whose::These(objects) => {
            for object in *objects {
                let Some(identity) = ObjectRef::of(object) else {
                    continue;
                };
                match client.get_ref(&identity).await? {
                    Some(live) => looked.add(live, judge),
                    None => looked
                        .unwell
                        .push((None, format!("{identity}: it is not there"))),
                }
            }
            // Nothing to wait for is no reason to wait.
            looked.any = true;
        }
        Whose::Namespace(namespace) => {
            for kind in ["Deployment", "StatefulSet"] {
                let resource = client.resource(kind).await?;
                let among = Among {
                    namespace: Some(namespace),
                    ..Among::default()
                };
                for live in client.list(&resource, among).await? {
                    looked.add(live, judge);
                }
            }
        }
    }
    Ok(looked)
}

impl Looked {
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

/// When to look again: soon at first, then less often, and never past the end.
pub(crate) struct Pace {
    end: Instant,
    next: Duration,
}

impl Pace {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            end: Instant::now() + limit,
            next: SHORTEST,
        }
    }

    /// Nothing if the time is over before the look is.
    pub(crate) async fn look<T>(&self, look: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.end.into(), look).await.ok()
    }

    /// Whether there is time for another look; then it is due.
    pub(crate) async fn pause(&mut self) -> bool {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        tokio::time::sleep(self.next.min(left)).await;
        self.next = (self.next * 3 / 2).min(LONGEST);
        Instant::now() < self.end
    }
}
