//! Reads one version of a state: which one is selected, what it contains, what may be shown.

use model::base::actor::Actor;
use model::base::error::{Explain, NextStep, advice, command};
use model::base::masking::Mask;
use model::state::break_glass::BreakGlassAction;
use model::state::resources::{OpaqueState, StateDocument};
use model::state::version_ref::VersionRef;
use model::state::{StateName, StateVersion};
use serde_json::Value;
use store::{ChangeSetError, KeyedDigester, NewBreakGlass, Store, StoreError};

use super::ReadStateError;
use super::deleted::{self, Deletion};
use crate::Control;
use crate::state::redact_reason::without_secrets;
use crate::state::secret_paths;

/// Length of a shown digest: two values of a project rarely share one.
const SHORT: usize = 6;

#[derive(Debug, thiserror::Error)]
pub enum AskStateError {
    #[error(transparent)]
    Read(Box<ReadStateError>),
    #[error("state `{state}` has no version with serial {serial}")]
    NoSerial { state: StateName, serial: u64 },
    #[error("state `{state}` did not exist at {at}")]
    NotYet {
        state: StateName,
        at: jiff::Timestamp,
    },
    #[error(
        "state `{state}` was deleted on {}{}",
        .deleted.at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        .deleted.actor.as_ref().map(|actor| format!(", by {actor}")).unwrap_or_default()
    )]
    Deleted {
        state: StateName,
        deleted: Deletion,
        /// The newest version before the deletion.
        version: i64,
    },
    #[error("cannot read the contents of version {version} of state `{state}`: {source}")]
    Opaque {
        state: StateName,
        version: i64,
        source: OpaqueState,
    },
    #[error("there is no `{address}` in version {version} of state `{state}`")]
    NoAddress {
        state: StateName,
        version: i64,
        address: String,
        /// Similar addresses, or all if there are few.
        near: Vec<String>,
    },
    #[error("`{address}` has no attribute `{attribute}`")]
    NoAttribute {
        address: String,
        attribute: String,
        near: Vec<String>,
    },
    #[error("could not {action} state `{state}`")]
    Store {
        action: &'static str,
        state: StateName,
        source: Box<StoreError>,
    },
    #[error("could not list the states")]
    List(#[source] StoreError),
    #[error("cannot get the digest key")]
    Digest(#[source] StoreError),
    #[error("cannot read the author of a version")]
    Author(#[from] ChangeSetError),
}

impl Explain for AskStateError {
    fn next_steps(&self) -> Vec<NextStep> {
        let quoted = |near: &[String]| {
            let names: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
            names.join(", ")
        };
        match self {
            Self::NoAddress { near, .. } | Self::NoAttribute { near, .. } if !near.is_empty() => {
                vec![advice(format!("it has {}", quoted(near)))]
            }
            Self::NoAddress { state, .. } => {
                vec![command(
                    format!("state list {state}"),
                    "lists its resources",
                )]
            }
            Self::NotYet { state, .. } | Self::NoSerial { state, .. } => vec![see_versions(state)],
            Self::Deleted { state, version, .. } => vec![
                advice(format!("`--version {version}` shows its last content")),
                command(
                    format!("state rollback {state} --to {version} --reason …"),
                    "restores it",
                ),
            ],
            Self::Read(err) => match &**err {
                ReadStateError::NoVersion { state, .. } => vec![see_versions(state)],
                ReadStateError::NoState { .. } => {
                    vec![command("state list", "lists all states")]
                }
                ReadStateError::Store { .. } => Vec::new(),
            },
            Self::Opaque {
                source: OpaqueState::Encrypted,
                state,
                ..
            } => vec![
                command(
                    format!("state pull {state}"),
                    "prints the version as it was stored",
                ),
                advice("the engine can decrypt it"),
            ],
            _ => Vec::new(),
        }
    }
}

impl From<ReadStateError> for AskStateError {
    fn from(err: ReadStateError) -> Self {
        Self::Read(Box::new(err))
    }
}

fn see_versions(state: &StateName) -> NextStep {
    command(
        format!("state versions {state}"),
        "lists all stored versions",
    )
}

/// Wraps a store error with the failed action and the state.
pub(super) fn store_failed(
    action: &'static str,
    state: &StateName,
) -> impl Fn(StoreError) -> AskStateError {
    move |source| AskStateError::Store {
        action,
        state: state.clone(),
        source: Box::new(source),
    }
}

/// A version and its content.
#[derive(Clone, Debug)]
pub struct VersionDocument {
    pub version: StateVersion,
    pub document: StateDocument,
}

/// Digests of values: equal values of a home have equal digests, which reveal nothing else.
#[derive(Clone, Debug)]
pub struct ValueDigests(KeyedDigester);

impl ValueDigests {
    pub async fn of(control: &Control) -> Result<Self, AskStateError> {
        let digester = control.store.keyed_digester("state value").await;
        digester.map(Self).map_err(AskStateError::Digest)
    }

    pub fn whole(&self, value: &Value) -> String {
        self.0.digest(value.to_string().as_bytes())
    }

    /// A short form for people.
    pub fn short(&self, value: &Value) -> String {
        let mut digest = self.whole(value);
        digest.truncate(SHORT);
        digest
    }
}

/// Finds the selected version.
pub async fn pick(
    control: &Control,
    state: &StateName,
    pick: VersionRef,
) -> Result<StateVersion, AskStateError> {
    let versions = control.store.state_version_list(state).await;
    let versions = versions.map_err(store_failed("list the versions of", state))?;
    let gone = deleted::deleted(control, state).await;
    let gone = gone.map_err(store_failed("look at", state))?;
    let state = state.clone();
    let Some(newest) = versions.last() else {
        return Err(ReadStateError::NoState { state }.into());
    };
    if let Some(deleted) = gone.filter(|gone| gone.is_meant_by(pick)) {
        return Err(AskStateError::Deleted {
            state,
            deleted,
            version: newest.version,
        });
    }
    match pick.find(&versions) {
        Some(version) => Ok(version.clone()),
        None => Err(match pick {
            VersionRef::Head => ReadStateError::NoState { state }.into(),
            VersionRef::Version(version) => ReadStateError::NoVersion { state, version }.into(),
            VersionRef::Serial(serial) => AskStateError::NoSerial { state, serial },
            VersionRef::At(at) => AskStateError::NotYet { state, at },
        }),
    }
}

/// A version and its content, ready to be shown; fails if the content cannot be read.
pub async fn document(
    control: &Control,
    state: &StateName,
    which: VersionRef,
) -> Result<VersionDocument, AskStateError> {
    let version = pick(control, state, which).await?;
    let read = read_document(&control.store, &version).await?;
    let document = read.map_err(|source| AskStateError::Opaque {
        state: state.clone(),
        version: version.version,
        source,
    })?;
    Ok(VersionDocument { version, document })
}

/// The content of a version, or why it cannot be read.
pub async fn read_document(
    store: &Store,
    version: &StateVersion,
) -> Result<Result<StateDocument, OpaqueState>, AskStateError> {
    let document = secret_paths::document(store, version).await;
    document.map_err(store_failed("read", &version.state))
}

/// The version before another one, if it is still stored.
pub async fn predecessor(
    control: &Control,
    version: &StateVersion,
) -> Result<Option<StateVersion>, AskStateError> {
    let versions = control.store.state_version_list(&version.state).await;
    let versions = versions.map_err(store_failed("list the versions of", &version.state))?;
    let before = versions.into_iter().rev();
    let mut before = before.filter(|other| other.version < version.version);
    Ok(before.next())
}

impl VersionDocument {
    /// Keeps only the objects at an address: of a resource, of one instance, or an output.
    pub fn only(mut self, address: &str) -> Result<Self, AskStateError> {
        let not_there = self.no_address(address);
        let output = address.strip_prefix("output.");
        let mask = self.document.mask();
        let instances = &mut self.document.instances;
        instances.retain(|instance| is_at(&instance.address, address, &mask));
        self.document.outputs.retain(|name, _| {
            output.is_some_and(|output| name == output || mask.mask_text(name) == output)
        });
        if self.document.instances.is_empty() && self.document.outputs.is_empty() {
            return Err(not_there);
        }
        Ok(self)
    }

    /// Masks names, for users without access to secrets.
    #[must_use]
    pub fn with_masked_names(mut self, mask: &Mask) -> Self {
        self.document = self.document.with_masked_names(mask);
        self
    }

    pub fn no_address(&self, address: &str) -> AskStateError {
        let last = address.rsplit('.').next().unwrap_or(address).to_lowercase();
        let outputs = || self.document.outputs.keys();
        let mask = self.document.mask();
        let all = || {
            let resources = self.document.instances.iter();
            let resources = resources.map(|it| mask.mask_text(&it.address));
            resources.chain(outputs().map(|name| mask.mask_text(&format!("output.{name}"))))
        };
        let mut near: Vec<String> = all()
            .filter(|it| it.to_lowercase().contains(&last))
            .collect();
        if near.is_empty() {
            near = all().collect();
        }
        if near.len() > 6 {
            near.clear();
        }
        AskStateError::NoAddress {
            state: self.version.state.clone(),
            version: self.version.version,
            address: address.to_owned(),
            near,
        }
    }
}

/// Whether an address matches, either as stored or as shown. The address of a resource matches all its
/// instances.
pub(super) fn is_at(found: &str, asked: &str, mask: &Mask) -> bool {
    let begins = |found: &str| {
        let rest = found.strip_prefix(asked);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', ' ']))
    };
    begins(found) || begins(&mask.mask_text(found))
}

/// Records that sensitive values are shown, before they are shown.
pub async fn record_reveal(
    control: &Control,
    state: &StateName,
    actor: &Actor,
    reason: &str,
    detail: String,
) -> Result<(), AskStateError> {
    let reason = without_secrets(control, std::slice::from_ref(state), reason).await;
    let record = NewBreakGlass {
        act: BreakGlassAction::Revealed,
        state,
        actor,
        reason: Some(&reason),
        detail,
    };
    let opened = control.store.break_glass_open(&record).await;
    opened
        .map(drop)
        .map_err(store_failed("record that values are shown of", state))
}
