//! Cluster checks for gates: one object, Argo CD applications, Flux objects, or a field. A failed check includes
//! the context of the object.
//!
//! Not here: when to check again (`control::stage::gates`), how an object reports its health (`model::stage::kubernetes`).

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use globset::GlobBuilder;
use model::base::exact_number;
use model::base::secret::Secret;
use model::stage::kubernetes::{
    FieldPath, Health, Kubeconfig, ObjectRef, agent_health, condition, listener,
};
use serde_json::Value;
use tokio::sync::Mutex;

use super::{ApiResource, KubernetesClient, KubernetesError, ObjectFilter};
use crate::process::Environment;

/// Limit of an answer that a gate reads.
const MAX_ANSWER: usize = 1 << 20;
/// Show the context of at most this many objects.
const SHOWN: usize = 3;

/// The condition that an object must meet.
#[derive(Clone, Debug)]
pub enum ObjectCondition {
    Present,
    /// `Ready`, or `Stalled=False`.
    Condition(String),
    /// One of the values at the path equals this one.
    Field {
        path: FieldPath,
        expect: Value,
    },
    /// A Gateway has a programmed listener on this port.
    Listener(u16),
}

/// The agent whose objects are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentObjects {
    Argocd,
    Flux,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterCheck {
    /// Address of the API server.
    pub server: String,
    pub objects: Vec<ObjectCheck>,
}

/// One object and whether it is healthy.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectCheck {
    /// `Deployment argocd/argocd-server`, or a pattern that matches no object.
    pub object: String,
    pub is_well: bool,
    pub expected: String,
    pub seen: String,
    /// The values that decided, by name of condition or path of field.
    pub values: BTreeMap<String, Value>,
    /// Events, states of pods, ends of logs; only for an unhealthy object.
    pub notes: Vec<String>,
}

impl ClusterCheck {
    pub fn is_well(&self) -> bool {
        self.objects.iter().all(|object| object.is_well)
    }
}

/// Connections to clusters, kept between checks so that a credential plugin runs once.
#[derive(Debug, Default)]
pub struct ClusterClients {
    known: Mutex<HashMap<String, KubernetesClient>>,
    env: Environment,
    dir: PathBuf,
}

impl ClusterClients {
    /// Credential plugins run with this environment, in this directory.
    pub fn new(env: Environment, dir: impl Into<PathBuf>) -> Self {
        Self {
            known: Mutex::default(),
            env,
            dir: dir.into(),
        }
    }

    /// The error for a check that timed out while waiting for a credential plugin.
    pub async fn hung_plugin(
        &self,
        kubeconfig: &Secret,
        after: Duration,
    ) -> Option<KubernetesError> {
        let known = self.known.lock().await;
        known.get(&key(kubeconfig))?.hung_plugin(after)
    }

    /// One object, by kind and name.
    pub async fn object(
        &self,
        kubeconfig: &Secret,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        wanted: &ObjectCondition,
    ) -> Result<ClusterCheck, KubernetesError> {
        let client = self.client(kubeconfig).await?;
        let resource = client.resource(kind).await?;
        let namespace = place(&resource, namespace);
        let live = client.get(&resource, namespace, name).await?;
        let mut look = ObjectCheck {
            object: super::shown(&resource, namespace, name),
            is_well: false,
            expected: expected(wanted),
            seen: "it is not there".to_owned(),
            values: BTreeMap::new(),
            notes: Vec::new(),
        };
        if let Some(live) = live {
            let judged = judge(wanted, &live);
            (look.is_well, look.seen, look.values) = (judged.is_well, judged.seen, judged.values);
            if !look.is_well {
                look.notes = client.around(&live).await;
            }
        }
        Ok(ClusterCheck {
            server: client.server().to_owned(),
            objects: vec![look],
        })
    }

    /// All objects of an agent whose names match one of the globs; without globs, all of them.
    pub async fn agent(
        &self,
        kubeconfig: &Secret,
        whose: AgentObjects,
        namespace: Option<&str>,
        names: &[String],
    ) -> Result<ClusterCheck, KubernetesError> {
        let patterns = Patterns::new(names)?;
        let client = self.client(kubeconfig).await?;
        let mut found = listed(&client, whose, namespace).await?;
        found.retain(|object| patterns.fit(object));
        let wanted = match whose {
            AgentObjects::Argocd => "Synced, Healthy",
            AgentObjects::Flux => "Ready=True",
        };
        let mut objects: Vec<ObjectCheck> = patterns
            .unfitted(&found)
            .map(|pattern| missing(pattern, wanted))
            .collect();
        if found.is_empty() && objects.is_empty() {
            objects.push(missing("*", wanted));
        }
        let mut surrounded = 0;
        for object in &found {
            let health = agent_health(object);
            let identity = ObjectRef::of(object).ok_or(KubernetesError::NoObject)?;
            let mut notes = Vec::new();
            if !health.is_well && surrounded < SHOWN {
                notes = client.around(object).await;
                surrounded += 1;
            }
            let is_set = identity.kind == "ApplicationSet";
            objects.push(ObjectCheck {
                object: identity.to_string(),
                is_well: health.is_well,
                expected: if is_set {
                    "ResourcesUpToDate=True"
                } else {
                    wanted
                }
                .to_owned(),
                values: BTreeMap::from([("health".to_owned(), health.seen.clone().into())]),
                seen: health.seen,
                notes,
            });
        }
        Ok(ClusterCheck {
            server: client.server().to_owned(),
            objects,
        })
    }

    /// The value of a field of `KIND/NAMESPACE/NAME` or `KIND/NAME`; a list if the path selects several.
    pub async fn field(
        &self,
        kubeconfig: &Secret,
        object: &str,
        path: &FieldPath,
    ) -> Result<Option<Value>, KubernetesError> {
        let parts: Vec<&str> = object.split('/').collect();
        let (kind, namespace, name) = match parts[..] {
            [kind, name] => (kind, None, name),
            [kind, namespace, name] => (kind, Some(namespace), name),
            _ => {
                return Err(KubernetesError::NotNamed {
                    text: object.to_owned(),
                });
            }
        };
        let client = self.client(kubeconfig).await?;
        let resource = client.resource(kind).await?;
        let namespace = place(&resource, namespace);
        let Some(live) = client.get(&resource, namespace, name).await? else {
            return Ok(None);
        };
        Ok(match path.find(&live)[..] {
            [] => None,
            [only] => Some(only.clone()),
            ref several => Some(several.iter().map(|value| (*value).clone()).collect()),
        })
    }

    async fn client(&self, kubeconfig: &Secret) -> Result<KubernetesClient, KubernetesError> {
        let key = key(kubeconfig);
        let mut known = self.known.lock().await;
        if let Some(client) = known.get(&key) {
            return Ok(client.clone());
        }
        let config = Kubeconfig::from_text(kubeconfig.expose())?;
        let client = KubernetesClient::new(config, &self.env, &self.dir).await?;
        let client = client.with_limit(MAX_ANSWER);
        known.insert(key, client.clone());
        Ok(client)
    }
}

/// Uses a digest, because the kubeconfig is a secret.
fn key(kubeconfig: &Secret) -> String {
    crate::snapshot::sha256(kubeconfig.expose().as_bytes())
}

/// The namespace to use: none for a cluster-wide kind, else the given one or `default`.
fn place<'a>(resource: &ApiResource, namespace: Option<&'a str>) -> Option<&'a str> {
    resource.namespaced.then(|| namespace.unwrap_or("default"))
}

fn expected(wanted: &ObjectCondition) -> String {
    match wanted {
        ObjectCondition::Present => "it is there".to_owned(),
        ObjectCondition::Condition(condition) if condition.contains('=') => condition.clone(),
        ObjectCondition::Condition(condition) => format!("{condition}=True"),
        ObjectCondition::Field { path, expect } => format!("{path} = {}", text(expect)),
        ObjectCondition::Listener(port) => format!("a listener on {port} that is Programmed"),
    }
}

struct ConditionResult {
    is_well: bool,
    seen: String,
    values: BTreeMap<String, Value>,
}

fn judge(wanted: &ObjectCondition, live: &Value) -> ConditionResult {
    let said = |name: &str, health: Health| ConditionResult {
        is_well: health.is_well,
        values: BTreeMap::from([(name.to_owned(), health.seen.clone().into())]),
        seen: health.seen,
    };
    match wanted {
        ObjectCondition::Present => ConditionResult {
            is_well: true,
            seen: "it is there".to_owned(),
            values: BTreeMap::new(),
        },
        ObjectCondition::Condition(name) => said(name, condition(live, name)),
        ObjectCondition::Listener(port) => said("listener", listener(live, *port)),
        ObjectCondition::Field { path, expect } => field(path, expect, live),
    }
}

fn field(path: &FieldPath, expect: &Value, live: &Value) -> ConditionResult {
    let found = path.find(live);
    let is_well = found.iter().any(|value| is_equal(value, expect));
    // Values of a Secret are compared but never shown.
    if live.get("kind").and_then(Value::as_str) == Some("Secret") {
        let seen = match (is_well, found.is_empty()) {
            (true, _) => "as expected",
            (false, true) => "there is none",
            (false, false) => "another value",
        };
        return ConditionResult {
            is_well,
            seen: seen.to_owned(),
            values: BTreeMap::new(),
        };
    }
    if found.is_empty() {
        return ConditionResult {
            is_well: false,
            seen: format!("there is no `{path}`"),
            values: BTreeMap::new(),
        };
    }
    let texts: Vec<String> = found.iter().map(|value| text(value)).collect();
    let value = match found[..] {
        [only] => only.clone(),
        ref several => several.iter().map(|value| (*value).clone()).collect(),
    };
    ConditionResult {
        is_well,
        seen: format!("{path} = {}", texts.join(", ")),
        values: BTreeMap::from([(path.to_string(), value)]),
    }
}

/// An output `443` and a field `443` are equal, even if one of them is a string.
fn is_equal(seen: &Value, expected: &Value) -> bool {
    text(seen) == text(expected)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => exact_number::write(other),
    }
}

fn missing(pattern: &str, wanted: &str) -> ObjectCheck {
    ObjectCheck {
        object: pattern.to_owned(),
        is_well: false,
        expected: wanted.to_owned(),
        seen: "nothing has a name like this".to_owned(),
        values: BTreeMap::new(),
        notes: Vec::new(),
    }
}

/// Globs for names.
struct Patterns<'a>(Vec<(&'a str, globset::GlobMatcher)>);

impl<'a> Patterns<'a> {
    fn new(names: &'a [String]) -> Result<Self, KubernetesError> {
        let mut all = Vec::new();
        for name in names {
            let glob = GlobBuilder::new(name).build();
            let glob = glob.map_err(|_| KubernetesError::Pattern { text: name.clone() })?;
            all.push((name.as_str(), glob.compile_matcher()));
        }
        Ok(Self(all))
    }

    fn fit(&self, object: &Value) -> bool {
        let name = name(object);
        self.0.is_empty() || self.0.iter().any(|(_, glob)| glob.is_match(name))
    }

    /// The patterns that match no object: a missing application is not healthy.
    fn unfitted(&self, found: &[Value]) -> impl Iterator<Item = &'a str> {
        let unfitted = self.0.iter().filter(|(_, glob)| {
            let mut found = found.iter();
            !found.any(|object| glob.is_match(name(object)))
        });
        unfitted.map(|(pattern, _)| *pattern)
    }
}

fn name(object: &Value) -> &str {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    name.unwrap_or_default()
}

async fn listed(
    client: &KubernetesClient,
    whose: AgentObjects,
    namespace: Option<&str>,
) -> Result<Vec<Value>, KubernetesError> {
    let kinds: &[&str] = match whose {
        AgentObjects::Argocd => &["Application.argoproj.io", "ApplicationSet.argoproj.io"],
        AgentObjects::Flux => &[
            "Kustomization.kustomize.toolkit.fluxcd.io",
            "HelmRelease.helm.toolkit.fluxcd.io",
        ],
    };
    let among = ObjectFilter {
        namespace,
        ..ObjectFilter::default()
    };
    let mut found = Vec::new();
    let mut unknown = None;
    for kind in kinds {
        match client.resource(kind).await {
            Ok(resource) => found.extend(client.list(&resource, among).await?),
            // The kinds of some of an agent's controllers may be missing, but not all.
            Err(err @ KubernetesError::UnknownKind { .. }) => unknown = Some(err),
            Err(err) => return Err(err),
        }
    }
    match unknown {
        Some(err) if found.is_empty() => Err(err),
        _ => Ok(found),
    }
}
