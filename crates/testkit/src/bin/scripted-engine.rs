//! A stand-in for an engine, for tests of what terrane does around one. It reads `script.json` in its directory, keeps
//! its state where terrane tells it to, and speaks the engine's formats: events, plan JSON, state version 4.
//!
//! ```json
//! {"resources": {"a": "1", "b": "${var.name}"}, "outputs": {"id": "@a", "name": "${var.name}"}, "sensitive": ["name"]}
//! ```
//!
//! A resource has a value; another value is an update, `!` before it a replacement. `@a` is the id of a resource, which is
//! unknown until it exists. A variable that no file has is unknown. Faults: `plan_error` and `apply_error_at` (a
//! resource) fail, `crash_at` ends the process inside an apply, `drift` is what a resource became outside.

#![expect(clippy::print_stdout, reason = "an engine's output")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;

use base64::Engine as _;
use serde_json::{Map, Value, json};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("version") => {
            println!("{}", json!({"terraform_version": "1.11.14"}));
            Ok(0)
        }
        Some("init") => Ok(0),
        Some("plan") => plan(&words),
        Some("show") => show(&words),
        Some("apply") => apply(&words),
        Some("output") => output(),
        Some("state") if words[1] == "pull" => pull(),
        Some("state") if words[1] == "list" => list(),
        _ => Err(format!("the scripted engine has no `{}`", words.join(" "))),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            say_error(&message);
            ExitCode::from(1)
        }
    }
}

type Outcome = Result<u8, String>;

/// `script.json`.
struct Script {
    document: Value,
    variables: Map<String, Value>,
}

impl Script {
    fn read(words: &[String]) -> Result<Self, String> {
        let text = std::fs::read_to_string("script.json").unwrap_or_else(|_| "{}".to_owned());
        let document = serde_json::from_str(&text).map_err(|err| format!("script.json: {err}"))?;
        let mut variables = Map::new();
        for file in words
            .iter()
            .filter_map(|word| word.strip_prefix("-var-file="))
        {
            let text = std::fs::read_to_string(file).map_err(|err| format!("{file}: {err}"))?;
            let read: Value =
                serde_json::from_str(&text).map_err(|err| format!("{file}: {err}"))?;
            variables.extend(read.as_object().cloned().unwrap_or_default());
        }
        Ok(Self {
            document,
            variables,
        })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.document[name].as_str()
    }

    fn map(&self, name: &str) -> BTreeMap<String, String> {
        let found = self.document[name].as_object().cloned().unwrap_or_default();
        let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
        found
            .into_iter()
            .map(|(name, value)| (name, text(value)))
            .collect()
    }

    fn is_sensitive(&self, name: &str) -> bool {
        let names = self.document["sensitive"].as_array();
        names.is_some_and(|names| names.iter().any(|it| it == name))
    }

    /// A text with its variables; none if one is unknown.
    fn filled(&self, text: &str) -> Option<String> {
        let mut filled = text.to_owned();
        while let Some(start) = filled.find("${var.") {
            let end = start + filled[start..].find('}')?;
            let value = match self.variables.get(&filled[start + 6..end])? {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            filled.replace_range(start..=end, &value);
        }
        Some(filled)
    }
}

fn plan(words: &[String]) -> Outcome {
    let script = Script::read(words)?;
    if let Some(message) = script.text("plan_error") {
        return Err(message.to_owned());
    }
    let has = |option: &str| words.iter().any(|word| word == option);
    let (is_destroy, is_refresh) = (has("-destroy"), has("-refresh-only"));
    let state = State::read()?;
    let drift: Vec<Value> = script
        .map("drift")
        .into_iter()
        .filter(|(name, seen)| state.resources.get(name).is_some_and(|was| was != seen))
        .map(|(name, seen)| {
            change(
                &name,
                "update",
                Some(&state.resources[&name]),
                Some(&Some(seen)),
            )
        })
        .collect();
    let wanted = if is_destroy {
        BTreeMap::new()
    } else {
        script.map("resources")
    };
    let mut changes = Vec::new();
    if !is_refresh {
        for (name, value) in &wanted {
            let is_replaced = value.starts_with('!');
            let after = script.filled(value.trim_start_matches('!'));
            let before = state.resources.get(name);
            let action = match before {
                None => "create",
                Some(before) if Some(before) == after.as_ref() => continue,
                Some(_) if is_replaced => "replace",
                Some(_) => "update",
            };
            changes.push(change(name, action, before, Some(&after)));
        }
        for (name, before) in state
            .resources
            .iter()
            .filter(|(name, _)| !wanted.contains_key(*name))
        {
            changes.push(change(name, "delete", Some(before), None));
        }
    }
    let outputs = planned_outputs(&script, &state, &changes, is_destroy);
    for change in &changes {
        say(
            "planned_change",
            json!({"change": {
            "resource": {"addr": change["address"]}, "action": change["scripted"]}}),
        );
    }
    for change in &drift {
        say(
            "resource_drift",
            json!({"change": {
            "resource": {"addr": change["address"]}, "action": "update"}}),
        );
    }
    let changed: Vec<_> = outputs
        .iter()
        .filter(|(_, it)| it["actions"][0] != "no-op")
        .collect();
    if !changed.is_empty() {
        say(
            "outputs",
            json!({"outputs": changed.iter().map(|(name, it)| {
            ((*name).clone(), json!({"action": it["actions"][0], "sensitive": script.is_sensitive(name)}))
        }).collect::<Map<_, _>>()}),
        );
    }
    summary(&changes, "plan");
    let is_empty = changes.is_empty() && changed.is_empty() && (!is_refresh || drift.is_empty());
    let document = json!({
        "state": {"lineage": state.lineage, "serial": state.serial}, "refresh_only": is_refresh,
        "plan": {"format_version": "1.2", "terraform_version": "1.11.14", "resource_changes": changes,
            "resource_drift": drift, "output_changes": outputs},
    });
    if let Some(file) = words.iter().find_map(|word| word.strip_prefix("-out=")) {
        std::fs::write(file, document.to_string()).map_err(|err| format!("{file}: {err}"))?;
    }
    Ok(if is_empty { 0 } else { 2 })
}

/// A change as plan JSON has it. `after` is none for a deletion, and none inside if it is unknown.
fn change(
    name: &str,
    action: &str,
    before: Option<&String>,
    after: Option<&Option<String>>,
) -> Value {
    let actions = match action {
        "replace" => json!(["delete", "create"]),
        action => json!([action]),
    };
    let side = |value: Option<&String>| value.map(|value| json!({"id": id(name), "value": value}));
    let mut unknown = Map::new();
    if matches!(action, "create" | "replace") {
        unknown.insert("id".to_owned(), json!(true));
    }
    if after.is_some_and(Option::is_none) {
        unknown.insert("value".to_owned(), json!(true));
    }
    let after = after.map(|value| {
        let mut object = Map::new();
        if !unknown.contains_key("id") {
            object.insert("id".to_owned(), json!(id(name)));
        }
        if let Some(value) = value {
            object.insert("value".to_owned(), json!(value));
        }
        Value::Object(object)
    });
    json!({"address": format!("terraform_data.{name}"), "mode": "managed", "type": "terraform_data", "name": name,
        "provider_name": "terraform.io/builtin/terraform", "scripted": action,
        "change": {"actions": actions, "before": side(before), "after": after, "after_unknown": unknown,
            "before_sensitive": false, "after_sensitive": false}})
}

fn planned_outputs(
    script: &Script,
    state: &State,
    changes: &[Value],
    is_destroy: bool,
) -> Map<String, Value> {
    let wanted = if is_destroy {
        BTreeMap::new()
    } else {
        script.map("outputs")
    };
    let mut outputs = Map::new();
    for (name, text) in &wanted {
        let is_new = |name: &str| {
            let address = format!("terraform_data.{name}");
            changes
                .iter()
                .any(|it| it["address"] == address && it["change"]["after_unknown"]["id"] == true)
        };
        let after = match text.strip_prefix('@') {
            Some(resource) if is_new(resource) => None,
            Some(resource) => Some(id(resource)),
            None => script.filled(text),
        };
        let before = state.outputs.get(name);
        let action = match before {
            None => "create",
            Some(_) if before == after.as_ref() => "no-op",
            Some(_) => "update",
        };
        let is_sensitive = script.is_sensitive(name);
        outputs.insert(name.clone(), json!({"actions": [action], "before": before, "after": after,
            "after_unknown": after.is_none(), "before_sensitive": is_sensitive, "after_sensitive": is_sensitive}));
    }
    for (name, before) in state
        .outputs
        .iter()
        .filter(|(name, _)| !wanted.contains_key(*name))
    {
        outputs.insert(
            name.clone(),
            json!({"actions": ["delete"], "before": before, "after": null,
            "after_unknown": false, "before_sensitive": false, "after_sensitive": false}),
        );
    }
    outputs
}

fn plan_file(words: &[String]) -> Result<Value, String> {
    let file = words.last().ok_or("no plan file")?;
    let text = std::fs::read_to_string(file).map_err(|err| format!("{file}: {err}"))?;
    serde_json::from_str(&text).map_err(|err| format!("{file}: {err}"))
}

fn show(words: &[String]) -> Outcome {
    println!("{}", plan_file(words)?["plan"]);
    Ok(0)
}

fn apply(words: &[String]) -> Outcome {
    let (document, script) = (plan_file(words)?, Script::read(words)?);
    let lock = Lock::take()?;
    let mut state = State::read()?;
    let made_from = json!({"lineage": state.lineage, "serial": state.serial});
    if document["state"] != made_from {
        return Err("Saved plan is stale".to_owned());
    }
    let plan = &document["plan"];
    let list = if document["refresh_only"] == true {
        "resource_drift"
    } else {
        "resource_changes"
    };
    let changes = plan[list].as_array().cloned().unwrap_or_default();
    let mut failed = None;
    for change in &changes {
        let name = change["name"].as_str().unwrap_or_default();
        let hook = json!({"resource": {"addr": change["address"]}, "action": change["scripted"]});
        say("apply_start", json!({"hook": hook}));
        if script.text("crash_at") == Some(name) {
            std::process::abort();
        }
        if script.text("apply_error_at") == Some(name) {
            failed = Some(format!("cannot change `{name}`"));
            break;
        }
        match change["change"]["after"]["value"].as_str() {
            _ if change["change"]["after"].is_null() => {
                state.resources.remove(name);
            }
            Some(value) => {
                state.resources.insert(name.to_owned(), value.to_owned());
            }
            None => return Err(format!("the value of `{name}` is unknown in an apply")),
        }
        say("apply_complete", json!({"hook": hook}));
    }
    if failed.is_none() {
        state.outputs = applied_outputs(&script, plan, &state);
    }
    state.serial += 1;
    state.write(&script, &lock)?;
    lock.release()?;
    summary(&changes, "apply");
    failed.map_or(Ok(0), Err)
}

fn applied_outputs(script: &Script, plan: &Value, state: &State) -> BTreeMap<String, String> {
    let mut outputs = state.outputs.clone();
    let changes = plan["output_changes"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for (name, change) in changes {
        let wanted = script.map("outputs").get(&name).cloned();
        let is_deleted = change["actions"][0] == "delete";
        let value = match wanted.filter(|_| !is_deleted) {
            None => None,
            Some(text) => match text.strip_prefix('@') {
                Some(resource) => Some(id(resource)),
                None => script.filled(&text),
            },
        };
        match value {
            Some(value) => drop(outputs.insert(name, value)),
            None => drop(outputs.remove(&name)),
        }
    }
    outputs
}

fn output() -> Outcome {
    let (state, script) = (State::read()?, Script::read(&[])?);
    println!("{}", state.outputs_document(&script));
    Ok(0)
}

fn pull() -> Outcome {
    println!("{}", String::from_utf8_lossy(&request("GET", "", b"")?.1));
    Ok(0)
}

fn list() -> Outcome {
    for name in State::read()?.resources.keys() {
        println!("terraform_data.{name}");
    }
    Ok(0)
}

fn id(resource: &str) -> String {
    format!("id-of-{resource}")
}

#[derive(Default)]
struct State {
    lineage: String,
    serial: u64,
    resources: BTreeMap<String, String>,
    outputs: BTreeMap<String, String>,
}

impl State {
    fn read() -> Result<Self, String> {
        let (status, body) = request("GET", "", b"")?;
        if status == 204 || status == 404 || body.is_empty() {
            return Ok(Self::default());
        }
        if status != 200 {
            return Err(format!("cannot read the state: HTTP {status}"));
        }
        let document: Value =
            serde_json::from_slice(&body).map_err(|err| format!("the state: {err}"))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resources = document["resources"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let outputs = document["outputs"].as_object().cloned().unwrap_or_default();
        Ok(Self {
            lineage: text(&document["lineage"]),
            serial: document["serial"].as_u64().unwrap_or_default(),
            resources: resources
                .iter()
                .map(|it| {
                    (
                        text(&it["name"]),
                        text(&it["instances"][0]["attributes"]["value"]),
                    )
                })
                .collect(),
            outputs: outputs
                .iter()
                .map(|(name, it)| (name.clone(), text(&it["value"])))
                .collect(),
        })
    }

    fn outputs_document(&self, script: &Script) -> Value {
        let outputs = self.outputs.iter().map(|(name, value)| {
            let is_sensitive = script.is_sensitive(name);
            (
                name.clone(),
                json!({"value": value, "type": "string", "sensitive": is_sensitive}),
            )
        });
        Value::Object(outputs.collect())
    }

    fn write(&mut self, script: &Script, lock: &Lock) -> Result<(), String> {
        if self.lineage.is_empty() {
            self.lineage = format!("lineage-{}", std::process::id());
        }
        let resources: Vec<Value> = self
            .resources
            .iter()
            .map(|(name, value)| {
                json!({"mode": "managed", "type": "terraform_data", "name": name,
                    "provider": "provider[\"terraform.io/builtin/terraform\"]",
                    "instances": [{"schema_version": 0, "attributes": {"id": id(name), "value": value}}]})
            })
            .collect();
        let document = json!({"version": 4, "terraform_version": "1.11.14", "serial": self.serial,
            "lineage": self.lineage, "outputs": self.outputs_document(script), "resources": resources})
        .to_string();
        let (status, _) = request("POST", &format!("?ID={}", lock.id), document.as_bytes())?;
        if status == 200 {
            return Ok(());
        }
        std::fs::write(Path::new("errored.tfstate"), document).map_err(|err| err.to_string())?;
        Err(format!("cannot save the state: HTTP {status}"))
    }
}

struct Lock {
    id: String,
}

impl Lock {
    fn take() -> Result<Self, String> {
        let id = format!("lock-{}", std::process::id());
        let (status, body) = request("LOCK", "", Self::info(&id).as_bytes())?;
        if status != 200 {
            let holder = String::from_utf8_lossy(&body);
            return Err(format!(
                "Error acquiring the state lock: HTTP {status}: {holder}"
            ));
        }
        Ok(Self { id })
    }

    fn info(id: &str) -> String {
        json!({"ID": id, "Operation": "OperationTypeApply", "Info": "", "Who": "engine@test", "Version": "1.11.14",
            "Created": "2026-01-01T00:00:00Z", "Path": ""})
        .to_string()
    }

    fn release(self) -> Result<(), String> {
        request("UNLOCK", "", Self::info(&self.id).as_bytes()).map(drop)
    }
}

/// One request to the state endpoint: the status and the body.
fn request(method: &str, query: &str, body: &[u8]) -> Result<(u16, Vec<u8>), String> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("`{name}` is not set"));
    let address = variable("TF_HTTP_ADDRESS")?;
    let rest = address.trim_start_matches("http://");
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let login = format!(
        "{}:{}",
        variable("TF_HTTP_USERNAME")?,
        variable("TF_HTTP_PASSWORD")?
    );
    let login = base64::engine::general_purpose::STANDARD.encode(login);
    let mut stream = TcpStream::connect(host).map_err(|err| format!("{host}: {err}"))?;
    let head = format!(
        "{method} /{path}{query} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic {login}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut answer = Vec::new();
    let sent = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body));
    sent.and_then(|()| stream.read_to_end(&mut answer))
        .map_err(|err| format!("{host}: {err}"))?;
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .ok_or("no answer")?;
    let status = String::from_utf8_lossy(&answer[..end]);
    let status = status
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .ok_or("no status")?;
    Ok((status, answer.split_off(end + 4)))
}

fn summary(changes: &[Value], operation: &str) {
    let count = |wanted: &[&str]| {
        changes
            .iter()
            .filter(|it| wanted.iter().any(|action| it["scripted"] == *action))
            .count()
    };
    say(
        "change_summary",
        json!({"changes": {"add": count(&["create", "replace"]), "change": count(&["update"]),
        "remove": count(&["delete", "replace"]), "import": 0, "forget": 0, "operation": operation}}),
    );
}

fn say(kind: &str, mut fields: Value) {
    fields["@level"] = json!("info");
    fields["@message"] = json!(kind);
    fields["@timestamp"] = json!("2026-01-01T00:00:00Z");
    fields["type"] = json!(kind);
    println!("{fields}");
}

fn say_error(message: &str) {
    println!(
        "{}",
        json!({"@level": "error", "@message": message, "@timestamp": "2026-01-01T00:00:00Z",
        "type": "diagnostic", "diagnostic": {"severity": "error", "summary": message, "detail": ""}})
    );
}
