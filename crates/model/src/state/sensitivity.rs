//! Which parts of a state may be shown, by the engine's marks and by names that indicate a secret. Providers miss
//! marks, and states written by older engines have none.
//!
//! A mark is a tree of the value's shape, in which `true` marks a whole branch.

use serde_json::{Map, Value};

use super::resources::StateDocument;
use crate::base::masking::Mask;
use crate::base::secret::Secret;

/// Names whose values are secrets, by their last words: `db_password`, `clientSecret`.
const SECRETS: &[&[&str]] = &[
    &["password"],
    &["passwords"],
    &["passwd"],
    &["passphrase"],
    &["secret"],
    &["secrets"],
    &["token"],
    &["tokens"],
    &["credential"],
    &["credentials"],
    &["cookie"],
    &["kubeconfig"],
    &["talosconfig"],
    &["kube", "config"],
    &["kube", "admin", "config"],
    &["talos", "config"],
    &["connection", "string"],
    &["access", "key"],
    &["account", "key"],
    &["api", "key"],
    &["auth", "key"],
    &["encryption", "key"],
    &["license", "key"],
    &["master", "key"],
    &["private", "key"],
    &["private", "keys"],
    &["secret", "key"],
    &["shared", "key"],
    &["signing", "key"],
    &["client", "key"],
    &["bcrypt", "hash"],
];

/// Words after the name that only describe its encoding.
const FORMS: &[&str] = &[
    "base64",
    "binary",
    "ciphertext",
    "content",
    "data",
    "hash",
    "json",
    "openssh",
    "pem",
    "pkcs8",
    "plaintext",
    "raw",
    "string",
    "text",
    "value",
    "wo",
    "yaml",
];

/// Attributes that are secret because of their resource type.
const BY_TYPE: &[(&str, &[&str])] = &[
    ("aws_iam_access_key", &["ses_smtp_password_v4"]),
    ("aws_ssm_parameter", &["value"]),
    ("azurerm_key_vault_secret", &["value"]),
    ("github_actions_secret", &["plaintext_value"]),
    ("kubernetes_secret", &["data", "binary_data"]),
    ("kubernetes_secret_v1", &["data", "binary_data"]),
    ("random_password", &["result"]),
    ("vault_generic_secret", &["data", "data_json"]),
    ("vault_kv_secret", &["data", "data_json"]),
    ("vault_kv_secret_v2", &["data", "data_json"]),
];

/// Whether the name indicates a secret value.
pub fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    let mut words = words.as_slice();
    if words.last().is_some_and(|word| word.ends_with("password")) {
        return true; // `PGPASSWORD` has no word boundaries
    }
    loop {
        if SECRETS.iter().any(|secret| {
            let tail = words.len().checked_sub(secret.len());
            tail.is_some_and(|at| words[at..].iter().eq(secret.iter()))
        }) {
            return true;
        }
        match words {
            [rest @ .., last] if is_form(last) && !rest.is_empty() => words = rest,
            _ => return false,
        }
    }
}

/// The marks of a resource's attributes: the engine's (a list of paths), by name, and by type.
pub(super) fn marks(resource_type: &str, attributes: &Value, paths: &Value) -> Value {
    let mut marks = marks_by_name(attributes);
    let by_type = BY_TYPE.iter().find(|(name, _)| *name == resource_type);
    for name in by_type.map_or(&[][..], |(_, names)| names) {
        if attributes.get(name).is_some_and(can_be_secret) {
            if !marks.is_object() {
                marks = Value::Object(Map::new());
            }
            marks[*name] = Value::Bool(true);
        }
    }
    for path in paths.as_array().into_iter().flatten() {
        let steps = path.as_array().map_or(&[][..], Vec::as_slice);
        let name = steps.first().and_then(|step| step.get("value"));
        // An absent attribute has nothing to hide.
        if name
            .and_then(Value::as_str)
            .is_none_or(|name| attributes.get(name).is_some())
        {
            mark_path(&mut marks, attributes, steps);
        }
    }
    marks
}

/// The marks of an output that the engine does not mark as sensitive.
pub(super) fn output_marks(name: &str, value: &Value) -> Value {
    if is_secret_name(name) && can_be_secret(value) {
        Value::Bool(true)
    } else {
        marks_by_name(value)
    }
}

/// The branch of a mark tree below a key or an index.
pub(super) fn mark_below<'a>(marks: &'a Value, inner: Option<&'a Value>) -> &'a Value {
    const NOTHING: &Value = &Value::Null;
    if marks == &Value::Bool(true) {
        marks
    } else {
        inner.unwrap_or(NOTHING)
    }
}

impl StateDocument {
    /// A mask that finds the sensitive values of this state where they have no mark, inside other texts.
    pub fn mask(&self) -> Mask {
        Mask::new(&self.sensitive_values())
    }

    /// Every marked value.
    pub fn sensitive_values(&self) -> Vec<Secret> {
        let mut found = Vec::new();
        for instance in &self.instances {
            collect(&instance.attributes, &instance.sensitive, &mut found);
        }
        for output in self.outputs.values() {
            collect(&output.value, &output.sensitive, &mut found);
        }
        found
    }
}

fn collect(value: &Value, marks: &Value, found: &mut Vec<Secret>) {
    match value {
        Value::String(text) if marks == &Value::Bool(true) => found.push(Secret::new(text)),
        Value::Number(number) if marks == &Value::Bool(true) => {
            found.push(Secret::new(number.to_string()));
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, mark_below(marks, marks.get(index)), found);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                collect(field, mark_below(marks, marks.get(key)), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Number(_) => {}
    }
}

/// Steps in the engines' notation: `{"type":"get_attr","value":"a"}`, and for an index either its value or a typed one.
/// If a step does not match, everything above it is hidden.
fn mark_path(marks: &mut Value, value: &Value, steps: &[Value]) {
    if marks == &Value::Bool(true) {
        return;
    }
    let Some((step, rest)) = steps.split_first() else {
        *marks = Value::Bool(true);
        return;
    };
    let step = step.get("value").unwrap_or(&Value::Null);
    let step = step.get("value").unwrap_or(step);
    let index = step.as_u64().and_then(|index| usize::try_from(index).ok());
    match (value, step.as_str(), index) {
        (Value::Object(fields), Some(key), _) if fields.contains_key(key) => {
            if !marks.is_object() {
                *marks = Value::Object(Map::new());
            }
            mark_path(&mut marks[key], &fields[key], rest);
        }
        (Value::Array(items), _, Some(index)) if index < items.len() => {
            if !marks.is_array() {
                *marks = Value::Array(Vec::new());
            }
            if let Value::Array(marks) = marks {
                if marks.len() <= index {
                    marks.resize(index + 1, Value::Null);
                }
                mark_path(&mut marks[index], &items[index], rest);
            }
        }
        (Value::Null, ..) => {}
        _ => *marks = Value::Bool(true),
    }
}

fn marks_by_name(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut marks = Map::new();
            // Lists of name and value, such as environment variables.
            let named = ["name", "key"]
                .iter()
                .find_map(|key| fields.get(*key)?.as_str());
            let speaks = named.is_some_and(is_secret_name);
            for (key, field) in fields {
                let hidden = is_secret_name(key) || (speaks && key == "value");
                let mark = if hidden && can_be_secret(field) {
                    Value::Bool(true)
                } else {
                    marks_by_name(field)
                };
                if !mark.is_null() {
                    marks.insert(key.clone(), mark);
                }
            }
            if marks.is_empty() {
                Value::Null
            } else {
                Value::Object(marks)
            }
        }
        Value::Array(items) => {
            let marks: Vec<Value> = items.iter().map(marks_by_name).collect();
            if marks.iter().all(Value::is_null) {
                Value::Null
            } else {
                Value::Array(marks)
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Value::Null,
    }
}

fn can_be_secret(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(can_be_secret),
        Value::Object(fields) => fields.values().any(can_be_secret),
    }
}

fn is_form(word: &str) -> bool {
    FORMS.contains(&word) || word.bytes().all(|byte| byte.is_ascii_digit())
}

/// `clientSecret`, `client-secret` and `CLIENT_SECRET` are the same two words.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_is_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() {
            words.push(String::new());
            before_is_lower = false;
            continue;
        }
        if c.is_uppercase() && before_is_lower {
            words.push(String::new());
        }
        before_is_lower = c.is_lowercase() || c.is_ascii_digit();
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_speak() {
        let yes = [
            "password",
            "admin_password",
            "adminPassword",
            "PGPASSWORD",
            "client-secret",
            "token",
            "tokens",
            "private_key",
            "private_key_pem",
            "private_key_pem_pkcs8",
            "primary_access_key",
            "kube_config_raw",
            "kube_admin_config",
            "bcrypt_hash",
            "password_wo",
            "secret_2",
            "secret_string",
            "secret_binary",
            "secret_data",
        ];
        for name in yes {
            assert!(is_secret_name(name), "{name}");
        }
        let no = [
            "",
            "name",
            "secret_name",
            "secret_id",
            "password_length",
            "token_ttl",
            "token_type",
            "key",
            "public_key_pem",
            "keys",
            "value",
            "content",
            "api",
        ];
        for name in no {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn marks_come_from_paths_and_names() {
        let attributes = json!({
            "id": "a", "password": "p", "token": true, "secret": "",
            "env": [{"name": "X", "value": "1"}, {"name": "DB_PASSWORD", "value": "2"}],
            "nested": {"list": [{"a": 1}, {"a": 2}]},
        });
        let paths = json!([
            [{"type": "get_attr", "value": "nested"}, {"type": "get_attr", "value": "list"},
             {"type": "index", "value": {"value": 1, "type": "number"}}, {"type": "get_attr", "value": "a"}],
            [{"type": "get_attr", "value": "gone"}, {"type": "index", "value": "x"}],
        ]);
        assert_eq!(
            marks("t", &attributes, &paths),
            json!({
                "password": true,
                "env": [null, {"value": true}],
                "nested": {"list": [null, {"a": true}]},
            })
        );
        // An element of a set has no key, so the whole set is hidden.
        let set = json!([[{"type": "get_attr", "value": "env"}, {"type": "index", "value": {"name": "X"}}]]);
        assert_eq!(marks("t", &attributes, &set)["env"], json!(true));
        assert_eq!(marks("t", &attributes, &json!([[]])), json!(true));
        let generated = json!({"length": 8, "result": "r"});
        let nothing = json!([]);
        assert_eq!(
            marks("random_password", &generated, &nothing),
            json!({"result": true})
        );
        assert_eq!(marks("random_pet", &generated, &nothing), Value::Null);
        assert_eq!(output_marks("db_token", &json!("x")), json!(true));
        assert_eq!(
            output_marks("db", &json!({"token": "x"})),
            json!({"token": true})
        );
    }
}
