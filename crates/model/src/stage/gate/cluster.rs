//! `gate "kubernetes"`, `"argocd"` and `"flux"`: objects of a cluster have the required state.
//!
//! Not here: querying the cluster and evaluating the result (`drivers::kubernetes`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::quoted;
use super::settings::Reader;
use crate::base::secret::Secret;

#[derive(Clone, Debug, PartialEq)]
pub struct KubernetesGate {
    /// As YAML or JSON.
    pub kubeconfig: Secret,
    /// `Deployment`, or `Certificate.cert-manager.io`.
    pub kind: String,
    pub name: String,
    pub namespace: Option<String>,
    pub want: ObjectRequirement,
}

/// The requirement for the object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectRequirement {
    /// The object exists.
    Present,
    Condition(String),
    Field {
        path: String,
        expect: Value,
    },
    /// A Gateway listens on this port, and its controller has programmed it.
    Listener(u16),
}

/// All applications, or all Flux objects, whose names match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentGate {
    pub kubeconfig: Secret,
    pub namespace: Option<String>,
    /// Globs; empty means all.
    pub names: Vec<String>,
}

/// What was read from a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterEvidence {
    /// Address of the API server.
    pub server: String,
    pub objects: Vec<ObjectEvidence>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectEvidence {
    /// `Deployment argocd/argocd-server`
    pub object: String,
    /// The relevant values: conditions by name, fields by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Value>,
    /// Context if a requirement is not met: events, pod statuses, ends of logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl KubernetesGate {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let kubeconfig = reader.required_document("kubeconfig");
        let condition = reader.text("condition");
        let field = reader.text("field");
        let expect = reader.value("expect").cloned();
        let listener = reader.port("listener");
        if listener.is_some() && (condition.is_some() || field.is_some()) {
            reader.wrong("listener", "cannot be combined with `condition` or `field`");
        }
        let want = match (condition, field, expect) {
            (None, None, None) => {
                listener.map_or(ObjectRequirement::Present, ObjectRequirement::Listener)
            }
            (Some(condition), None, None) => ObjectRequirement::Condition(condition),
            (None, Some(path), Some(expect)) => ObjectRequirement::Field { path, expect },
            (None, Some(_), None) => {
                reader.wrong("field", "requires `expect`");
                ObjectRequirement::Present
            }
            (None, None, Some(_)) => {
                reader.wrong("expect", "requires `field`");
                ObjectRequirement::Present
            }
            (Some(_), _, _) => {
                reader.wrong("condition", "and `field` exclude each other");
                ObjectRequirement::Present
            }
        };
        Self {
            kubeconfig,
            kind: reader.required_text("kind"),
            name: reader.required_text("name"),
            namespace: reader.text("namespace"),
            want,
        }
    }

    pub(super) fn look_further(&self) -> Vec<String> {
        let place = placed(self.namespace.as_deref());
        let kind = quoted(&self.kind);
        let name = quoted(&self.name);
        vec![
            format!("kubectl get {kind} {name}{place} -o yaml"),
            format!("kubectl describe {kind} {name}{place}"),
        ]
    }
}

impl AgentGate {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            kubeconfig: reader.required_document("kubeconfig"),
            namespace: reader.text("namespace"),
            names: reader.texts("names"),
        }
    }

    pub(super) fn look_further(&self, kinds: &str) -> Vec<String> {
        let place = match self.namespace.as_deref() {
            Some(namespace) => placed(Some(namespace)),
            None => " -A".to_owned(),
        };
        vec![format!("kubectl get {kinds}{place}")]
    }
}

fn placed(namespace: Option<&str>) -> String {
    namespace
        .map(|name| format!(" -n {}", quoted(name)))
        .unwrap_or_default()
}
