//! Finds what a dead engine did after its last stored state, and proposes `import` blocks to recover it.
//!
//! Engines store their state at most every 20 seconds, but report each finished resource with its id at once. So the
//! event stream shows resources that no state records.
//!
//! Not here: reading the stream (`engine_event`), removing from a state (`state::removal`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::masking::MASKED;
use crate::run::engine_event::{EngineEvent, EventKind, ResourceOperation};
use crate::state::resources::StateDocument;

#[cfg(test)]
mod tests;

/// The warning that is shown with every id.
pub const ID_NOTE: &str = "id from the event stream, check the provider's import format";

/// Resources that exist but are in no state, or are in the state but do not exist. Stored with a run's end: fields are
/// only added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnrecordedResources {
    /// The serial of the newest stored state, from any writer.
    #[serde(default)]
    pub serial: Option<u64>,
    /// Created, and in no state.
    #[serde(default)]
    pub made: Vec<CreatedResource>,
    /// Changed, but the state has the old values: the next plan refreshes them.
    #[serde(default)]
    pub changed: Vec<String>,
    /// Destroyed, but still in the state.
    #[serde(default)]
    pub gone: Vec<String>,
    /// Started, with unknown result.
    #[serde(default)]
    pub underway: Vec<PendingOperation>,
    /// The engine saved a state that was quarantined and may record all of this.
    #[serde(default)]
    pub kept_aside: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedResource {
    pub address: String,
    pub import: ImportMethod,
    /// The state contains the destroyed predecessor, which must be removed from the state first.
    #[serde(default)]
    pub replaces: bool,
}

/// How a resource gets into a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum ImportMethod {
    ById {
        id: String,
    },
    /// It only exists in the state: if the state is lost, it is created again.
    Impossible,
    /// The stream contains no id.
    NoId,
    /// The id contains a secret, which is not stored.
    HiddenId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingOperation {
    pub address: String,
    /// `create`, `update`, `delete`.
    pub action: String,
}

/// What is known about the state after the engine ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct StateAfterRun<'a> {
    pub serial: Option<u64>,
    /// When the run itself last stored it; none if it never did.
    pub at: Option<Timestamp>,
    /// None if there is no state, or if it cannot be read.
    pub document: Option<&'a StateDocument>,
    /// Whether the engine encrypts the state: then only the time indicates what it contains.
    pub is_opaque: bool,
    pub kept_aside: bool,
}

/// Compares the stream of an apply with the state. `died`: the engine was killed or crashed, so the result of its
/// current work is unknown. None if the state is complete.
pub fn left(
    events: &[EngineEvent],
    stored: StateAfterRun<'_>,
    died: bool,
) -> Option<UnrecordedResources> {
    // An engine that ended on its own stored everything. A state that could not be stored is quarantined.
    let is_delivered = !died && stored.at.is_some() && !stored.kept_aside;
    if is_delivered {
        return None;
    }
    let done = LastOperations::of(events);
    let mut left = UnrecordedResources {
        serial: stored.serial,
        kept_aside: stored.kept_aside,
        ..UnrecordedResources::default()
    };
    for (address, step) in &done.created {
        if !step.is_stored(stored) {
            left.made.push(CreatedResource {
                address: (*address).to_owned(),
                import: step.import(),
                replaces: stored.holds(address),
            });
        }
    }
    for (address, step) in &done.deleted {
        let is_back = done.created.contains_key(address);
        let is_there = if stored.is_opaque {
            step.is_after(stored.at)
        } else {
            stored.holds_as(address, done.destroyed.get(address).copied())
        };
        if !is_back && is_there {
            left.gone.push((*address).to_owned());
        }
    }
    if died {
        let changed = done.updated.iter();
        let changed = changed.filter(|(_, step)| step.is_after(stored.at));
        left.changed = changed.map(|(address, _)| (*address).to_owned()).collect();
        let open = done.open.iter().map(|(address, action)| PendingOperation {
            address: (*address).to_owned(),
            action: (*action).to_owned(),
        });
        left.underway = open.collect();
    }
    (!left.is_empty()).then_some(left)
}

impl UnrecordedResources {
    fn is_empty(&self) -> bool {
        self.made.is_empty()
            && self.changed.is_empty()
            && self.gone.is_empty()
            && self.underway.is_empty()
    }

    /// Addresses to remove from the state before anything is imported.
    pub fn to_forget(&self) -> impl Iterator<Item = &str> {
        let replaced = self.made.iter().filter(|made| made.replaces);
        let replaced = replaced.map(|made| made.address.as_str());
        self.gone.iter().map(String::as_str).chain(replaced)
    }

    pub fn importable(&self) -> Vec<&str> {
        let has_id = |made: &&CreatedResource| {
            matches!(
                made.import,
                ImportMethod::ById { .. } | ImportMethod::HiddenId
            )
        };
        let made = self.made.iter().filter(has_id);
        made.map(|made| made.address.as_str()).collect()
    }

    /// The blocks, as a file of the stack's root module. Resources that cannot be imported are comments in it.
    pub fn blocks(&self) -> String {
        let mut text = format!("# {ID_NOTE}\n");
        for made in &self.made {
            match &made.import {
                ImportMethod::ById { id } => {
                    let (to, id) = (&made.address, quoted(id));
                    let _ = write!(text, "\nimport {{\n  to = {to}\n  id = {id}\n}}\n");
                }
                ImportMethod::Impossible => {
                    let _ = write!(text, "\n# cannot be imported: {}\n", made.address);
                }
                ImportMethod::NoId => {
                    let _ = write!(text, "\n# the stream names no id: {}\n", made.address);
                }
                ImportMethod::HiddenId => {
                    let to = &made.address;
                    let _ = write!(
                        text,
                        "\n# its id holds a secret: put it in\n# import {{\n#   to = {to}\n#   id = \"\"\n# }}\n"
                    );
                }
            }
        }
        text
    }
}

/// The last reported operation on each address.
#[derive(Default)]
struct LastOperations<'a> {
    created: BTreeMap<&'a str, FinishedOperation<'a>>,
    updated: BTreeMap<&'a str, FinishedOperation<'a>>,
    deleted: BTreeMap<&'a str, FinishedOperation<'a>>,
    /// The start events of deletions, which contain the id of the deleted object.
    destroyed: BTreeMap<&'a str, &'a ResourceOperation>,
    open: BTreeMap<&'a str, &'a str>,
}

impl<'a> LastOperations<'a> {
    fn of(events: &'a [EngineEvent]) -> Self {
        let mut done = Self::default();
        for event in events {
            match &event.kind {
                EventKind::ApplyStart(step) => {
                    if let Some(action @ ("create" | "update" | "delete")) = step.action.as_deref()
                    {
                        done.open.insert(&step.resource.addr, action);
                        if action == "delete" {
                            done.destroyed.insert(&step.resource.addr, step);
                        }
                    }
                }
                EventKind::ApplyComplete(step) => {
                    let address = step.resource.addr.as_str();
                    done.open.remove(address);
                    let finished = FinishedOperation {
                        step,
                        at: event.time.as_deref().and_then(|time| time.parse().ok()),
                    };
                    match step.action.as_deref() {
                        Some("create") => done.created.insert(address, finished),
                        Some("update") => done.updated.insert(address, finished),
                        Some("delete") => done.deleted.insert(address, finished),
                        _ => None,
                    };
                }
                _ => {}
            }
        }
        done
    }
}

struct FinishedOperation<'a> {
    step: &'a ResourceOperation,
    at: Option<Timestamp>,
}

impl FinishedOperation<'_> {
    /// Whether the state records it with its current id.
    fn is_stored(&self, stored: StateAfterRun<'_>) -> bool {
        if stored.is_opaque {
            return !self.is_after(stored.at);
        }
        let Some(document) = stored.document else {
            return false;
        };
        let address = self.step.resource.addr.as_str();
        let mut objects = document.instances.iter();
        objects.any(|object| {
            let key = self.step.id_key.as_deref().unwrap_or("id");
            let id = object.attributes.get(key).and_then(|id| id.as_str());
            object.address == address
                && (self.step.id_value.is_none() || id == self.step.id_value.as_deref())
        })
    }

    /// An unknown time counts as later: a superfluous entry is better than a missing one.
    fn is_after(&self, stored: Option<Timestamp>) -> bool {
        match (self.at, stored) {
            (Some(done), Some(stored)) => done > stored,
            _ => true,
        }
    }

    fn import(&self) -> ImportMethod {
        if !can_be_imported(&self.step.resource.resource_type) {
            return ImportMethod::Impossible;
        }
        match self.step.id_value.as_deref().filter(|id| !id.is_empty()) {
            Some(id) if id.contains(MASKED) => ImportMethod::HiddenId,
            Some(id) => ImportMethod::ById { id: id.to_owned() },
            None => ImportMethod::NoId,
        }
    }
}

impl StateAfterRun<'_> {
    /// Whether it contains this address with the id of the destroyed object. After a replacement it may already contain
    /// the successor.
    fn holds_as(&self, address: &str, destroyed: Option<&ResourceOperation>) -> bool {
        let Some((step, id)) = destroyed.and_then(|step| Some((step, step.id_value.as_deref()?)))
        else {
            return self.holds(address);
        };
        let key = step.id_key.as_deref().unwrap_or("id");
        let objects = self
            .document
            .map_or(&[][..], |document| &document.instances);
        objects.iter().any(|object| {
            let found = object.attributes.get(key).and_then(|id| id.as_str());
            object.address == address && found == Some(id)
        })
    }

    fn holds(&self, address: &str) -> bool {
        let objects = self
            .document
            .map_or(&[][..], |document| &document.instances);
        objects.iter().any(|object| object.address == address)
    }
}

fn can_be_imported(resource_type: &str) -> bool {
    let in_state_alone = ["random_", "tls_", "time_"];
    let is_in_state_alone = in_state_alone
        .iter()
        .any(|it| resource_type.starts_with(it))
        || matches!(resource_type, "null_resource" | "terraform_data");
    !is_in_state_alone
}

/// An HCL string literal for exactly this text.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '$' | '%' if rest.peek() == Some(&'{') => {
                out.push(letter);
                out.push(letter);
            }
            letter if letter.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}
