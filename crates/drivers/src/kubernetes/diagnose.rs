//! Context of an unhealthy object: its events, its pods, the ends of their logs, and what an Argo CD application
//! reports about its resources. Best effort: whatever cannot be read is left out.

use model::base::masking::cut;
use model::stage::kubernetes::ObjectRef;
use serde_json::Value;

use super::KubernetesClient;

const EVENTS: usize = 8;
const PODS: usize = 3;
const LOG_LINES: usize = 10;
const LINE: usize = 300;

impl KubernetesClient {
    /// Context as lines of text.
    pub async fn around(&self, object: &Value) -> Vec<String> {
        let Some(identity) = ObjectRef::of(object) else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        for event in self.events(&identity, EVENTS).await.unwrap_or_default() {
            lines.push(format!("event of {identity}: {event}"));
        }
        lines.extend(parts(object));
        if let (Some(namespace), Some(labels)) = (&identity.namespace, selector(object)) {
            let pods = self.pods(namespace, &labels).await.unwrap_or_default();
            let unwell = pods.iter().filter(|pod| !is_ready(pod));
            for pod in unwell.take(PODS) {
                lines.extend(self.pod(namespace, pod).await);
            }
        }
        lines.iter().map(|line| cut(line, LINE)).collect()
    }

    async fn pod(&self, namespace: &str, pod: &Value) -> Vec<String> {
        let name = text(pod, "/metadata/name");
        let mut lines = vec![format!("Pod {namespace}/{name}: {}", phase(pod))];
        if let Some(identity) = ObjectRef::of(pod) {
            for event in self.events(&identity, EVENTS).await.unwrap_or_default() {
                lines.push(format!("event of {identity}: {event}"));
            }
        }
        for status in containers(pod) {
            let container = text(status, "/name");
            if status.get("ready") == Some(&Value::Bool(true)) {
                continue;
            }
            lines.push(format!(
                "container {container}: {}",
                container_state(status)
            ));
            if let Ok(log) = self.pod_log(namespace, name, container, LOG_LINES).await {
                let end = log
                    .lines
                    .iter()
                    .map(|line| format!("  {container} | {line}"));
                lines.extend(end);
            }
        }
        lines
    }
}

/// The label selector of an object's pods.
fn selector(object: &Value) -> Option<String> {
    let labels = object
        .pointer("/spec/selector/matchLabels")
        .or_else(|| object.pointer("/spec/selector"))?
        .as_object()?;
    let pairs: Option<Vec<String>> = labels
        .iter()
        .map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    pairs
        .filter(|pairs| !pairs.is_empty())
        .map(|pairs| pairs.join(","))
}

/// The unhealthy resources of an Argo CD application.
fn parts(object: &Value) -> Vec<String> {
    let resources = object
        .pointer("/status/resources")
        .and_then(Value::as_array);
    let unwell = resources.into_iter().flatten().filter_map(|part| {
        let health = text(part, "/health/status");
        let sync = text(part, "/status");
        let is_well = ["", "Healthy"].contains(&health) && ["", "Synced"].contains(&sync);
        let message = text(part, "/health/message");
        (!is_well).then(|| {
            format!(
                "{} {}/{}: {sync} {health} {message}",
                text(part, "/kind"),
                text(part, "/namespace"),
                text(part, "/name"),
            )
            .trim_end()
            .to_owned()
        })
    });
    unwell.take(EVENTS).collect()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|entry| text(entry, "/type") == "Ready" && text(entry, "/status") == "True")
}

fn phase(pod: &Value) -> String {
    let mut said = text(pod, "/status/phase").to_owned();
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let reason = conditions
        .into_iter()
        .flatten()
        .filter(|entry| text(entry, "/status") == "False")
        .find_map(|entry| entry.get("message").and_then(Value::as_str));
    if let Some(reason) = reason {
        said = format!("{said}, {reason}");
    }
    said
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let of = |key: &str| {
        let statuses = pod.pointer(&format!("/status/{key}"));
        statuses.and_then(Value::as_array).into_iter().flatten()
    };
    of("initContainerStatuses").chain(of("containerStatuses"))
}

fn container_state(status: &Value) -> String {
    let mut said = Vec::new();
    for (word, key) in [
        ("waiting", "waiting"),
        ("ended", "terminated"),
        ("runs", "running"),
    ] {
        if let Some(state) = status.pointer(&format!("/state/{key}")) {
            let detail = [text(state, "/reason"), text(state, "/message")];
            let detail: Vec<&str> = detail.into_iter().filter(|text| !text.is_empty()).collect();
            said.push(
                format!("{word} {}", detail.join(": "))
                    .trim_end()
                    .to_owned(),
            );
        }
    }
    if let Some(count) = status
        .get("restartCount")
        .and_then(Value::as_i64)
        .filter(|n| *n > 0)
    {
        said.push(format!("restarted {count} times"));
    }
    said.join(", ")
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}
