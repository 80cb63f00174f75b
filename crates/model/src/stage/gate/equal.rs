//! `gate "equal"`: values from different sources are equal.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dns::folded;
use super::settings::{Reader, cut, plain};
use super::{CheckResult, Evidence, GateMismatch, ProbeQuery, ProbeQueryError, quoted};
use crate::base::exact_number;
use crate::base::secret::Secret;

#[derive(Clone, Debug, PartialEq)]
pub struct EqualGate {
    pub values: Vec<LabelledValue>,
    /// For `kubernetes()`.
    pub kubeconfig: Option<Secret>,
}

/// A value with a label.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledValue {
    pub label: String,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EqualEvidence {
    pub values: Vec<ValueEvidence>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValueEvidence {
    pub label: String,
    /// In the compared form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl EqualGate {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let label = |at: usize, value: &Value| match ProbeQuery::read(value) {
            Some(asked) => asked.label(),
            None => format!("value {}", at + 1),
        };
        let values: Vec<LabelledValue> = match reader.value("values") {
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(at, value)| LabelledValue {
                    label: label(at, value),
                    value: value.clone(),
                })
                .collect(),
            Some(value @ Value::Object(map)) if ProbeQuery::read(value).is_none() => map
                .iter()
                .map(|(label, value)| LabelledValue {
                    label: label.clone(),
                    value: value.clone(),
                })
                .collect(),
            _ => Vec::new(),
        };
        if values.len() < 2 {
            reader.wrong(
                "values",
                "must be a list or an object of at least two values",
            );
        }
        let kubeconfig = reader.document("kubeconfig");
        let asks = |value: &LabelledValue| {
            matches!(
                ProbeQuery::read(&value.value),
                Some(ProbeQuery::Kubernetes { .. })
            )
        };
        if kubeconfig.is_none() && values.iter().any(asks) {
            reader.wrong("kubeconfig", "is required with `kubernetes()`");
        }
        Self { values, kubeconfig }
    }

    /// The values that must be queried first.
    pub fn asked(&self) -> impl Iterator<Item = ProbeQuery> {
        self.values
            .iter()
            .filter_map(|one| ProbeQuery::read(&one.value))
    }

    /// `answers`: the results of the queries, in the same order.
    pub fn judge(&self, answers: Vec<Result<Value, ProbeQueryError>>) -> CheckResult {
        let mut answers = answers.into_iter();
        let values = self.values.iter().map(|one| {
            let value = match ProbeQuery::read(&one.value) {
                None => Ok(one.value.clone()),
                Some(_) => answers
                    .next()
                    .unwrap_or_else(|| Err(ProbeQueryError("it was not requested".to_owned()))),
            };
            let (value, missing) = match value {
                Ok(Value::Null) => (None, Some("null".to_owned())),
                // Empty values are equal, but prove nothing.
                Ok(value) if is_empty(&value) => (None, Some("empty".to_owned())),
                Ok(value) => (Some(compared(&value)), None),
                Err(ProbeQueryError(why)) => (None, Some(why)),
            };
            ValueEvidence {
                label: one.label.clone(),
                value,
                missing,
            }
        });
        let seen = EqualEvidence {
            values: values.collect(),
        };
        let misses = misses(&seen);
        CheckResult::judged(Evidence::Equal(seen), misses)
    }

    pub(super) fn look_further(&self) -> Vec<String> {
        let line = |asked: ProbeQuery| match asked {
            ProbeQuery::Dns { name, record } => {
                let name = name.replacen("*.", "any-label.", 1);
                format!("dig {} {}", quoted(&name), record.word())
            }
            ProbeQuery::Kubernetes { object, field } => {
                let parts: Vec<&str> = object.split('/').collect();
                match parts.as_slice() {
                    [kind, namespace, name] => format!(
                        "kubectl get {} {} -n {} -o jsonpath={}",
                        quoted(kind),
                        quoted(name),
                        quoted(namespace),
                        quoted(&format!("{{.{field}}}"))
                    ),
                    _ => format!("kubectl get {}", quoted(&object)),
                }
            }
        };
        self.asked().map(line).collect()
    }
}

/// The most frequent value is expected of the others; the first value if no two are equal.
fn misses(seen: &EqualEvidence) -> Vec<GateMismatch> {
    let known: Vec<&ValueEvidence> = seen
        .values
        .iter()
        .filter(|one| one.value.is_some())
        .collect();
    let followers = |one: &ValueEvidence| {
        known
            .iter()
            .filter(|other| other.value == one.value)
            .count()
    };
    // The first of the most frequent values.
    let most = known.iter().map(|one| followers(one)).max().unwrap_or(0);
    let Some(leader) = known.iter().find(|one| followers(one) == most) else {
        let missing = seen.values.iter().map(|one| {
            let why = one.missing.clone().unwrap_or_default();
            GateMismatch::new(&one.label, "a value", why)
        });
        return missing.collect();
    };
    let agreed: Vec<&str> = known
        .iter()
        .filter(|one| one.value == leader.value)
        .map(|one| one.label.as_str())
        .collect();
    let expected = leader.value.clone().unwrap_or_default();
    let expected = format!("{} ({})", cut(&expected), agreed.join(", "));
    let others = seen.values.iter().filter(|one| one.value != leader.value);
    let miss = |one: &ValueEvidence| {
        let value = one.value.as_deref().map(cut);
        let shown = value.or_else(|| one.missing.clone()).unwrap_or_default();
        GateMismatch::new(&one.label, &expected, shown)
    };
    others.map(miss).collect()
}

/// The normalised form for comparison: addresses and names as in DNS, lists unordered but with every entry, a list of
/// one element as that element.
fn compared(value: &Value) -> String {
    if let Some(text) = plain(value) {
        return alike(text.trim());
    }
    match value {
        Value::Array(items) => {
            let mut items: Vec<String> = items.iter().map(compared).collect();
            items.sort();
            items.join(", ")
        }
        other => exact_number::write(&sorted(other)),
    }
}

/// Addresses and host names as DNS compares them; any other text unchanged.
fn alike(text: &str) -> String {
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '*' | '_');
    let is_name = text.contains('.') && text.chars().all(in_name);
    if is_name || text.parse::<std::net::IpAddr>().is_ok() {
        folded(text)
    } else {
        text.to_owned()
    }
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries = entries.into_iter();
            Value::Object(
                entries
                    .map(|(key, value)| (key.clone(), sorted(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_addresses_and_names_are_alike_in_other_letters() {
        let same = |one: Value, other: Value| compared(&one) == compared(&other);
        assert!(same(json!("Edge.Example.io."), json!("edge.example.io")));
        assert!(same(json!("2001:DB8::1"), json!("2001:db8:0::1")));
        assert!(!same(json!("Prod-Role"), json!("prod-role")));
        assert!(same(json!(["a", "b"]), json!(["b", "a"])));
        assert!(!same(json!(["a", "b"]), json!(["b", "a", "a"])));
    }
}
