//! Discovers the kinds of a cluster and the paths of their objects.
//!
//! One request reads all kinds; a server too old for that is queried group by group.

use model::stage::kubernetes::ObjectRef;
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{KubernetesClient, KubernetesError, Request, escaped};

/// One kind in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
    singular: String,
    short: Vec<String>,
}

impl ApiResource {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `KIND.GROUP`, which identifies one of several kinds of the same name.
    pub fn full_name(&self) -> String {
        if self.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// The path of an object, or of all objects.
    pub(super) fn path(
        &self,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<String, KubernetesError> {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", escaped(&self.version))
        } else {
            format!("/apis/{}/{}", escaped(&self.group), escaped(&self.version))
        };
        if self.namespaced {
            match (namespace, name) {
                (Some(namespace), _) => path = format!("{path}/namespaces/{}", escaped(namespace)),
                // A list may span all namespaces, an object may not.
                (None, None) => {}
                (None, Some(_)) => {
                    return Err(KubernetesError::NoNamespace {
                        kind: self.kind.clone(),
                    });
                }
            }
        }
        path = format!("{path}/{}", escaped(&self.plural));
        if let Some(name) = name {
            path = format!("{path}/{}", escaped(name));
        }
        Ok(path)
    }

    fn is_called(&self, word: &str) -> bool {
        let names = [&self.kind, &self.plural, &self.singular];
        let mut names = names.into_iter().chain(&self.short);
        names.any(|name| name.eq_ignore_ascii_case(word))
    }
}

const ALL: &str = "*";

impl KubernetesClient {
    /// The kind of an object, by its `apiVersion` and kind.
    pub async fn resource_of(&self, object: &ObjectRef) -> Result<ApiResource, KubernetesError> {
        let of = |known: &[ApiResource]| {
            let mut known = known.iter();
            known.find(|found| found.kind == object.kind).cloned()
        };
        let mut known = self.known.lock().await;
        if let Some(found) = known.get(&object.api_version).and_then(|known| of(known)) {
            return Ok(found);
        }
        let listed = self.group_version(&object.api_version).await?;
        let found = of(&listed);
        known.insert(object.api_version.clone(), listed);
        found.ok_or_else(|| KubernetesError::unknown(object))
    }

    /// A kind by a name that a person writes: `Service`, `deployments`, `Gateway.gateway.networking.k8s.io`,
    /// `Certificate.v1.cert-manager.io`.
    pub async fn resource(&self, name: &str) -> Result<ApiResource, KubernetesError> {
        let (word, rest) = name.split_once('.').unwrap_or((name, ""));
        let mut known = self.known.lock().await;
        let matching = |known: &[ApiResource]| {
            let found = known.iter().filter(|found| {
                let in_group = rest.is_empty()
                    || found.group == rest
                    || format!("{}.{}", found.version, found.group) == rest;
                found.is_called(word) && in_group
            });
            found.cloned().collect::<Vec<_>>()
        };
        let mut found = known.get(ALL).map(|all| matching(all)).unwrap_or_default();
        if found.is_empty() {
            // Look again: the kind may have been installed since.
            let all = self.all_kinds().await?;
            found = matching(&all);
            known.insert(ALL.to_owned(), all);
        }
        drop(known);
        // Each group lists its preferred version first.
        found.dedup_by(|next, first| next.group == first.group && next.kind == first.kind);
        match found.len() {
            0 => Err(KubernetesError::UnknownKind {
                kind: name.to_owned(),
            }),
            1 => Ok(found.remove(0)),
            // `Service` or `Event` means the kind of the core group.
            _ => match found.iter().position(|kind| kind.group.is_empty()) {
                Some(core) => Ok(found.swap_remove(core)),
                None => Err(KubernetesError::Ambiguous {
                    kind: name.to_owned(),
                    groups: found.iter().map(ApiResource::full_name).collect(),
                }),
            },
        }
    }

    /// The kinds of one version; every server supports this request.
    async fn group_version(&self, api_version: &str) -> Result<Vec<ApiResource>, KubernetesError> {
        let path = match api_version.split_once('/') {
            None => format!("/api/{}", escaped(api_version)),
            Some((group, version)) => format!("/apis/{}/{}", escaped(group), escaped(version)),
        };
        let action = format!("ask which kinds `{api_version}` has");
        let answer = match self
            .send_json(Request::new(action, Method::GET, path))
            .await
        {
            Err(KubernetesError::Status { code: 404, .. }) => return Ok(Vec::new()),
            answer => answer?,
        };
        let listed: ResourceList =
            serde_json::from_value(answer).map_err(|_| KubernetesError::Answer {
                action: format!("ask which kinds `{api_version}` has"),
            })?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let own = listed.resources.into_iter();
        Ok(own
            .filter(|entry| !entry.name.contains('/'))
            .map(|entry| ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: entry.kind,
                plural: entry.name,
                namespaced: entry.namespaced,
                singular: entry.singular_name,
                short: entry.short_names,
            })
            .collect())
    }

    async fn all_kinds(&self) -> Result<Vec<ApiResource>, KubernetesError> {
        const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
             application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        let mut found = Vec::new();
        for path in ["/api", "/apis"] {
            let action = "ask which kinds the cluster has".to_owned();
            let mut request = Request::new(action, Method::GET, path.to_owned());
            request.accept = AGGREGATED;
            let answer = self.send_json(request).await?;
            if answer.get("kind").and_then(Value::as_str) == Some("APIGroupDiscoveryList") {
                found.extend(aggregated(answer));
                continue;
            }
            for api_version in preferred(&answer) {
                found.extend(self.group_version(&api_version).await?);
            }
        }
        Ok(found)
    }
}

/// The versions to query, if the server answers with a list of groups.
fn preferred(answer: &Value) -> Vec<String> {
    if let Some(core) = answer.get("versions").and_then(Value::as_array) {
        return core
            .iter()
            .filter_map(|version| version.as_str().map(str::to_owned))
            .collect();
    }
    let groups = answer.get("groups").and_then(Value::as_array);
    let preferred = groups.into_iter().flatten().filter_map(|group| {
        let version = group.pointer("/preferredVersion/groupVersion")?;
        version.as_str().map(str::to_owned)
    });
    preferred.collect()
}

fn aggregated(answer: Value) -> Vec<ApiResource> {
    let read: GroupList = serde_json::from_value(answer).unwrap_or_default();
    let mut found = Vec::new();
    for group in read.items {
        for version in group.versions {
            for entry in version.resources {
                found.push(ApiResource {
                    group: group.metadata.name.clone(),
                    version: version.version.clone(),
                    kind: entry.response_kind.kind,
                    plural: entry.resource,
                    namespaced: entry.scope == "Namespaced",
                    singular: entry.singular_resource,
                    short: entry.short_names,
                });
            }
        }
    }
    found
}

#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<ResourceEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceEntry {
    name: String,
    #[serde(default)]
    singular_name: String,
    namespaced: bool,
    kind: String,
    #[serde(default)]
    short_names: Vec<String>,
}

#[derive(Default, Deserialize)]
struct GroupList {
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupName,
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Default, Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
    #[serde(default)]
    resources: Vec<GroupResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupResource {
    resource: String,
    response_kind: ResponseKind,
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    short_names: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    kind: String,
}
