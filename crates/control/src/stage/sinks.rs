//! One object in a cluster that contains facts: written, compared, withdrawn. Only terrane's fields are
//! written; a change to them by another manager stops the publication.
//!
//! Not here: what the object looks like (`model::stage::sink`), all sinks of a publication (`facts`).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drivers::kubernetes::{ApplyOptions, FIELD_MANAGER, KubernetesClient, KubernetesError};
use model::base::error::{ErrorKind, Explain, NextStep, advice};
use model::base::masking::Mask;
use model::stage::bootstrap::ObjectOutcome;
use model::stage::facts::{FieldDifference, FieldValue};
use model::stage::kubernetes::{ObjectRef, managers};
use model::stage::sink::{Sink, SinkKind, SinkValuesError};
use serde_json::{Map, Value, json};

use crate::stage::cluster::{ClusterContext, apply};

#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error(transparent)]
    Values(#[from] SinkValuesError),
    #[error("cannot reach the cluster of {object}")]
    Cluster {
        object: Box<ObjectRef>,
        source: Box<KubernetesError>,
    },
    #[error("{object} was changed by {}: {}", managers.join(", "), fields.join(", "))]
    Foreign {
        object: Box<ObjectRef>,
        managers: Vec<String>,
        fields: Vec<String>,
    },
}

impl Explain for SinkError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Values(_) | Self::Foreign { .. } => ErrorKind::Refused,
            Self::Cluster { .. } => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Values(err) => err.next_steps(),
            Self::Cluster { source, .. } => source.next_steps(),
            Self::Foreign { object, .. } => vec![advice(format!(
                "only terrane may write {object}: restore these fields, or take it over with a reason"
            ))],
        }
    }
}

/// How an object in a cluster differs from the facts.
#[derive(Clone, Debug, PartialEq)]
pub enum SinkDifference {
    /// The object does not exist.
    Missing,
    Field(FieldDifference),
}

/// Writes facts into the cluster. `sensitive` names facts by path; `take_over` overwrites changes by others.
pub async fn put(
    sink: &Sink,
    facts: &Map<String, Value>,
    sensitive: &BTreeSet<String>,
    take_over: bool,
    cluster: ClusterContext<'_>,
) -> Result<ObjectOutcome, SinkError> {
    let (object, mut manifest) = manifest(sink, facts, sensitive)?;
    let work = async {
        let client =
            KubernetesClient::new(sink.kubeconfig.clone(), cluster.env, cluster.source).await?;
        yield_connection(sink, &client, &object, &mut manifest).await?;
        apply::apply_one(&client, &manifest, take_over).await
    };
    let outcome = work.await.map_err(|err| unreached(&object, err, cluster))?;
    match outcome {
        ObjectOutcome::HandedOver { managers, fields } => Err(SinkError::Foreign {
            object: Box::new(object),
            managers,
            fields,
        }),
        other => Ok(other),
    }
}

/// What differs between facts and cluster.
pub async fn compare(
    sink: &Sink,
    facts: &Map<String, Value>,
    sensitive: &BTreeSet<String>,
    cluster: ClusterContext<'_>,
) -> Result<Vec<SinkDifference>, SinkError> {
    let (object, mut manifest) = manifest(sink, facts, sensitive)?;
    let work = async {
        let client =
            KubernetesClient::new(sink.kubeconfig.clone(), cluster.env, cluster.source).await?;
        yield_connection(sink, &client, &object, &mut manifest).await?;
        client.get_ref(&object).await
    };
    let live = work.await.map_err(|err| unreached(&object, err, cluster))?;
    let Some(live) = live else {
        return Ok(vec![SinkDifference::Missing]);
    };
    Ok(differences(&sink.kind, &manifest, &live))
}

/// Whether the object exists and has fields of terrane.
pub async fn is_there(sink: &Sink, cluster: ClusterContext<'_>) -> Result<bool, SinkError> {
    let (object, _) = manifest(sink, &Map::new(), &BTreeSet::new())?;
    let work = async {
        let client =
            KubernetesClient::new(sink.kubeconfig.clone(), cluster.env, cluster.source).await?;
        client.get_ref(&object).await
    };
    let live = work.await.map_err(|err| unreached(&object, err, cluster))?;
    let is_ours = |live: &Value| {
        let managers = managers(live);
        managers.iter().any(|it| it.name == FIELD_MANAGER)
    };
    Ok(live.as_ref().is_some_and(is_ours))
}

/// Withdraws facts: deletes the object, or only terrane's fields if another manager writes to it as well.
/// False if it has no fields of terrane.
pub async fn withdraw(sink: &Sink, cluster: ClusterContext<'_>) -> Result<bool, SinkError> {
    let (object, _) = manifest(sink, &Map::new(), &BTreeSet::new())?;
    let work = async {
        let client =
            KubernetesClient::new(sink.kubeconfig.clone(), cluster.env, cluster.source).await?;
        let Some(live) = client.get_ref(&object).await? else {
            return Ok(false);
        };
        let (ours, theirs): (Vec<_>, Vec<_>) = managers(&live)
            .into_iter()
            .partition(|manager| manager.name == FIELD_MANAGER);
        if ours.is_empty() {
            return Ok(false);
        }
        if theirs.is_empty() {
            return client.delete(&object).await;
        }
        // An apply without our fields removes them.
        let nothing = json!({
            "apiVersion": object.api_version,
            "kind": object.kind,
            "metadata": {"name": object.name, "namespace": object.namespace},
        });
        client.apply(&nothing, ApplyOptions::default()).await?;
        Ok(true)
    };
    work.await.map_err(|err| unreached(&object, err, cluster))
}

/// Masks secrets of the environment that a credential plugin may have printed.
fn unreached(
    object: &ObjectRef,
    mut err: KubernetesError,
    cluster: ClusterContext<'_>,
) -> SinkError {
    if let KubernetesError::PluginFailed { said, .. } = &mut err {
        *said = Mask::new(cluster.hidden).mask_text(said);
    }
    SinkError::Cluster {
        object: Box::new(object.clone()),
        source: Box::new(err),
    }
}

fn manifest(
    sink: &Sink,
    facts: &Map<String, Value>,
    sensitive: &BTreeSet<String>,
) -> Result<(ObjectRef, Value), SinkError> {
    let manifest = sink.manifest(facts, sensitive, |text| STANDARD.encode(text))?;
    let kind = match sink.kind {
        SinkKind::ConfigMap => "ConfigMap",
        SinkKind::Secret | SinkKind::ArgocdCluster { .. } => "Secret",
    };
    let object = ObjectRef {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: Some(sink.namespace.clone()),
        name: sink.name.clone(),
    };
    Ok((object, manifest))
}

/// If another manager added the cluster to Argo CD, its connection is left alone: only facts are written.
async fn yield_connection(
    sink: &Sink,
    client: &KubernetesClient,
    object: &ObjectRef,
    manifest: &mut Value,
) -> Result<(), KubernetesError> {
    if sink.kind != (SinkKind::ArgocdCluster { server: None }) {
        return Ok(());
    }
    let Some(live) = client.get_ref(object).await? else {
        return Ok(());
    };
    let has_other = managers(&live)
        .iter()
        .any(|manager| manager.name != FIELD_MANAGER);
    if let (true, Value::Object(manifest)) = (has_other, manifest) {
        manifest.shift_remove("data");
        manifest.shift_remove("type");
    }
    Ok(())
}

fn differences(kind: &SinkKind, manifest: &Value, live: &Value) -> Vec<SinkDifference> {
    let mut found = Vec::new();
    let mut differs = |field: String, published: FieldValue, would: FieldValue| {
        found.push(SinkDifference::Field(FieldDifference {
            field,
            published,
            would,
        }));
    };
    for (place, prefix) in [
        ("/data", ""),
        ("/metadata/annotations", "annotations."),
        ("/metadata/labels", "labels."),
    ] {
        // Values of a Secret are not shown.
        let is_hidden = place == "/data" && *kind != SinkKind::ConfigMap;
        let side = |value: Option<&Value>| match value {
            None => FieldValue::Absent,
            Some(_) if is_hidden => FieldValue::Hidden,
            Some(value) => FieldValue::Value(value.clone()),
        };
        let entries = |object: &Value| {
            let map = object.pointer(place).and_then(Value::as_object);
            map.cloned().unwrap_or_default()
        };
        let (wanted, seen) = (entries(manifest), entries(live));
        for (key, value) in &wanted {
            if seen.get(key) != Some(value) {
                let field = format!("{prefix}{key}");
                differs(field, side(seen.get(key)), side(Some(value)));
            }
        }
        // Others may add annotations and labels of their own.
        if place == "/data" && !wanted.is_empty() {
            for key in seen.keys().filter(|key| !wanted.contains_key(*key)) {
                differs(
                    format!("{prefix}{key}"),
                    side(seen.get(key)),
                    FieldValue::Absent,
                );
            }
        }
    }
    found
}
