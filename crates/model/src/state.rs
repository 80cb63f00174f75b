//! A state: its name, the facts that its bytes reveal, and which writes may follow which head.
//!
//! A state is never serialised from parsed data: numbers may be too large for our types, and fields may be newer than
//! this program. A serial or lineage that must change is replaced in place.
//!
//! Not here: bytes on disk (`store`), status codes (`server`).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::base::actor::Actor;
use crate::base::ids::RunId;
use crate::state::lock::LockInfo;

mod adoption;
pub mod break_glass;
mod copy;
pub mod diff;
pub mod glob;
pub mod history;
pub mod leaves;
pub mod lock;
mod push;
mod refusal;
mod removal;
pub mod resources;
pub mod retention;
mod rival;
pub mod secret_paths;
pub mod sensitivity;
mod spans;
mod summary;
pub mod time_spec;
pub mod token;
pub mod version_ref;

pub use adoption::{Adoption, QuarantineReason, adoption};
pub use copy::{check_copy, check_push_over_copy};
pub use push::{HeadView, LockView, PushRefusal, PushVerdict, PushView, VersionMark, check_push};
pub use refusal::RefusedRequest;
pub use removal::{Removal, RemoveError, as_written, remove};
pub use rival::RivalVersion;
pub use spans::{InstanceSpan, ReadResourcesError, ResourceSpan, resources};
pub use summary::{ChangedResource, StateChangeSummary, summary};

/// Databases store serials as signed numbers, and each write increments the serial.
const HIGHEST_SERIAL: u64 = i64::MAX.cast_unsigned() - 1_000_000_000;

/// The name of a state within a project. A state created without a project has an empty project name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StateName {
    pub project: String,
    pub name: String,
}

impl StateName {
    pub fn new(project: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.project.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.project, self.name)
        }
    }
}

/// An accepted version. Its bytes are in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateVersion {
    pub state: StateName,
    /// terrane's version number, starting at one. The engine's own number is the serial.
    pub version: i64,
    pub serial: u64,
    pub lineage: String,
    /// A keyed digest of the bytes. It only shows whether two contents are equal.
    pub content: String,
    pub size: u64,
    pub parent: Option<i64>,
    pub contents: Contents,
    pub mark: Option<VersionMark>,
    pub run: Option<RunId>,
    pub created_at: jiff::Timestamp,
    /// The author, if known.
    #[serde(default)]
    pub actor: Actor,
}

impl StateVersion {
    /// Whether the state lives in an engine's backend and this version is a copy of what was seen there.
    pub fn is_copy(&self) -> bool {
        self.mark == Some(VersionMark::Copy)
    }

    /// Whether version numbers were skipped for it: a person decided that it follows, whatever was acknowledged before.
    pub fn settles(&self) -> bool {
        let follows = self.parent.map_or(1, |parent| parent.saturating_add(1));
        self.mark == Some(VersionMark::RolledBack) && self.version > follows
    }

    pub fn view(&self) -> HeadView<'_> {
        HeadView {
            serial: self.serial,
            lineage: &self.lineage,
            content: &self.content,
            contents: self.contents,
        }
    }
}

/// The head that a writer expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpectedHead {
    Any,
    /// This version, or no state if none.
    Exactly(Option<i64>),
}

/// A lock, with the time at which it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    pub info: LockInfo,
    pub run: Option<RunId>,
    pub epoch: lock::LockEpoch,
    pub since: jiff::Timestamp,
}

/// How much a state contains, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contents {
    /// Encrypted by the client, so the contents are unknown.
    Encrypted,
    Nothing,
    OutputsOnly,
    Resources,
}

impl Contents {
    pub const ALL: [Self; 4] = [
        Self::Encrypted,
        Self::Nothing,
        Self::OutputsOnly,
        Self::Resources,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::Nothing => "nothing",
            Self::OutputsOnly => "outputs_only",
            Self::Resources => "resources",
        }
    }

    /// Whether an engine without this state would create resources a second time.
    pub fn may_hold_resources(self) -> bool {
        match self {
            Self::Resources | Self::Encrypted => true,
            Self::Nothing | Self::OutputsOnly => false,
        }
    }

    /// Whether all resources are known to disappear when `next` replaces `self`.
    pub fn loses_all_resources(self, next: Self) -> bool {
        self == Self::Resources && matches!(next, Self::Nothing | Self::OutputsOnly)
    }
}

/// The facts that a state's bytes reveal without parsing its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFacts {
    pub serial: u64,
    pub lineage: String,
    pub contents: Contents,
}

#[derive(Debug, thiserror::Error)]
pub enum InvalidState {
    #[error("this is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("this is not a JSON object")]
    NotObject,
    #[error(
        "this is a lock's description, not a state: check the backend's update and lock methods"
    )]
    LockInfo,
    #[error("this has neither `version` nor `encryption_version`, so it is no state")]
    NoVersion,
    #[error("`version` is not a number")]
    Version,
    #[error("`serial` is not a number from 0 to 9223372036854775807")]
    Serial,
    #[error("`serial` {serial} is so high that no room is left for the versions after it")]
    SerialTooHigh { serial: u64 },
    #[error("`lineage` is not a string, or has a NUL in it")]
    Lineage,
    #[error("`resources` is not a list")]
    Resources,
    #[error("`outputs` is not an object of outputs")]
    Outputs,
}

/// The top level; everything below stays text.
#[derive(Deserialize)]
struct TopLevel<'a> {
    #[serde(borrow, default)]
    version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    encryption_version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    serial: Option<&'a RawValue>,
    #[serde(borrow, default)]
    lineage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    resources: Option<&'a RawValue>,
    #[serde(borrow, default)]
    outputs: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "ID")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Operation")]
    operation: Option<&'a RawValue>,
}

impl<'a> TopLevel<'a> {
    fn read(body: &'a [u8]) -> Result<Self, InvalidState> {
        // serde would accept a list as the fields in order.
        if body
            .trim_ascii_start()
            .first()
            .is_some_and(|byte| *byte != b'{')
        {
            return Err(InvalidState::NotObject);
        }
        let top: Self = serde_json::from_slice(body).map_err(InvalidState::NotJson)?;
        match (top.version, top.encryption_version) {
            (Some(_), _) | (_, Some(_)) => Ok(top),
            (None, None) if top.id.is_some() && top.operation.is_some() => {
                Err(InvalidState::LockInfo)
            }
            (None, None) => Err(InvalidState::NoVersion),
        }
    }
}

impl StateFacts {
    pub fn read(body: &[u8]) -> Result<Self, InvalidState> {
        let top = TopLevel::read(body)?;
        let encrypted = top.encryption_version.is_some();
        if let Some(version) = top.version {
            version
                .get()
                .parse::<u64>()
                .map_err(|_| InvalidState::Version)?;
        }
        let serial = top.serial.map_or(Ok(0), |raw| {
            // Signed, because databases store it too.
            let serial: i64 = raw.get().parse().map_err(|_| InvalidState::Serial)?;
            let serial = u64::try_from(serial).map_err(|_| InvalidState::Serial)?;
            if serial > HIGHEST_SERIAL {
                return Err(InvalidState::SerialTooHigh { serial });
            }
            Ok(serial)
        })?;
        let lineage: String = top
            .lineage
            .map_or(Ok(String::new()), |raw| serde_json::from_str(raw.get()))
            .map_err(|_| InvalidState::Lineage)?;
        // PostgreSQL cannot store text with a NUL character.
        if lineage.contains('\0') {
            return Err(InvalidState::Lineage);
        }
        let contents = if encrypted {
            Contents::Encrypted
        } else {
            plain_contents(&top)?
        };
        Ok(Self {
            serial,
            lineage,
            contents,
        })
    }
}

fn plain_contents(top: &TopLevel<'_>) -> Result<Contents, InvalidState> {
    let filled = |raw: Option<&RawValue>, open: char, close: char| {
        let text = raw.map_or("null", RawValue::get).trim();
        if text == "null" {
            return Some(false);
        }
        let inside = text.strip_prefix(open)?.strip_suffix(close)?;
        Some(!inside.trim().is_empty())
    };
    let resources = filled(top.resources, '[', ']').ok_or(InvalidState::Resources)?;
    let outputs = filled(top.outputs, '{', '}').ok_or(InvalidState::Outputs)?;
    Ok(match (resources, outputs) {
        (true, _) => Contents::Resources,
        (false, true) => Contents::OutputsOnly,
        (false, false) => Contents::Nothing,
    })
}

/// An output of a state. Its value stays unparsed text.
#[derive(Clone, Deserialize)]
pub struct StateOutput {
    pub value: Box<RawValue>,
    #[serde(rename = "type")]
    pub ty: Box<RawValue>,
    #[serde(default)]
    pub sensitive: bool,
}

impl fmt::Debug for StateOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.sensitive {
            "[secret]"
        } else {
            self.value.get()
        };
        write!(f, "Output({}: {value})", self.ty.get())
    }
}

/// The outputs of a state. None can be read if the client encrypted the state.
pub fn outputs(body: &[u8]) -> Result<BTreeMap<String, StateOutput>, InvalidState> {
    StateFacts::read(body)?;
    let top = TopLevel::read(body)?;
    match top.outputs.map(RawValue::get) {
        None | Some("null") => Ok(BTreeMap::new()),
        Some(raw) => serde_json::from_str(raw).map_err(|_| InvalidState::Outputs),
    }
}

/// Replaces serial and lineage and leaves all other bytes as they are.
pub fn with_identity(body: &[u8], serial: u64, lineage: &str) -> Result<Vec<u8>, InvalidState> {
    let top = TopLevel::read(body)?;
    let serial = serial.to_string();
    let lineage = serde_json::Value::from(lineage).to_string();
    let mut missing = String::new();
    let mut changes = Vec::new();
    for (field, raw, value) in [
        ("serial", top.serial, serial),
        ("lineage", top.lineage, lineage),
    ] {
        match raw {
            Some(raw) => {
                // A borrowed value is a slice of the body, so the pointer distance is its position.
                let start = raw.get().as_ptr().addr() - body.as_ptr().addr();
                changes.push((start..start + raw.get().len(), value));
            }
            None => {
                missing.extend(["\"", field, "\":", &value, ","]);
            }
        }
    }
    let open = body
        .iter()
        .position(|byte| *byte == b'{')
        .ok_or(InvalidState::NoVersion)?
        + 1;
    changes.push((open..open, missing));
    Ok(splice(body, changes))
}

/// Replaces parts that do not overlap.
fn splice(body: &[u8], mut changes: Vec<(Range<usize>, String)>) -> Vec<u8> {
    changes.sort_by_key(|(range, _)| range.start);
    let mut spliced = Vec::with_capacity(body.len() + 64);
    let mut done = 0;
    for (range, value) in changes {
        spliced.extend_from_slice(&body[done..range.start]);
        spliced.extend_from_slice(value.as_bytes());
        done = range.end;
    }
    spliced.extend_from_slice(&body[done..]);
    spliced
}

#[cfg(test)]
mod tests;
