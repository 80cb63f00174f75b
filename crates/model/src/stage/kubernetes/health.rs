//! Whether an object reports that it is healthy: its conditions, the rollout of a workload, the status of Argo CD and
//! Flux objects. A status that is older than the object's `generation` does not count.

use serde_json::Value;

use crate::base::masking;

/// The reported health of an object, with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub is_well: bool,
    /// One line.
    pub seen: String,
}

impl Health {
    fn well(seen: impl Into<String>) -> Self {
        Self {
            is_well: true,
            seen: seen.into(),
        }
    }

    fn not(seen: impl Into<String>) -> Self {
        Self {
            is_well: false,
            seen: seen.into(),
        }
    }
}

/// Whether a condition holds. `Ready` must be `True`; another value is written `Stalled=False`.
pub fn condition(object: &Value, wanted: &str) -> Health {
    let (name, value) = wanted.split_once('=').unwrap_or((wanted, "True"));
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let Some(conditions) = conditions.filter(|all| !all.is_empty()) else {
        return Health::not("it has no conditions yet");
    };
    let text = |entry: &Value, key: &str| {
        let value = entry.get(key).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let Some(found) = conditions.iter().find(|entry| text(entry, "type") == name) else {
        let names: Vec<String> = conditions.iter().map(|entry| text(entry, "type")).collect();
        return Health::not(format!(
            "it has no condition `{name}`, but {}",
            names.join(", ")
        ));
    };
    let status = text(found, "status");
    let (reason, message) = (text(found, "reason"), text(found, "message"));
    let said = cut(&message);
    let seen = match (reason.as_str(), said.as_str()) {
        ("", "") => format!("{name}={status}"),
        (reason, "") => format!("{name}={status} ({reason})"),
        ("", said) => format!("{name}={status}: {said}"),
        (reason, said) => format!("{name}={status} ({reason}): {said}"),
    };
    let seen_generation = found
        .get("observedGeneration")
        .or_else(|| object.pointer("/status/observedGeneration"));
    if is_behind(object, seen_generation) {
        return Health::not(format!("{seen}, said of an older generation of the object"));
    }
    if status == value {
        Health::well(seen)
    } else {
        Health::not(seen)
    }
}

/// Whether a workload is rolled out. Kinds without a rollout count as healthy.
pub fn rollout(object: &Value) -> Health {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let kind = object
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let status = |key: &str| number(&format!("/status/{key}")).unwrap_or(0);
    let (wanted, updated, ready) = match kind {
        "Deployment" => (
            number("/spec/replicas").unwrap_or(1),
            status("updatedReplicas"),
            status("availableReplicas"),
        ),
        "StatefulSet" => (
            number("/spec/replicas").unwrap_or(1),
            status("updatedReplicas"),
            status("readyReplicas"),
        ),
        "DaemonSet" => (
            status("desiredNumberScheduled"),
            status("updatedNumberScheduled"),
            status("numberAvailable"),
        ),
        "Job" => return job(object),
        _ => return Health::well("it is there"),
    };
    let observed = object.pointer("/status/observedGeneration");
    if observed.is_none() || is_behind(object, observed) {
        return Health::not("its controller has not looked at it yet");
    }
    let seen = format!("{ready} of {wanted} ready, {updated} up to date");
    if updated >= wanted && ready >= wanted {
        Health::well(seen)
    } else {
        Health::not(seen)
    }
}

fn job(object: &Value) -> Health {
    let failed = condition(object, "Failed");
    if failed.is_well {
        return Health::not(failed.seen);
    }
    condition(object, "Complete")
}

/// Whether a Gateway listens on a port and its controller has programmed it.
pub fn listener(gateway: &Value, port: u16) -> Health {
    let list = |pointer: &str| {
        let found = gateway.pointer(pointer).and_then(Value::as_array);
        found.cloned().unwrap_or_default()
    };
    let declared = list("/spec/listeners");
    let named: Vec<&Value> = declared
        .iter()
        .filter(|listener| listener.get("port").and_then(Value::as_u64) == Some(port.into()))
        .filter_map(|listener| listener.get("name"))
        .collect();
    if named.is_empty() {
        let ports: Vec<String> = declared
            .iter()
            .filter_map(|listener| listener.get("port"))
            .map(ToString::to_string)
            .collect();
        if ports.is_empty() {
            return Health::not("it has no listeners");
        }
        return Health::not(format!("it listens on {}", ports.join(", ")));
    }
    let statuses = list("/status/listeners");
    let mut last = Health::not("its controller has said nothing of its listeners yet");
    for status in statuses
        .iter()
        .filter(|it| it.get("name").is_some_and(|name| named.contains(&name)))
    {
        // A listener has conditions like an object; the generation is the Gateway's.
        let as_object = serde_json::json!({"metadata": gateway.get("metadata"), "status": status});
        last = condition(&as_object, "Programmed");
        if last.is_well {
            return last;
        }
    }
    last
}

/// The health of an Argo CD or Flux object.
pub fn agent_health(object: &Value) -> Health {
    let kind = object
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    match kind {
        "Application" => application(object),
        "ApplicationSet" => application_set(object),
        // It has no status of its own.
        "AppProject" => Health::well("it is there"),
        _ => flux(object),
    }
}

fn application(object: &Value) -> Health {
    let text = |pointer: &str| {
        let value = object.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or("Unknown").to_owned()
    };
    let (sync, health) = (text("/status/sync/status"), text("/status/health/status"));
    let mut seen = format!("{sync}, {health}");
    let phase = object.pointer("/status/operationState/phase");
    let message = object
        .pointer("/status/operationState/message")
        .and_then(Value::as_str);
    if let (Some("Failed" | "Error"), Some(message)) = (phase.and_then(Value::as_str), message) {
        seen = format!("{seen}: {}", cut(message));
    } else if let Some(error) = first_error(object) {
        seen = format!("{seen}: {error}");
    }
    if sync == "Synced" && health == "Healthy" {
        Health::well(seen)
    } else {
        Health::not(seen)
    }
}

/// Conditions of Applications have no status: their presence is the message.
fn first_error(object: &Value) -> Option<String> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find_map(|entry| {
        let kind = entry.get("type")?.as_str()?;
        let message = entry.get("message")?.as_str()?;
        kind.ends_with("Error")
            .then(|| format!("{kind}: {}", cut(message)))
    })
}

fn application_set(object: &Value) -> Health {
    let failed = condition(object, "ErrorOccurred");
    if failed.is_well {
        return Health::not(failed.seen);
    }
    condition(object, "ResourcesUpToDate")
}

fn flux(object: &Value) -> Health {
    if object.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
        return Health::not("it is suspended");
    }
    condition(object, "Ready")
}

fn is_behind(object: &Value, seen: Option<&Value>) -> bool {
    let generation = object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64);
    match (generation, seen.and_then(Value::as_i64)) {
        (Some(generation), Some(seen)) => seen < generation,
        _ => false,
    }
}

/// Messages of controllers can be pages long.
fn cut(text: &str) -> String {
    masking::cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), 300)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(health: &Health, is_well: bool, seen: &str) {
        assert_eq!((health.is_well, health.seen.as_str()), (is_well, seen));
    }

    #[test]
    fn conditions_count_for_the_generation_they_saw() {
        let object = |seen: i64, status: &str| {
            json!({"metadata": {"generation": 2}, "status": {"observedGeneration": seen, "conditions": [
                {"type": "Ready", "status": status, "reason": "Why", "message": "because\n so"}]}})
        };
        let ready = |seen, status| condition(&object(seen, status), "Ready");
        check(&ready(2, "True"), true, "Ready=True (Why): because so");
        check(&ready(2, "False"), false, "Ready=False (Why): because so");
        check(
            &ready(1, "True"),
            false,
            "Ready=True (Why): because so, said of an older generation of the object",
        );
        check(
            &condition(&object(2, "False"), "Ready=False"),
            true,
            "Ready=False (Why): because so",
        );
        check(
            &condition(&object(2, "True"), "Synced"),
            false,
            "it has no condition `Synced`, but Ready",
        );
        check(
            &condition(&json!({}), "Ready"),
            false,
            "it has no conditions yet",
        );
    }

    #[test]
    fn workloads_are_well_when_rolled_out() {
        let deployment = |updated: i64, available: i64| {
            json!({"kind": "Deployment", "metadata": {"generation": 1}, "spec": {"replicas": 2},
                "status": {"observedGeneration": 1, "updatedReplicas": updated, "availableReplicas": available}})
        };
        check(
            &rollout(&deployment(2, 2)),
            true,
            "2 of 2 ready, 2 up to date",
        );
        check(
            &rollout(&deployment(1, 2)),
            false,
            "2 of 2 ready, 1 up to date",
        );
        let unseen = json!({"kind": "DaemonSet", "metadata": {"generation": 1}, "status": {}});
        check(
            &rollout(&unseen),
            false,
            "its controller has not looked at it yet",
        );
        check(&rollout(&json!({"kind": "ConfigMap"})), true, "it is there");
        let job = json!({"kind": "Job", "status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        check(&rollout(&job), false, "Failed=True");
    }

    #[test]
    fn a_gateway_listens_when_its_controller_says_so() {
        let gateway = |status: &str| {
            json!({"metadata": {"generation": 1}, "spec": {"listeners": [{"name": "web", "port": 80}, {"name": "tls", "port": 443}]},
                "status": {"listeners": [{"name": "tls", "conditions": [{"type": "Programmed", "status": status, "observedGeneration": 1}]}]}})
        };
        check(&listener(&gateway("True"), 443), true, "Programmed=True");
        check(&listener(&gateway("False"), 443), false, "Programmed=False");
        check(
            &listener(&gateway("True"), 8443),
            false,
            "it listens on 80, 443",
        );
        check(
            &listener(&gateway("True"), 80),
            false,
            "its controller has said nothing of its listeners yet",
        );
    }

    #[test]
    fn argo_cd_and_flux_say_how_they_are() {
        let application = json!({"kind": "Application", "status": {"sync": {"status": "OutOfSync"},
            "health": {"status": "Degraded"}, "conditions": [{"type": "ComparisonError", "message": "no repo"}]}});
        check(
            &agent_health(&application),
            false,
            "OutOfSync, Degraded: ComparisonError: no repo",
        );
        let set = |error: &str, current: &str| {
            json!({"kind": "ApplicationSet", "status": {"conditions": [
                {"type": "ErrorOccurred", "status": error, "message": "no cluster"},
                {"type": "ResourcesUpToDate", "status": current}]}})
        };
        check(
            &agent_health(&set("False", "True")),
            true,
            "ResourcesUpToDate=True",
        );
        check(
            &agent_health(&set("True", "True")),
            false,
            "ErrorOccurred=True: no cluster",
        );
        let suspended = json!({"kind": "Kustomization", "spec": {"suspend": true}, "status": {"conditions": [
            {"type": "Ready", "status": "True"}]}});
        check(&agent_health(&suspended), false, "it is suspended");
    }
}
