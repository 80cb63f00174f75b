//! Gates on clusters: turns observations of `drivers::kubernetes` into results of gates.

use std::time::Duration;

use drivers::kubernetes::{
    AgentObjects, ClusterCheck, ClusterClients, KubernetesError, ObjectCondition,
};
use model::base::duration::seconds;
use model::base::error::{Explain, one_line};
use model::base::secret::Secret;
use model::stage::gate::{
    AgentGate, CheckResult, ClusterEvidence, Evidence, GateMismatch, KubernetesGate,
    ObjectEvidence, ObjectRequirement, ProbeQueryError,
};
use model::stage::kubernetes::FieldPath;
use serde_json::Value;
use tokio::time::timeout;

/// A check of a cluster that ends in time, whatever the cluster does.
pub(super) async fn within(
    limit: Duration,
    kubeconfig: &Secret,
    clusters: &ClusterClients,
    looking: impl Future<Output = CheckResult>,
) -> CheckResult {
    match timeout(limit, looking).await {
        Ok(look) => look,
        Err(_) => CheckResult::impossible(late(limit, kubeconfig, clusters).await),
    }
}

/// Describes what did not answer: a credential plugin or the cluster.
pub(super) async fn late(
    limit: Duration,
    kubeconfig: &Secret,
    clusters: &ClusterClients,
) -> String {
    match clusters.hung_plugin(kubeconfig, limit).await {
        Some(hung) => why(&hung),
        None => format!("the cluster did not answer within {}", seconds(limit)),
    }
}

pub(super) async fn object(gate: &KubernetesGate, clusters: &ClusterClients) -> CheckResult {
    let wanted = match &gate.want {
        ObjectRequirement::Present => ObjectCondition::Present,
        ObjectRequirement::Condition(condition) => ObjectCondition::Condition(condition.clone()),
        ObjectRequirement::Listener(port) => ObjectCondition::Listener(*port),
        ObjectRequirement::Field { path, expect } => match path.parse() {
            Ok(path) => ObjectCondition::Field {
                path,
                expect: expect.clone(),
            },
            Err(err) => return CheckResult::impossible(one_line(&err)),
        },
    };
    let namespace = gate.namespace.as_deref();
    let looked = clusters
        .object(&gate.kubeconfig, &gate.kind, namespace, &gate.name, &wanted)
        .await;
    judged(looked, Evidence::Kubernetes)
}

pub(super) async fn agent(
    gate: &AgentGate,
    whose: AgentObjects,
    clusters: &ClusterClients,
) -> CheckResult {
    let namespace = gate.namespace.as_deref();
    let looked = clusters
        .agent(&gate.kubeconfig, whose, namespace, &gate.names)
        .await;
    match whose {
        AgentObjects::Argocd => judged(looked, Evidence::Argocd),
        AgentObjects::Flux => judged(looked, Evidence::Flux),
    }
}

/// The value of a field, for `equal`.
pub(super) async fn field(
    kubeconfig: &Secret,
    object: &str,
    field: &str,
    clusters: &ClusterClients,
) -> Result<Value, ProbeQueryError> {
    let path: FieldPath = field
        .parse()
        .map_err(|err| ProbeQueryError(one_line(&err)))?;
    let found = clusters.field(kubeconfig, object, &path).await;
    let found = found.map_err(|err| ProbeQueryError(why(&err)))?;
    found.ok_or_else(|| ProbeQueryError(format!("{object} is not there, or has no `{path}`")))
}

fn judged(
    looked: Result<ClusterCheck, KubernetesError>,
    evidence: impl Fn(ClusterEvidence) -> Evidence,
) -> CheckResult {
    let looked = match looked {
        Ok(looked) => looked,
        Err(err) => return CheckResult::impossible(why(&err)),
    };
    let misses = looked.objects.iter().filter(|object| !object.is_well);
    let misses = misses
        .map(|object| GateMismatch::new(&object.object, &object.expected, &object.seen))
        .collect();
    let seen = ClusterEvidence {
        server: looked.server,
        objects: looked
            .objects
            .into_iter()
            .map(|object| ObjectEvidence {
                object: object.object,
                values: object.values,
                notes: object.notes,
            })
            .collect(),
    };
    CheckResult::judged(evidence(seen), misses)
}

fn why(err: &KubernetesError) -> String {
    match err.hint() {
        Some(hint) => format!("{} ({hint})", one_line(err)),
        None => one_line(err),
    }
}
