//! Reads the context of an unhealthy object: its events, its pods, the ends of their logs.

use model::stage::kubernetes::ObjectRef;
use reqwest::Method;
use serde_json::Value;

use super::{KubernetesClient, KubernetesError, ObjectFilter, Request, escaped};

/// Limit for the last lines of a container's log.
const MOST_OF_A_LOG: usize = 64 << 10;

/// The last lines of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLog {
    pub pod: String,
    pub container: String,
    pub lines: Vec<String>,
}

impl KubernetesClient {
    /// Events about an object, oldest first: `TYPE REASON: MESSAGE (count)`.
    pub async fn events(
        &self,
        object: &ObjectRef,
        limit: usize,
    ) -> Result<Vec<String>, KubernetesError> {
        let resource = self.resource("events").await?;
        let fields = format!(
            "involvedObject.kind={},involvedObject.name={}",
            object.kind, object.name
        );
        let among = ObjectFilter {
            // Events of objects without a namespace are in `default`.
            namespace: Some(object.namespace.as_deref().unwrap_or("default")),
            fields: Some(&fields),
            labels: None,
        };
        let mut events = self.list(&resource, among).await?;
        events.sort_by_key(when);
        let skipped = events.len().saturating_sub(limit);
        Ok(events.iter().skip(skipped).map(event_line).collect())
    }

    /// The pods that match these labels, in one namespace.
    pub async fn pods(&self, namespace: &str, labels: &str) -> Result<Vec<Value>, KubernetesError> {
        let resource = self.resource("pods").await?;
        let among = ObjectFilter {
            namespace: Some(namespace),
            labels: Some(labels),
            fields: None,
        };
        self.list(&resource, among).await
    }

    /// The end of a container's log.
    pub async fn pod_log(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        lines: usize,
    ) -> Result<PodLog, KubernetesError> {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/log",
            escaped(namespace),
            escaped(pod)
        );
        let action = format!("read the log of Pod {namespace}/{pod}");
        let mut request = Request::new(action, Method::GET, path)
            .query("container", container)
            .query("tailLines", lines.to_string())
            .query("limitBytes", MOST_OF_A_LOG.to_string());
        request.accept = "*/*";
        let body = self.send(request).await?;
        let mut text = String::from_utf8_lossy(&body).into_owned();
        if body.len() >= MOST_OF_A_LOG {
            text.push('…'); // the server may cut inside a character
        }
        Ok(PodLog {
            pod: pod.to_owned(),
            container: container.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
        })
    }
}

fn when(event: &Value) -> String {
    let times = ["lastTimestamp", "eventTime", "firstTimestamp"];
    let time = times
        .iter()
        .find_map(|key| event.get(key).and_then(Value::as_str));
    time.unwrap_or_default().to_owned()
}

fn event_line(event: &Value) -> String {
    let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut line = format!(
        "{} {}: {}",
        text("type"),
        text("reason"),
        text("message").trim()
    );
    if let Some(count) = event
        .get("count")
        .and_then(Value::as_i64)
        .filter(|n| *n > 1)
    {
        line = format!("{line} ({count} times)");
    }
    line
}
