//! Converts bytes, in chunks of any size, to events.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{EngineEvent, EngineVersion, EventKind, Level};

/// Longer lines are truncated. No engine event is that long.
const LONGEST_LINE: usize = 16 << 20;

/// Takes a stream in chunks, as read from a growing file, and returns complete lines as events.
#[derive(Debug, Default)]
pub struct EventReader {
    rest: Vec<u8>,
}

impl EventReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// All events of a finished stream.
    pub fn read_all(bytes: &[u8]) -> Vec<EngineEvent> {
        let mut reader = Self::new();
        let mut events = reader.push(bytes);
        events.extend(reader.finish());
        events
    }

    /// The events that these bytes complete. An incomplete line is kept for the next call.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<EngineEvent> {
        let mut events = Vec::new();
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        for part in lines.by_ref() {
            let room = LONGEST_LINE.saturating_sub(self.rest.len());
            self.rest.extend(part.iter().take(room));
            if part.ends_with(b"\n") {
                events.extend(event(&std::mem::take(&mut self.rest)));
            }
        }
        events
    }

    /// The last line, if it has no line end. An incomplete event is returned as text.
    pub fn finish(self) -> Option<EngineEvent> {
        event(&self.rest)
    }
}

fn event(line: &[u8]) -> Option<EngineEvent> {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches(['\n', '\r']);
    (!line.trim().is_empty()).then(|| parse_line(line))
}

pub(super) fn parse_line(line: &str) -> EngineEvent {
    serde_json::from_str(line).map_or_else(
        |_| EngineEvent {
            level: Level::Info,
            message: line.to_owned(),
            time: None,
            kind: EventKind::Text,
        },
        typed,
    )
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "@level", default)]
    level: Level,
    #[serde(rename = "@message", default)]
    message: String,
    #[serde(rename = "@timestamp")]
    time: Option<String>,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(flatten)]
    body: BTreeMap<String, Value>,
}

fn typed(raw: Raw) -> EngineEvent {
    let Raw {
        level,
        message,
        time,
        kind,
        mut body,
    } = raw;
    let kind = kind_of(&kind, &mut body).unwrap_or(EventKind::Other(kind));
    EngineEvent {
        level,
        message,
        time,
        kind,
    }
}

/// `None` if the type is unknown or its body has an unexpected form.
fn kind_of(kind: &str, body: &mut BTreeMap<String, Value>) -> Option<EventKind> {
    use EventKind as E;
    Some(match kind {
        "version" => E::Version(EngineVersion {
            version: take(body, "tofu").or_else(|| take(body, "terraform"))?,
            ui: take(body, "ui")?,
        }),
        "log" if body.get("hook").is_some_and(Value::is_string) => E::Hook(take(body, "hook")?),
        "" | "log" | "output" | "init_output" => E::Log,
        "diagnostic" => E::Diagnostic(take(body, "diagnostic")?),
        "planned_change" => E::PlannedChange(take(body, "change")?),
        "resource_drift" => E::ResourceDrift(take(body, "change")?),
        "change_summary" => E::ChangeSummary(take(body, "changes")?),
        "outputs" => E::Outputs(take(body, "outputs")?),
        "refresh_start" => E::RefreshStart(take(body, "hook")?),
        "refresh_complete" => E::RefreshComplete(take(body, "hook")?),
        "apply_start" => E::ApplyStart(take(body, "hook")?),
        "apply_progress" => E::ApplyProgress(take(body, "hook")?),
        "apply_complete" => E::ApplyComplete(take(body, "hook")?),
        "apply_errored" => E::ApplyErrored(take(body, "hook")?),
        "provision_start" => E::ProvisionStart(take(body, "hook")?),
        "provision_progress" => E::ProvisionProgress(take(body, "hook")?),
        "provision_complete" => E::ProvisionComplete(take(body, "hook")?),
        "provision_errored" => E::ProvisionErrored(take(body, "hook")?),
        _ => return None,
    })
}

fn take<T: DeserializeOwned>(body: &mut BTreeMap<String, Value>, name: &str) -> Option<T> {
    serde_json::from_value(body.remove(name)?).ok()
}
