//! A client for the Kubernetes API: discover kinds, read, list, apply, patch, delete.
//!
//! Objects are plain JSON, because each cluster defines its own kinds
//! ([why](../../../docs/decisions/0033-own-kubernetes-client.md)). Every answer is limited in time and size.
//! Errors about a `Secret` name only its fields, because a server quotes the values that it refuses.
//!
//! Not here: what is applied and in which order (`control`), whether an object is healthy (`model::stage::kubernetes`).

mod connect;
mod diagnose;
mod discovery;
mod error;
mod observe;
mod plugin;
mod pods;
mod release;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use model::base::secret::Secret;
use model::stage::kubernetes::ObjectRef;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

pub use discovery::ApiResource;
pub use error::{Conflict, KubernetesError};
pub use observe::{AgentObjects, ClusterCheck, ClusterClients, ObjectCheck, ObjectCondition};
pub use pods::PodLog;
pub use release::{FetchManifestError, fetch_manifest};

use connect::Connection;

/// The field manager under which the server records our fields.
pub const FIELD_MANAGER: &str = "terrane";

/// An object may have 1.5 MB, plus its managed fields.
const MAX_ANSWER: usize = 8 << 20;
/// Objects per page of a list, and the maximum number of pages.
const PAGE: usize = 100;
const MAX_PAGES: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to one cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KubernetesClient {
    connection: Arc<Connection>,
    known: Arc<Mutex<HashMap<String, Vec<ApiResource>>>>,
    max_answer: usize,
}

/// Options of a server-side apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Only return the result, without saving it.
    pub dry_run: bool,
    /// Take ownership of fields that other managers own.
    pub force: bool,
}

/// Which objects of a kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectFilter<'a> {
    /// `None`: all namespaces.
    pub namespace: Option<&'a str>,
    pub labels: Option<&'a str>,
    pub fields: Option<&'a str>,
}

struct Request<'a> {
    /// The action, as error messages name it.
    action: String,
    method: Method,
    path: String,
    query: Vec<(&'a str, String)>,
    content_type: &'static str,
    accept: &'static str,
    body: Option<Vec<u8>>,
    /// An error of this request may quote a secret.
    is_secret: bool,
}

impl<'a> Request<'a> {
    fn new(action: String, method: Method, path: String) -> Self {
        Self {
            action,
            method,
            path,
            query: Vec::new(),
            content_type: "application/json",
            accept: "application/json",
            body: None,
            is_secret: false,
        }
    }

    fn query(mut self, name: &'a str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    fn body(mut self, content_type: &'static str, body: &Value) -> Self {
        self.content_type = content_type;
        self.body = Some(body.to_string().into_bytes());
        self
    }

    fn about(mut self, kind: &str) -> Self {
        self.is_secret = kind == "Secret";
        self
    }
}

impl KubernetesClient {
    /// The same cluster with another limit on the size of an answer.
    #[must_use]
    pub fn with_limit(&self, max_answer: usize) -> Self {
        Self {
            max_answer,
            ..self.clone()
        }
    }

    pub fn server(&self) -> &str {
        self.connection.server()
    }

    /// The error for a timeout that was spent waiting for a credential plugin; `None` if the server was the cause.
    pub fn hung_plugin(&self, after: Duration) -> Option<KubernetesError> {
        self.connection.hung_plugin(after)
    }

    /// Checks that the server is ready and returns its version.
    pub async fn version(&self) -> Result<String, KubernetesError> {
        let ready = Request::new(
            "ask whether the cluster is ready".to_owned(),
            Method::GET,
            "/readyz".to_owned(),
        );
        match self.send(ready).await {
            Ok(_) => {}
            // Some users may not read this endpoint; a refusal still shows a working server.
            Err(KubernetesError::Status {
                code: 401 | 403 | 404,
                ..
            }) => {}
            Err(err) => return Err(err),
        }
        let request = Request::new(
            "ask for the version of the cluster".to_owned(),
            Method::GET,
            "/version".to_owned(),
        );
        let answer = self.send_json(request).await?;
        let version = answer.get("gitVersion").and_then(Value::as_str);
        Ok(version.unwrap_or("an unknown version").to_owned())
    }

    /// `None` if there is no such object.
    pub async fn get(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, KubernetesError> {
        let path = resource.path(namespace, Some(name))?;
        let action = format!("read {}", shown(resource, namespace, name));
        let request = Request::new(action, Method::GET, path).about(&resource.kind);
        found(self.send_json(request).await)
    }

    /// Like [`KubernetesClient::get`], for an object that a manifest names. `None` also if its kind is unknown.
    pub async fn get_ref(&self, object: &ObjectRef) -> Result<Option<Value>, KubernetesError> {
        let resource = match self.resource_of(object).await {
            Err(KubernetesError::UnknownKind { .. }) => return Ok(None),
            found => found?,
        };
        self.get(&resource, object.namespace.as_deref(), &object.name)
            .await
    }

    /// All objects of a kind, page by page. Pages shrink if objects are large.
    pub async fn list(
        &self,
        resource: &ApiResource,
        among: ObjectFilter<'_>,
    ) -> Result<Vec<Value>, KubernetesError> {
        let mut found = Vec::new();
        let (mut limit, mut next) = (PAGE, None::<String>);
        for _ in 0..MAX_PAGES {
            let action = format!("list {}", resource.plural);
            let path = resource.path(among.namespace, None)?;
            let mut request = Request::new(action, Method::GET, path)
                .about(&resource.kind)
                .query("limit", limit.to_string());
            let words = [
                ("continue", next.as_deref()),
                ("labelSelector", among.labels),
                ("fieldSelector", among.fields),
            ];
            for (name, value) in words {
                if let Some(value) = value {
                    request = request.query(name, value);
                }
            }
            let mut page = match self.send_json(request).await {
                Err(KubernetesError::TooLong { .. }) if limit > 1 => {
                    limit = (limit / 10).max(1);
                    continue;
                }
                page => page?,
            };
            let token = page
                .pointer("/metadata/continue")
                .and_then(Value::as_str)
                .filter(|token| !token.is_empty());
            next = token.map(str::to_owned);
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                found.extend(items.into_iter().map(|item| named(item, resource)));
            }
            if next.is_none() {
                return Ok(found);
            }
        }
        Err(KubernetesError::TooLong {
            action: format!("list {}", resource.plural),
            limit: MAX_PAGES * PAGE,
        })
    }

    /// Server-side apply as [`FIELD_MANAGER`]. A field owned by another manager gives a
    /// [`KubernetesError::Conflict`].
    pub async fn apply(&self, object: &Value, how: ApplyOptions) -> Result<Value, KubernetesError> {
        let identity = identity(object)?;
        let resource = self.resource_of(&identity).await?;
        let path = resource.path(identity.namespace.as_deref(), Some(&identity.name))?;
        let mut request = Request::new(format!("apply {identity}"), Method::PATCH, path)
            .about(&identity.kind)
            .query("fieldManager", FIELD_MANAGER)
            .query("force", how.force.to_string())
            .body("application/apply-patch+yaml", object);
        if how.dry_run {
            request = request.query("dryRun", "All");
        }
        self.send_json(request).await
    }

    /// A merge patch: adds or replaces fields, or removes them with null.
    pub async fn merge(
        &self,
        object: &ObjectRef,
        subresource: Option<&str>,
        patch: &Value,
    ) -> Result<Value, KubernetesError> {
        self.patch(object, subresource, "application/merge-patch+json", patch)
            .await
    }

    /// A JSON patch: all of its operations are done, or none.
    pub async fn patch_json(
        &self,
        object: &ObjectRef,
        operations: &Value,
    ) -> Result<Value, KubernetesError> {
        self.patch(object, None, "application/json-patch+json", operations)
            .await
    }

    async fn patch(
        &self,
        object: &ObjectRef,
        subresource: Option<&str>,
        content_type: &'static str,
        patch: &Value,
    ) -> Result<Value, KubernetesError> {
        let resource = self.resource_of(object).await?;
        let mut path = resource.path(object.namespace.as_deref(), Some(&object.name))?;
        if let Some(subresource) = subresource {
            path = format!("{path}/{subresource}");
        }
        let request = Request::new(format!("change {object}"), Method::PATCH, path)
            .about(&object.kind)
            .query("fieldManager", FIELD_MANAGER)
            .body(content_type, patch);
        self.send_json(request).await
    }

    /// Returns whether the object existed. Objects that it owns are deleted in the background.
    pub async fn delete(&self, object: &ObjectRef) -> Result<bool, KubernetesError> {
        let resource = self.resource_of(object).await?;
        let path = resource.path(object.namespace.as_deref(), Some(&object.name))?;
        let request = Request::new(format!("delete {object}"), Method::DELETE, path)
            .about(&object.kind)
            .body(
                "application/json",
                &json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}),
            );
        Ok(found(self.send_json(request).await)?.is_some())
    }

    async fn send_json(&self, request: Request<'_>) -> Result<Value, KubernetesError> {
        let action = request.action.clone();
        let body = self.send(request).await?;
        // A parser's error may quote the secret.
        serde_json::from_slice(&body).map_err(|_| KubernetesError::Answer { action })
    }

    async fn send(&self, request: Request<'_>) -> Result<Vec<u8>, KubernetesError> {
        let first = self.send_once(&request, false).await;
        match first {
            // A plugin's credential may have been revoked before it expired.
            Err(KubernetesError::Status { code: 401, .. }) if self.connection.has_plugin() => {
                self.send_once(&request, true).await
            }
            other => other,
        }
    }

    async fn send_once(
        &self,
        request: &Request<'_>,
        anew: bool,
    ) -> Result<Vec<u8>, KubernetesError> {
        let (client, token) = self.connection.ready(anew).await?;
        let mut address = format!("{}{}", self.connection.address(), request.path);
        for (index, (name, value)) in request.query.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            address = format!("{address}{mark}{name}={}", escaped(value));
        }
        let mut call = client
            .request(request.method.clone(), address)
            .header("Accept", request.accept);
        if let Some(host) = self.connection.host_header() {
            call = call.header("Host", host);
        }
        if let Some(token) = token.as_ref().map(Secret::expose) {
            call = call.bearer_auth(token);
        }
        if let Some(body) = &request.body {
            call = call
                .header("Content-Type", request.content_type)
                .body(body.clone());
        }
        let failed = |source: reqwest::Error| KubernetesError::Send {
            action: request.action.clone(),
            server: self.connection.server().to_owned(),
            source: source.without_url(),
        };
        let mut answer = call.send().await.map_err(failed)?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(failed)? {
            if body.len() + part.len() > self.max_answer {
                return Err(KubernetesError::TooLong {
                    action: request.action.clone(),
                    limit: self.max_answer,
                });
            }
            body.extend_from_slice(&part);
        }
        if status.is_success() {
            return Ok(body);
        }
        Err(error::refused(
            &request.action,
            status.as_u16(),
            &body,
            request.is_secret,
        ))
    }
}

fn identity(object: &Value) -> Result<ObjectRef, KubernetesError> {
    ObjectRef::of(object).ok_or(KubernetesError::NoObject)
}

fn found(answer: Result<Value, KubernetesError>) -> Result<Option<Value>, KubernetesError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(KubernetesError::Status { code: 404, .. }) => Ok(None),
        Err(err) => Err(err),
    }
}

/// Items of a list lack `apiVersion` and `kind`.
fn named(mut item: Value, resource: &ApiResource) -> Value {
    if let Value::Object(item) = &mut item {
        item.entry("apiVersion")
            .or_insert_with(|| resource.api_version().into());
        item.entry("kind")
            .or_insert_with(|| resource.kind.clone().into());
    }
    item
}

fn shown(resource: &ApiResource, namespace: Option<&str>, name: &str) -> String {
    match namespace.filter(|_| resource.namespaced) {
        Some(namespace) => format!("{} {namespace}/{name}", resource.kind),
        None => format!("{} {name}", resource.kind),
    }
}

/// Percent-encodes a text for a path or a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| match byte {
        byte if plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
