//! Draining a cluster: suspends reconciliation, deletes objects that own something outside, and waits until they are
//! gone. What comes back is deleted again. Dropping the future stops between two requests.
//!
//! Not here: when it happens (`runner`), which objects own something (`model::stage::drain`).

use std::collections::BTreeSet;
use std::time::Duration;

use drivers::kubernetes::{KubernetesClient, KubernetesError, ObjectFilter};
use model::base::duration::seconds;
use model::base::error::one_line;
use model::stage::drain::{
    DrainEnd, DrainReport, RemainingObject, idling, is_going, is_load_balancer, owns_disk,
    suspension,
};
use model::stage::kubernetes::{Kubeconfig, ObjectRef};
use serde_json::Value;

use crate::stage::cluster::{ClusterContext, Poll};

/// A cluster that does not answer for this long counts as gone.
const UNREACHABLE: Duration = Duration::from_mins(1);

/// Progress, reported as it happens.
#[derive(Debug)]
pub enum DrainProgress<'a> {
    Suspended(&'a ObjectRef),
    ScaledDown(&'a ObjectRef),
    Deleted(&'a ObjectRef),
    /// Reported each time the set of remaining objects changes.
    Waiting(&'a BTreeSet<RemainingObject>),
}

/// Drains the cluster. The report lists what was done, also after a failure.
pub async fn run(
    config: &Kubeconfig,
    cluster: ClusterContext<'_>,
    limit: Duration,
    said: &mut (dyn FnMut(DrainProgress<'_>) + Send),
) -> DrainReport {
    let mut work = DrainRun {
        report: DrainReport {
            server: config.server.clone(),
            ..DrainReport::default()
        },
        volumes: BTreeSet::new(),
        said,
    };
    let client = match reach(config, cluster, limit.min(UNREACHABLE)).await {
        Ok(client) => client,
        Err(end) => {
            work.report.end = end;
            return work.report;
        }
    };
    let end = work.run(&client, limit).await;
    work.report.end = end.unwrap_or_else(|err| DrainEnd::Failed {
        why: one_line(&err),
    });
    work.report
}

async fn reach(
    config: &Kubeconfig,
    cluster: ClusterContext<'_>,
    limit: Duration,
) -> Result<KubernetesClient, DrainEnd> {
    let failed = |err: &KubernetesError| DrainEnd::Failed { why: one_line(err) };
    let client = KubernetesClient::new(config.clone(), cluster.env, cluster.source).await;
    let client = client.map_err(|err| failed(&err))?;
    let mut poll = Poll::new(limit);
    let mut last = DrainEnd::Unreachable {
        why: format!("nothing within {}", seconds(limit)),
    };
    loop {
        match poll.look(client.version()).await {
            Some(Ok(_)) => return Ok(client),
            Some(Err(err)) if err.is_silence() => {
                last = DrainEnd::Unreachable {
                    why: one_line(&err),
                }
            }
            // It answers, and may recover.
            Some(Err(err)) if err.may_pass() => last = failed(&err),
            Some(Err(err)) => return Err(failed(&err)),
            None => {
                if let Some(hung) = client.hung_plugin(limit) {
                    return Err(failed(&hung));
                }
            }
        }
        if !poll.pause().await {
            return Err(last);
        }
    }
}

struct DrainRun<'a> {
    report: DrainReport,
    /// Names of disks whose claims we deleted.
    volumes: BTreeSet<String>,
    said: &'a mut (dyn FnMut(DrainProgress<'_>) + Send),
}

impl DrainRun<'_> {
    async fn run(
        &mut self,
        client: &KubernetesClient,
        limit: Duration,
    ) -> Result<DrainEnd, KubernetesError> {
        let mut poll = Poll::new(limit);
        let mut before = BTreeSet::new();
        loop {
            let looked = poll.look(self.round(client)).await;
            let Some(remaining) = looked.transpose()? else {
                return Ok(self.timed_out(before));
            };
            if remaining.is_empty() {
                return Ok(DrainEnd::Empty);
            }
            if remaining != before {
                (self.said)(DrainProgress::Waiting(&remaining));
                before = remaining;
            }
            if !poll.pause().await {
                return Ok(self.timed_out(before));
            }
        }
    }

    fn timed_out(&mut self, remaining: BTreeSet<RemainingObject>) -> DrainEnd {
        self.report.remaining = remaining.into_iter().collect();
        DrainEnd::TimedOut
    }

    /// One round: suspends, deletes, and returns what remains.
    async fn round(
        &mut self,
        client: &KubernetesClient,
    ) -> Result<BTreeSet<RemainingObject>, KubernetesError> {
        // An ApplicationSet first: it writes its Applications.
        for kind in [
            "ApplicationSet.argoproj.io",
            "Application.argoproj.io",
            "Kustomization.kustomize.toolkit.fluxcd.io",
            "HelmRelease.helm.toolkit.fluxcd.io",
        ] {
            for object in listed(client, kind).await? {
                self.suspend(client, &object).await?;
            }
        }
        let mut there = Vec::new();
        // Gateways and Ingresses first: they would create their Services again.
        for kind in [
            "Gateway.gateway.networking.k8s.io",
            "Ingress.networking.k8s.io",
        ] {
            there.extend(listed(client, kind).await?);
        }
        let services = listed(client, "Service").await?;
        there.extend(services.into_iter().filter(is_load_balancer));
        there.extend(self.claims(client).await?);
        for object in &there {
            self.delete(client, object).await?;
        }
        let mut remaining: BTreeSet<RemainingObject> =
            there.iter().filter_map(RemainingObject::of).collect();
        // A disk outlives its claim for a while. Disks whose claims were deleted earlier count as well.
        for volume in listed(client, "PersistentVolume").await? {
            if let Some(found) = RemainingObject::of(&volume)
                && (self.volumes.contains(&found.object.name) || is_going(&volume))
            {
                remaining.insert(found);
            }
        }
        Ok(remaining)
    }

    async fn suspend(
        &mut self,
        client: &KubernetesClient,
        object: &Value,
    ) -> Result<(), KubernetesError> {
        let (Some(patch), Some(identity)) = (suspension(object), ObjectRef::of(object)) else {
            return Ok(());
        };
        client.merge(&identity, None, &patch).await?;
        (self.said)(DrainProgress::Suspended(&identity));
        if !self.report.suspended.contains(&identity) {
            self.report.suspended.push(identity);
        }
        Ok(())
    }

    async fn delete(
        &mut self,
        client: &KubernetesClient,
        object: &Value,
    ) -> Result<(), KubernetesError> {
        let Some(identity) = ObjectRef::of(object) else {
            return Ok(());
        };
        if object.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok(());
        }
        client.delete(&identity).await?;
        (self.said)(DrainProgress::Deleted(&identity));
        if !self.report.deleted.contains(&identity) {
            self.report.deleted.push(identity);
        }
        Ok(())
    }

    /// Claims whose disk is deleted with them. A claim stays as long as a pod uses it.
    async fn claims(&mut self, client: &KubernetesClient) -> Result<Vec<Value>, KubernetesError> {
        let disks: BTreeSet<String> = listed(client, "PersistentVolume")
            .await?
            .iter()
            .filter(|volume| owns_disk(volume))
            .map(|volume| text(volume, "/metadata/name"))
            .collect();
        if disks.is_empty() {
            return Ok(Vec::new());
        }
        let mut claims = listed(client, "PersistentVolumeClaim").await?;
        claims.retain(|claim| disks.contains(&text(claim, "/spec/volumeName")));
        self.volumes
            .extend(claims.iter().map(|claim| text(claim, "/spec/volumeName")));
        let used: BTreeSet<(String, String)> = claims
            .iter()
            .map(|claim| {
                (
                    text(claim, "/metadata/namespace"),
                    text(claim, "/metadata/name"),
                )
            })
            .collect();
        if !used.is_empty() {
            for pod in listed(client, "Pod").await? {
                if uses(&pod, &used) {
                    self.stop(client, &pod).await?;
                }
            }
        }
        Ok(claims)
    }

    /// Scales down the owner of a pod; a pod without an owner is deleted.
    async fn stop(
        &mut self,
        client: &KubernetesClient,
        pod: &Value,
    ) -> Result<(), KubernetesError> {
        let mut child = pod.clone();
        let mut is_stopped = false;
        while let Some(owner) = owner(&child) {
            let Some(found) = client.get_ref(&owner).await? else {
                break;
            };
            // A ReplicaSet of a Deployment follows the Deployment.
            if owner.kind == "ReplicaSet" && self::owner(&found).is_some() {
                child = found;
                continue;
            }
            if let Some(patch) = idling(&found) {
                client.merge(&owner, None, &patch).await?;
                (self.said)(DrainProgress::ScaledDown(&owner));
                if !self.report.scaled_down.contains(&owner) {
                    self.report.scaled_down.push(owner.clone());
                }
            }
            // Its controller deletes the pod.
            if matches!(owner.kind.as_str(), "StatefulSet" | "Deployment") {
                return Ok(());
            }
            is_stopped |= matches!(owner.kind.as_str(), "ReplicaSet" | "Job");
            child = found;
        }
        if is_stopped {
            return Ok(());
        }
        // A DaemonSet or an operator creates it again; then it is reported as remaining.
        self.delete(client, pod).await
    }
}

fn owner(object: &Value) -> Option<ObjectRef> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    Some(ObjectRef {
        api_version: owner["apiVersion"].as_str()?.to_owned(),
        kind: owner["kind"].as_str()?.to_owned(),
        namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
        name: owner["name"].as_str()?.to_owned(),
    })
}

fn uses(pod: &Value, claims: &BTreeSet<(String, String)>) -> bool {
    let namespace = text(pod, "/metadata/namespace");
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    volumes.into_iter().flatten().any(|volume| {
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        claims.contains(&(namespace.clone(), claim))
    })
}

/// All objects of a kind; none if the cluster does not have the kind.
async fn listed(client: &KubernetesClient, kind: &str) -> Result<Vec<Value>, KubernetesError> {
    let resource = match client.resource(kind).await {
        Err(KubernetesError::UnknownKind { .. }) => return Ok(Vec::new()),
        found => found?,
    };
    client.list(&resource, ObjectFilter::default()).await
}

fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}
