//! Facts as an object in a cluster: a ConfigMap or Secret for Flux substitution, or the Secret with which Argo CD
//! registers a cluster, with facts as its annotations and labels.
//!
//! Nested facts get one name: `azure.address` becomes `azure_address`, and lists become JSON. Not here: Git (`facts`),
//! and applying it (`control::stage::sinks`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::base::diagnostic::Location;
use crate::base::error::{ErrorKind, Explain, NextStep, advice};
use crate::base::exact_number;
use crate::stage::ResolvedBlock;
use crate::stage::kubernetes::{Kubeconfig, KubeconfigError};

/// A `sink` block for a cluster.
#[derive(Clone, Debug)]
pub struct Sink {
    pub kind: SinkKind,
    pub kubeconfig: Kubeconfig,
    pub namespace: String,
    pub name: String,
    pub at: Location,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkKind {
    ConfigMap,
    Secret,
    /// The cluster that the Secret describes; by default the one in which Argo CD itself runs.
    ArgocdCluster {
        server: Option<String>,
    },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkSettingError {
    #[error("sink `{kind}`: `{attribute}` has no value")]
    Missing {
        kind: String,
        attribute: &'static str,
    },
    #[error("`{kind}` is not a kind of sink in a cluster")]
    Kind { kind: String },
    #[error("sink `{kind}`")]
    Kubeconfig {
        kind: String,
        source: KubeconfigError,
    },
}

/// Why facts cannot be published there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkValuesError {
    #[error("cannot publish `{path}` to a {what}: it is sensitive")]
    Sensitive { path: String, what: &'static str },
    #[error("`{one}` and `{other}` would both have the name `{name}`")]
    SameName {
        one: String,
        other: String,
        name: String,
    },
    #[error("the facts exceed the limit of 1 MB for an object")]
    TooLong,
}

impl Explain for SinkValuesError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Sensitive { .. } => {
                vec![advice("use `sink \"secret\"`, or remove it from `values`")]
            }
            Self::SameName { .. } | Self::TooLong => Vec::new(),
        }
    }
}

const MAX_SIZE: usize = 1 << 20;
const IN_CLUSTER: &str = "https://kubernetes.default.svc";
const CLUSTER_LABEL: &str = "argocd.argoproj.io/secret-type";

impl Sink {
    pub fn read(block: &ResolvedBlock) -> Result<Self, SinkSettingError> {
        let text = |attribute: &'static str| {
            let value = block.attrs.get(attribute).and_then(Value::as_str);
            value.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let required = |attribute: &'static str| {
            text(attribute).ok_or_else(|| SinkSettingError::Missing {
                kind: block.kind.clone(),
                attribute,
            })
        };
        let kind = match block.kind.as_str() {
            "configmap" => SinkKind::ConfigMap,
            "secret" => SinkKind::Secret,
            "argocd-cluster" => SinkKind::ArgocdCluster {
                server: text("server"),
            },
            other => {
                return Err(SinkSettingError::Kind {
                    kind: other.to_owned(),
                });
            }
        };
        let kubeconfig = block.attrs.get("kubeconfig").unwrap_or(&Value::Null);
        Ok(Self {
            kubeconfig: Kubeconfig::from_value(kubeconfig).map_err(|source| {
                SinkSettingError::Kubeconfig {
                    kind: block.kind.clone(),
                    source,
                }
            })?,
            kind,
            namespace: required("namespace")?,
            name: required("name")?,
            at: block.at.clone(),
        })
    }

    /// The object with these facts. `sensitive` names facts by path; `encode` is base64.
    pub fn manifest(
        &self,
        facts: &Map<String, Value>,
        sensitive: &BTreeSet<String>,
        encode: impl Fn(&str) -> String,
    ) -> Result<Value, SinkValuesError> {
        let what = match self.kind {
            SinkKind::ConfigMap => Some("ConfigMap"),
            SinkKind::ArgocdCluster { .. } => Some("annotation"),
            SinkKind::Secret => None,
        };
        let flat = flatten(facts, sensitive, what)?;
        let encoded = |flat: BTreeMap<String, String>| -> BTreeMap<String, String> {
            let pairs = flat.into_iter();
            pairs.map(|(key, value)| (key, encode(&value))).collect()
        };
        let metadata = json!({"name": self.name, "namespace": self.namespace});
        Ok(match &self.kind {
            SinkKind::ConfigMap => json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": flat,
            }),
            SinkKind::Secret => json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": encoded(flat),
            }),
            SinkKind::ArgocdCluster { server } => {
                let mut labels: BTreeMap<String, String> = facts
                    .iter()
                    .filter_map(|(key, value)| Some((named(key), value.as_str()?.to_owned())))
                    .filter(|(_, value)| is_label(value))
                    .collect();
                labels.insert(CLUSTER_LABEL.to_owned(), "cluster".to_owned());
                let data = BTreeMap::from([
                    ("name".to_owned(), self.name.clone()),
                    (
                        "server".to_owned(),
                        server.clone().unwrap_or_else(|| IN_CLUSTER.to_owned()),
                    ),
                ]);
                json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {
                        "name": self.name, "namespace": self.namespace, "labels": labels, "annotations": flat,
                    },
                    "type": "Opaque",
                    "data": encoded(data),
                })
            }
        })
    }
}

/// Facts as texts with one name each.
fn flatten(
    facts: &Map<String, Value>,
    sensitive: &BTreeSet<String>,
    what: Option<&'static str>,
) -> Result<BTreeMap<String, String>, SinkValuesError> {
    let mut found: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut size = 0;
    let mut open: Vec<(String, &Value)> = facts
        .iter()
        .map(|(key, value)| (key.clone(), value))
        .collect();
    while let Some((path, value)) = open.pop() {
        let text = match value {
            _ if exact_number::digits(value).is_some() => exact_number::write(value),
            Value::Object(inner) if !inner.is_empty() => {
                let inner = inner.iter();
                open.extend(inner.map(|(key, value)| (format!("{path}.{key}"), value)));
                continue;
            }
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => exact_number::write(other),
        };
        if let (true, Some(what)) = (is_sensitive(&path, sensitive), what) {
            return Err(SinkValuesError::Sensitive { path, what });
        }
        let name = named(&path);
        size += name.len() + text.len();
        if size > MAX_SIZE {
            return Err(SinkValuesError::TooLong);
        }
        if let Some((other, _)) = found.get(&name) {
            let (one, other) = (path.min(other.clone()), other.clone());
            let other = if one == other {
                "another fact".to_owned()
            } else {
                other
            };
            return Err(SinkValuesError::SameName { one, other, name });
        }
        found.insert(name, (path, text));
    }
    let found = found.into_iter();
    Ok(found.map(|(name, (_, text))| (name, text)).collect())
}

/// Whether a fact is sensitive, is part of a sensitive one, or has a sensitive list item.
fn is_sensitive(path: &str, sensitive: &BTreeSet<String>) -> bool {
    let is_below = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    sensitive
        .iter()
        .any(|other| is_below(path, other) || is_below(other, path))
}

/// A name that Flux can substitute, and that is valid as an annotation key.
fn named(path: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    path.chars()
        .map(|letter| if plain(letter) { letter } else { '_' })
        .collect()
}

fn is_label(value: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let bytes = value.as_bytes();
    bytes.len() <= 63 && value.bytes().all(plain) && edge(bytes.first()) && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(kind: SinkKind) -> Sink {
        let config = "{current-context: a, contexts: [{name: a, context: {cluster: a}}], \
                      clusters: [{name: a, cluster: {server: 'https://a'}}]}";
        Sink {
            kind,
            kubeconfig: Kubeconfig::from_text(config).unwrap(),
            namespace: "ns".to_owned(),
            name: "facts".to_owned(),
            at: Location::default(),
        }
    }

    fn facts() -> Map<String, Value> {
        let facts = json!({"cluster_name": "prod", "azure": {"gateway-address": "192.0.2.1"}, "nodes": 3,
            "zones": ["a", "b"], "password": "marked-secret", "nothing": null});
        facts.as_object().unwrap().clone()
    }

    #[test]
    fn facts_have_names_that_flux_can_substitute() {
        let mut facts = facts();
        facts.remove("password");
        let made = sink(SinkKind::ConfigMap).manifest(&facts, &BTreeSet::new(), str::to_owned);
        assert_eq!(
            made.unwrap()["data"],
            json!({"azure_gateway_address": "192.0.2.1", "cluster_name": "prod", "nodes": "3", "zones": "[\"a\",\"b\"]"})
        );
        facts.insert("azure_gateway_address".to_owned(), "x".into());
        let err = sink(SinkKind::ConfigMap).manifest(&facts, &BTreeSet::new(), str::to_owned);
        assert_eq!(
            err.unwrap_err().to_string(),
            "`azure.gateway-address` and `azure_gateway_address` would both have the name `azure_gateway_address`"
        );
    }

    #[test]
    fn sensitive_facts_go_into_secrets_alone() {
        let sensitive = BTreeSet::from(["password".to_owned()]);
        let with =
            |kind: SinkKind| sink(kind).manifest(&facts(), &sensitive, |text| format!("<{text}>"));
        assert_eq!(
            with(SinkKind::Secret).unwrap()["data"]["password"],
            "<marked-secret>"
        );
        let err = with(SinkKind::ConfigMap).unwrap_err();
        assert_eq!(
            err.to_string(),
            "cannot publish `password` to a ConfigMap: it is sensitive"
        );
        assert!(with(SinkKind::ArgocdCluster { server: None }).is_err());
        let cases = [
            ("azure", "azure.gateway-address"),
            ("zones[1]", "zones"),
            ("zones.1", "zones"),
        ];
        for (named, refused) in cases {
            let sensitive = BTreeSet::from([named.to_owned()]);
            let mut facts = facts();
            facts.remove("password");
            let made = sink(SinkKind::ConfigMap).manifest(&facts, &sensitive, str::to_owned);
            let expected = SinkValuesError::Sensitive {
                path: refused.to_owned(),
                what: "ConfigMap",
            };
            assert_eq!(made.unwrap_err(), expected, "{named}");
        }
    }

    #[test]
    fn argo_cd_finds_the_cluster_by_label_and_reads_annotations() {
        let mut facts = facts();
        facts.remove("password");
        let kind = SinkKind::ArgocdCluster { server: None };
        let made = sink(kind)
            .manifest(&facts, &BTreeSet::new(), str::to_owned)
            .unwrap();
        assert_eq!(
            made["metadata"]["labels"],
            json!({"argocd.argoproj.io/secret-type": "cluster", "cluster_name": "prod"})
        );
        assert_eq!(
            made["metadata"]["annotations"]["azure_gateway_address"],
            "192.0.2.1"
        );
        assert_eq!(
            made["data"],
            json!({"name": "facts", "server": "https://kubernetes.default.svc"})
        );
    }
}
