//! An engine's `-json` output, line by line, as typed events.
//!
//! Unknown types and fields, plain lines of wrappers, and an incomplete last line are not errors. Output values are not
//! kept.
//!
//! Not here: the plan itself (`plan`), masking (`masking`), display (`cli::view`).

mod reader;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use reader::EventReader;

/// One line of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineEvent {
    pub level: Level,
    /// The engine's message, such as `terraform_data.a: Creating...`.
    pub message: String,
    /// In the engine's format.
    pub time: Option<String>,
    pub kind: EventKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Trace,
    Debug,
    Warn,
    Error,
    #[default]
    #[serde(other)]
    Info,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    Version(EngineVersion),
    /// A plain message: `log`, tofu's `output`, terraform's `init_output`.
    Log,
    /// An output line of a hook, with the hook's name.
    Hook(String),
    Diagnostic(Diagnostic),
    PlannedChange(PlannedChange),
    ResourceDrift(PlannedChange),
    ChangeSummary(ChangeSummary),
    Outputs(BTreeMap<String, OutputNote>),
    RefreshStart(ResourceOperation),
    RefreshComplete(ResourceOperation),
    ApplyStart(ResourceOperation),
    ApplyProgress(ResourceOperation),
    ApplyComplete(ResourceOperation),
    ApplyErrored(ResourceOperation),
    ProvisionStart(ResourceOperation),
    ProvisionProgress(ResourceOperation),
    ProvisionComplete(ResourceOperation),
    ProvisionErrored(ResourceOperation),
    /// An unknown type; its message is still shown.
    Other(String),
    /// Not JSON: output of a crash, a wrapper or a library.
    Text,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineVersion {
    pub version: String,
    /// The version of the stream format.
    pub ui: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    #[serde(default)]
    pub severity: EngineSeverity,
    #[serde(default)]
    pub summary: String,
    #[serde(default)]
    pub detail: String,
    /// The resource concerned.
    pub address: Option<String>,
    pub range: Option<SourceRange>,
    pub snippet: Option<Snippet>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineSeverity {
    #[default]
    Error,
    #[serde(other)]
    Warning,
}

/// The source position, relative to the engine's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRange {
    pub filename: String,
    pub start: Position,
    pub end: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub line: u64,
    pub column: u64,
    pub byte: u64,
}

/// The source lines. Values of the expression are left out, since they may be secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snippet {
    /// The enclosing block, such as `resource "terraform_data" "a"`.
    pub context: Option<String>,
    pub code: String,
    pub start_line: u64,
    pub highlight_start_offset: usize,
    pub highlight_end_offset: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventResource {
    pub addr: String,
    #[serde(default)]
    pub module: String,
    #[serde(default)]
    pub resource_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedChange {
    pub resource: EventResource,
    pub previous_resource: Option<EventResource>,
    /// `noop`, `create`, `read`, `update`, `replace`, `delete`, `move`, `import`, `remove` (forget) …
    pub action: String,
    pub reason: Option<String>,
    pub importing: Option<Importing>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Importing {
    pub id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeSummary {
    pub add: usize,
    pub change: usize,
    pub remove: usize,
    pub import: usize,
    /// tofu only.
    pub forget: usize,
    /// `plan`, `apply` or `destroy`.
    pub operation: String,
}

/// An operation on one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceOperation {
    pub resource: EventResource,
    pub action: Option<String>,
    pub id_key: Option<String>,
    pub id_value: Option<String>,
    pub elapsed_seconds: Option<f64>,
    pub provisioner: Option<String>,
    /// The output of a provisioner.
    pub output: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputNote {
    pub sensitive: bool,
    /// During planning: `noop`, `create`, `update`, `delete`.
    pub action: Option<String>,
}

impl Diagnostic {
    pub fn is_error(&self) -> bool {
        self.severity == EngineSeverity::Error
    }

    pub fn file(&self) -> Option<String> {
        self.range.as_ref().map(|range| range.filename.clone())
    }

    pub fn line(&self) -> Option<u64> {
        self.range.as_ref().map(|range| range.start.line)
    }
}

impl EngineEvent {
    /// Parses any line.
    pub fn parse(line: &str) -> Self {
        reader::parse_line(line)
    }

    pub fn as_diagnostic(&self) -> Option<&Diagnostic> {
        match &self.kind {
            EventKind::Diagnostic(diagnostic) => Some(diagnostic),
            _ => None,
        }
    }

    /// The address of the resource concerned.
    pub fn address(&self) -> Option<&str> {
        use EventKind as E;
        match &self.kind {
            E::PlannedChange(change) | E::ResourceDrift(change) => Some(&change.resource.addr),
            E::RefreshStart(step)
            | E::RefreshComplete(step)
            | E::ApplyStart(step)
            | E::ApplyProgress(step)
            | E::ApplyComplete(step)
            | E::ApplyErrored(step)
            | E::ProvisionStart(step)
            | E::ProvisionProgress(step)
            | E::ProvisionComplete(step)
            | E::ProvisionErrored(step) => Some(&step.resource.addr),
            E::Diagnostic(diagnostic) => diagnostic.address.as_deref(),
            E::Version(_)
            | E::Log
            | E::Hook(_)
            | E::ChangeSummary(_)
            | E::Outputs(_)
            | E::Other(_)
            | E::Text => None,
        }
    }
}

/// Whether a plan with these events, made with `-detailed-exitcode`, changes nothing: no resource, no output, no move,
/// import or forget, and no drift if it is refresh-only. In that case `show` is not needed. Returns false when in
/// doubt.
pub fn nothing_changes(events: &[EngineEvent], exit_code: Option<i32>, refresh_only: bool) -> bool {
    use EventKind as E;
    let mut summarised = false;
    let quiet = events.iter().all(|event| match &event.kind {
        E::PlannedChange(change) => {
            matches!(change.action.as_str(), "noop" | "no-op" | "read")
                && change.importing.is_none()
                && change.previous_resource.is_none()
        }
        E::ResourceDrift(_) => !refresh_only,
        E::Outputs(outputs) => outputs
            .values()
            .all(|output| matches!(output.action.as_deref(), Some("noop" | "no-op"))),
        E::ChangeSummary(summary) => {
            summarised = true;
            let ChangeSummary {
                add,
                change,
                remove,
                import,
                forget,
                operation: _,
            } = summary;
            [add, change, remove, import, forget] == [&0; 5]
        }
        E::Diagnostic(diagnostic) => diagnostic.severity != EngineSeverity::Error,
        // An unknown event type may be a new kind of change.
        E::Other(_) => false,
        _ => true,
    });
    exit_code == Some(0) && quiet && summarised
}
