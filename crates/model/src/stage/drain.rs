//! Drains a cluster before its stack is destroyed: which objects own external resources, and the result of removing
//! them. An engine that destroys a network with a load balancer in it fails halfway.
//!
//! Not here: executing it (`control::stage::drain`).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::stage::ResolvedBlock;
use crate::stage::kubernetes::{Kubeconfig, KubeconfigError, ObjectRef};

/// The result of draining.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainReport {
    /// Address of the API server.
    pub server: String,
    #[serde(flatten)]
    pub end: DrainEnd,
    /// No longer reconciled from Git.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspended: Vec<ObjectRef>,
    /// Workloads scaled to zero pods, so that their volumes can be deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaled_down: Vec<ObjectRef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<ObjectRef>,
    /// The objects that still exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<RemainingObject>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum DrainEnd {
    /// No object in the cluster owns external resources.
    #[default]
    Empty,
    /// The time limit expired before everything was deleted.
    TimedOut,
    /// The API server does not respond: the cluster may already be gone.
    Unreachable {
        why: String,
    },
    Failed {
        why: String,
    },
}

/// An object that is not deleted, and what blocks it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RemainingObject {
    pub object: ObjectRef,
    /// Only the controllers that set the finalizers can remove them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting_since: Option<String>,
}

impl RemainingObject {
    pub fn of(object: &Value) -> Option<Self> {
        let finalizers = object
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array);
        let since = object.pointer("/metadata/deletionTimestamp");
        Some(Self {
            object: ObjectRef::of(object)?,
            finalizers: finalizers
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
            deleting_since: since.and_then(Value::as_str).map(str::to_owned),
        })
    }
}

impl std::fmt::Display for RemainingObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.object)?;
        if let Some(since) = &self.deleting_since {
            write!(f, ", being deleted since {since}")?;
        }
        if !self.finalizers.is_empty() {
            write!(f, ", held by the finalizer {}", self.finalizers.join(", "))?;
        }
        Ok(())
    }
}

/// The clusters of a stack's `bootstrap` blocks, without duplicates: the stack that bootstraps a cluster owns it. Gates
/// do not count, since they may check another stack's cluster.
pub fn clusters(bootstraps: &[ResolvedBlock]) -> Result<Vec<Kubeconfig>, KubeconfigError> {
    let mut found: Vec<Kubeconfig> = Vec::new();
    for block in bootstraps {
        let Some(value) = block.attrs.get("kubeconfig").filter(|it| !it.is_null()) else {
            continue;
        };
        let config = Kubeconfig::from_value(value)?;
        if !found.iter().any(|known| known.server == config.server) {
            found.push(config);
        }
    }
    Ok(found)
}

/// The merge patch that stops the reconciliation of an object. None if it is not reconciled.
pub fn suspension(object: &Value) -> Option<Value> {
    let kind = object.get("kind").and_then(Value::as_str)?;
    match kind {
        "Application" => object
            .pointer("/spec/syncPolicy/automated")
            .filter(|automated| !automated.is_null())
            .map(|_| json!({"spec": {"syncPolicy": {"automated": null}}})),
        // It would restore what was removed from its Applications.
        "ApplicationSet" => {
            let policy = object.pointer("/spec/syncPolicy/applicationsSync");
            (policy.and_then(Value::as_str) != Some("create-only"))
                .then(|| json!({"spec": {"syncPolicy": {"applicationsSync": "create-only"}}}))
        }
        "Kustomization" | "HelmRelease" => {
            let suspended = object.pointer("/spec/suspend") == Some(&Value::Bool(true));
            (!suspended).then(|| json!({"spec": {"suspend": true}}))
        }
        _ => None,
    }
}

/// The merge patch that makes a workload stop creating pods. None if it creates none, or if this is unknown.
pub fn idling(owner: &Value) -> Option<Value> {
    let spec = |field: &str| owner.pointer(&format!("/spec/{field}"));
    match owner.get("kind").and_then(Value::as_str)? {
        "StatefulSet" | "Deployment" | "ReplicaSet" => {
            (spec("replicas") != Some(&json!(0))).then(|| json!({"spec": {"replicas": 0}}))
        }
        "Job" | "CronJob" => {
            (spec("suspend") != Some(&json!(true))).then(|| json!({"spec": {"suspend": true}}))
        }
        _ => None,
    }
}

/// Whether a Service has an external address.
pub fn is_load_balancer(service: &Value) -> bool {
    service.pointer("/spec/type").and_then(Value::as_str) == Some("LoadBalancer")
}

/// Whether a volume is a cloud disk that is deleted with its claim.
pub fn owns_disk(volume: &Value) -> bool {
    const ELSEWHERE: [&str; 8] = [
        "csi",
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "gcePersistentDisk",
        "cinder",
        "vsphereVolume",
        "portworxVolume",
    ];
    let policy = volume.pointer("/spec/persistentVolumeReclaimPolicy");
    policy.and_then(Value::as_str) == Some("Delete")
        && ELSEWHERE
            .iter()
            .any(|kind| volume.pointer(&format!("/spec/{kind}")).is_some())
}

/// Whether such a volume has lost its claim while its disk still exists.
pub fn is_going(volume: &Value) -> bool {
    let phase = volume.pointer("/status/phase").and_then(Value::as_str);
    let is_left = matches!(phase, Some("Released" | "Failed"));
    owns_disk(volume) && (is_left || volume.pointer("/metadata/deletionTimestamp").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspending_twice_is_no_change() {
        let application =
            json!({"kind": "Application", "spec": {"syncPolicy": {"automated": {"prune": true}}}});
        assert_eq!(
            suspension(&application),
            Some(json!({"spec": {"syncPolicy": {"automated": null}}}))
        );
        let done = [
            json!({"kind": "Application", "spec": {"syncPolicy": {}}}),
            json!({"kind": "ApplicationSet", "spec": {"syncPolicy": {"applicationsSync": "create-only"}}}),
            json!({"kind": "HelmRelease", "spec": {"suspend": true}}),
            json!({"kind": "GitRepository", "spec": {}}),
        ];
        for object in done {
            assert_eq!(suspension(&object), None, "{object}");
        }
    }

    #[test]
    fn only_disks_of_a_cloud_count() {
        let volume = |policy: &str, source: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy, source: {}}});
        assert!(owns_disk(&volume("Delete", "csi")));
        assert!(!owns_disk(&volume("Retain", "csi")));
        assert!(!owns_disk(&volume("Delete", "hostPath")));
    }

    #[test]
    fn a_disk_without_its_claim_is_still_a_disk() {
        let volume = |phase: &str, policy: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy, "csi": {}}, "status": {"phase": phase}});
        assert!(is_going(&volume("Released", "Delete")));
        assert!(is_going(&volume("Failed", "Delete")));
        assert!(!is_going(&volume("Released", "Retain")));
        // Created manually and never used.
        assert!(!is_going(&volume("Available", "Delete")));
    }

    #[test]
    fn whoever_makes_pods_is_told_once() {
        for (owner, patch) in [
            (
                json!({"kind": "StatefulSet", "spec": {}}),
                json!({"spec": {"replicas": 0}}),
            ),
            (
                json!({"kind": "CronJob", "spec": {}}),
                json!({"spec": {"suspend": true}}),
            ),
        ] {
            assert_eq!(idling(&owner), Some(patch));
        }
        for owner in [
            json!({"kind": "ReplicaSet", "spec": {"replicas": 0}}),
            json!({"kind": "Job", "spec": {"suspend": true}}),
            json!({"kind": "DaemonSet", "spec": {}}),
        ] {
            assert_eq!(idling(&owner), None, "{owner}");
        }
    }

    #[test]
    fn what_remains_says_what_holds_it() {
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "b",
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"], "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(
            RemainingObject::of(&object).unwrap().to_string(),
            "Service b/a, being deleted since 2026-01-01T00:00:00Z, \
             held by the finalizer service.kubernetes.io/load-balancer-cleanup"
        );
    }
}
