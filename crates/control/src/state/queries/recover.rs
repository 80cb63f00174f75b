//! `state recover`: decrypts everything in a home or a copy of a bucket into a directory, with only the key
//! and the files.
//!
//! Not here: how frames are found and decrypted (`store`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use model::base::error::{ErrorKind, Explain, NextStep, advice, causes, command};
use model::state::break_glass::BreakGlassAction;
use model::state::secret_paths::SecretPaths;
use model::state::{
    Contents, ExpectedHead, RivalVersion, StateName, StateVersion, VersionMark, with_identity,
};
use serde::Serialize;
use serde_json::json;
use store::{
    Acknowledgement, Appended, BreakGlassRecord, KeyError, ManualWrite, OpenStoreError,
    RebuildReport, RecoveredItem, Store, StoreError, file_name,
};

use crate::home::master_keys::{KeySource, ReadKeyError};
use crate::home::{Home, make_private};
use crate::state::queries::restore_report::RestoreReport;
use crate::state::redact_reason::BreakGlassReason;
use crate::state::surgery::manual_lock;

/// The next step for a home whose keys another master key encrypts.
pub const OTHER_KEY: &str =
    "name the right key (`TERRANE_KEY_FILE`); `terrane key list` says which are needed";

#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("there is no master key in {origin}")]
    NoKey { origin: String },
    #[error(transparent)]
    Key(#[from] ReadKeyError),
    #[error("`{}` contains no versions: neither it nor a directory below it contains `segments`", path.display())]
    NoHome { path: PathBuf },
    #[error("`{}` is not empty", path.display())]
    NotEmpty { path: PathBuf },
    #[error("could not read `{}`", path.display())]
    Read { path: PathBuf, source: StoreError },
    #[error("could not write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Explain for RecoverError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NoKey { .. } => vec![advice("name the key: `--key FILE`")],
            Self::NoHome { .. } => vec![advice("name the home, or a copy: `--data DIR`")],
            Self::NotEmpty { .. } => vec![advice("name a new directory: `--to OUT`")],
            Self::Key(err) => err.next_steps(),
            Self::Read { .. } | Self::Write { .. } => Vec::new(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error("there is no home `{home}`")]
    NoHome { home: String },
    #[error("there is no master key in {origin}")]
    NoKey { origin: String },
    #[error(transparent)]
    Key(#[from] ReadKeyError),
    #[error("could not open the home `{home}`")]
    Open {
        home: String,
        source: Box<OpenStoreError>,
    },
    #[error("cannot rebuild the database of `{home}` from its files")]
    Rebuild { home: String, source: StoreError },
    #[error("state `{state}` has no lost version")]
    NothingLost { state: String },
    #[error(
        "cannot decrypt any version of state `{state}` with this master key; another key may decrypt them all"
    )]
    OtherMaster { state: StateName },
    #[error("state `{state}` has no readable version {version}")]
    NoVersion { state: StateName, version: i64 },
    #[error("version {version} of state `{state}` is readable")]
    Opens { state: StateName, version: i64 },
    #[error("cannot start state `{state}` again")]
    Begin {
        state: StateName,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("cannot continue from version {version} of state `{state}`")]
    GoOn {
        state: StateName,
        version: i64,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Explain for RebuildError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Opens { .. } | Self::NothingLost { .. } | Self::NoVersion { .. } => {
                ErrorKind::Usage
            }
            _ => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NoKey { .. } => vec![advice("name the key: `--key FILE`")],
            Self::NoHome { .. } => vec![advice("name the home: `--data DIR`")],
            Self::OtherMaster { .. } => vec![advice(OTHER_KEY)],
            Self::Opens { version, state } => vec![
                advice(format!(
                    "`--accept-loss {state}@{version}` continues from it"
                )),
                command(
                    format!("state rollback {state} --to {version} --reason …"),
                    "does so as well",
                ),
            ],
            Self::NothingLost { .. } | Self::NoVersion { .. } => vec![command(
                "state recover --into-home",
                "lists what is lost, and what can be read",
            )],
            _ => Vec::new(),
        }
    }
}

/// The point before the first version: a state without any readable version starts again empty.
const BEGINNING: i64 = 0;

/// A person's decision to continue a state from an older version, although newer ones were acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedLoss {
    /// As the user wrote it: `PROJECT/NAME`, or only the name in its own project.
    pub state: String,
    pub version: i64,
}

/// The result of `into_home`.
#[derive(Debug)]
pub struct HomeRebuild {
    pub rebuilt: RestoreReport,
    /// The new heads of states whose newest versions are lost.
    pub went_on: Vec<StateVersion>,
}

/// Adds what only a home's files contain to its tables. A state whose newest versions cannot be decrypted
/// stays unchanged, unless `accepted` gives the version to continue from.
pub async fn into_home(
    home: &Home,
    accepted: &[AcceptedLoss],
    reason: Option<&BreakGlassReason>,
) -> Result<HomeRebuild, RebuildError> {
    let name = home.store().describe();
    // Only tables are created here: a new home, or a new key, would contain nothing.
    if home.store().directory().is_some_and(|dir| !dir.is_dir()) {
        return Err(RebuildError::NoHome { home: name });
    }
    if home.key().is_to_be_made() {
        let origin = home.key().describe();
        return Err(RebuildError::NoKey { origin });
    }
    let keys = home.key().read().await?;
    let store = home.store().open_to_rebuild(keys).await;
    let store = store.map_err(|source| RebuildError::Open {
        home: name.clone(),
        source: Box::new(source),
    })?;
    let listed = |source| RebuildError::Rebuild {
        home: name.clone(),
        source,
    };
    let mut rebuilt = store.rebuild().await.map_err(listed)?;
    let mut went_on = Vec::new();
    for loss in accepted {
        let is_its = |state: &StateName| {
            let is_here = state.project == home.project() && state.name == loss.state;
            is_here || state.to_string() == loss.state
        };
        let nothing_lost = || RebuildError::NothingLost {
            state: loss.state.clone(),
        };
        let reason = reason.ok_or_else(nothing_lost)?;
        let wrote = if loss.version == BEGINNING {
            let lost = ContinuedState::of(&rebuilt, is_its);
            let all = store.state_list().await.map_err(listed)?;
            let mut all = all.into_iter().map(|row| row.name);
            let state = lost.as_ref().map(|lost| lost.state.clone());
            let state = state.or_else(|| all.find(|name| is_its(name)));
            begin_anew(&store, lost, state.ok_or_else(nothing_lost)?, reason).await?
        } else {
            let from = ContinuedState::of(&rebuilt, is_its).ok_or_else(nothing_lost)?;
            go_on(&store, &from, loss.version, reason).await?
        };
        rebuilt.lost.retain(|lost| lost.state != wrote.state);
        rebuilt
            .rivals
            .retain(|rival| rival.version.state != wrote.state);
        went_on.push(wrote);
    }
    Ok(HomeRebuild {
        rebuilt: rebuilt.into(),
        went_on,
    })
}

/// How a state continues after a person's decision.
struct ContinuedState {
    state: StateName,
    /// Version numbers up to this one are skipped.
    beyond: i64,
    /// A serial that no lost version had.
    serial: u64,
    /// Whether another master key may decrypt the versions.
    of_the_key: bool,
    /// The description for the record.
    lost: String,
}

impl ContinuedState {
    fn of(rebuilt: &RebuildReport, is_its: impl Fn(&StateName) -> bool) -> Option<Self> {
        let lost = rebuilt.lost.iter().find(|lost| is_its(&lost.state));
        let of_lost = lost.map(|lost| Self {
            state: lost.state.clone(),
            beyond: lost.acknowledged,
            serial: lost.serial,
            of_the_key: lost.is_of_the_key(),
            lost: format!(
                "what came after it, up to version {}, is lost",
                lost.acknowledged
            ),
        });
        of_lost.or_else(|| {
            let rivals = rebuilt.rivals.iter();
            let mut rivals = rivals.filter(|rival| is_its(&rival.version.state));
            let RivalVersion { version, newest } = rivals.next()?;
            let serial = rivals.map(|rival| rival.version.serial).max();
            let serial = serial.max(Some(version.serial.max(newest.serial)));
            Some(Self {
                state: version.state.clone(),
                beyond: newest.version.saturating_add(1),
                serial: serial.unwrap_or_default().saturating_add(1),
                of_the_key: false,
                lost: format!(
                    "another version {} was acknowledged beside it",
                    version.version
                ),
            })
        })
    }
}

/// Makes the content of an older version the newest again, with a number and a serial that no lost version
/// had. A written version is never withdrawn, and a lost one is never confused with another.
async fn go_on(
    store: &Store,
    from: &ContinuedState,
    version: i64,
    reason: &BreakGlassReason,
) -> Result<StateVersion, RebuildError> {
    let state = &from.state;
    if from.of_the_key {
        let state = state.clone();
        return Err(RebuildError::OtherMaster { state });
    }
    let old = store.state_version_get(state, version).await;
    let old = old.map_err(not_gone_on(state, version))?;
    let Some(old) = old else {
        let state = state.clone();
        return Err(RebuildError::NoVersion { state, version });
    };
    let content = store.state_version_content(&old).await;
    let (body, paths) = content.map_err(not_gone_on(state, version))?;
    let mut body = body.to_vec();
    // An encrypted state contains its own serial, which cannot be changed without the key.
    if old.contents != Contents::Encrypted {
        let next = with_identity(&body, from.serial, &old.lineage);
        body = next.map_err(not_gone_on(state, version))?;
    }
    let detail = format!(
        "content of version {version} (serial {}) again: {}",
        old.serial, from.lost
    );
    let written = write(store, from, (body, &paths), detail, reason).await;
    written.map_err(|source| RebuildError::GoOn {
        state: state.clone(),
        version,
        source,
    })
}

/// Makes an empty version the newest, if no other version can be decrypted.
async fn begin_anew(
    store: &Store,
    lost: Option<ContinuedState>,
    state: StateName,
    reason: &BreakGlassReason,
) -> Result<StateVersion, RebuildError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| RebuildError::Begin {
        state: state.clone(),
        source,
    };
    let versions = store.state_version_list(&state).await;
    let versions = versions.map_err(|err| failed(err.into()))?;
    let mut is_of_the_key = lost.as_ref().is_some_and(|lost| lost.of_the_key);
    for version in versions.iter().rev() {
        match store.state_version_read(version).await {
            Ok(_) => {
                let (state, version) = (state.clone(), version.version);
                return Err(RebuildError::Opens { state, version });
            }
            Err(StoreError::Key(KeyError::OtherMaster { .. })) => is_of_the_key = true,
            // An outage of a service is not a loss.
            Err(err) if err.is_unavailable() && !err.is_not_found() => {
                return Err(failed(err.into()));
            }
            Err(_) => {}
        }
    }
    if is_of_the_key {
        return Err(RebuildError::OtherMaster { state });
    }
    let newest = versions.last();
    let from = match (lost, newest) {
        (Some(lost), _) => lost,
        (None, Some(newest)) => ContinuedState {
            state: state.clone(),
            beyond: newest.version.saturating_add(1),
            serial: newest.serial.saturating_add(1),
            of_the_key: false,
            lost: format!("no version up to {} opens", newest.version),
        },
        (None, None) => {
            let state = state.to_string();
            return Err(RebuildError::NothingLost { state });
        }
    };
    let given_up = store.state_replace_lost_key(&state).await;
    given_up.map_err(|err| failed(err.into()))?;
    let lineage = uuid::Uuid::new_v4().to_string();
    let body = json!({
        "version": 4,
        "serial": from.serial,
        "lineage": lineage,
        "outputs": {},
        "resources": [],
    });
    let body = body.to_string().into_bytes();
    let detail = format!("started again without resources: {}", from.lost);
    let nothing = SecretPaths::default();
    let written = write(store, &from, (body, &nothing), detail, reason).await;
    written.map_err(failed)
}

async fn write(
    store: &Store,
    from: &ContinuedState,
    (body, secret_paths): (Vec<u8>, &SecretPaths),
    detail: String,
    reason: &BreakGlassReason,
) -> Result<StateVersion, Box<dyn std::error::Error + Send + Sync>> {
    let state = &from.state;
    let info = manual_lock(reason, Timestamp::now());
    let expected = ExpectedHead::Any;
    store.lock_acquire(state, &info, None, expected).await?;
    let by_hand = ManualWrite {
        lock_id: info.id.clone(),
        mark: Some(VersionMark::RolledBack),
        surgery: true,
        beyond: from.beyond,
        secret_paths: secret_paths.clone(),
        record: BreakGlassRecord {
            act: BreakGlassAction::StateRolledBack,
            actor: reason.actor.clone(),
            reason: reason.text.clone(),
            detail,
        },
    };
    let appended = store
        .state_version_append_manual(state, by_hand, body)
        .await;
    drop(store.lock_release(state, &info.id).await);
    let (Appended::New(wrote) | Appended::Same(wrote)) = appended?;
    Ok(wrote)
}

fn not_gone_on<E: std::error::Error + Send + Sync + 'static>(
    state: &StateName,
    version: i64,
) -> impl FnOnce(E) -> RebuildError {
    let state = state.clone();
    move |err| RebuildError::GoOn {
        state,
        version,
        source: Box::new(err),
    }
}

const INDEX: &str = "index.json";

/// What was found and written; also the content of the index.
#[derive(Debug, Default, Serialize)]
pub struct RecoverReport {
    pub versions: Vec<RecoveredVersion>,
    /// Refused writes.
    pub refused: Vec<PathBuf>,
    /// Files that stacks wrote.
    pub artifacts: Vec<PathBuf>,
    pub damaged: Vec<DamagedPiece>,
}

#[derive(Debug, Serialize)]
pub struct RecoveredVersion {
    /// Relative to the given directory.
    pub file: PathBuf,
    pub standing: RecoveredStatus,
    #[serde(flatten)]
    pub version: StateVersion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveredStatus {
    Acknowledged,
    NotProvablyAcknowledged,
    /// Another version with the same number was acknowledged.
    Superseded,
}

/// Data that exists but cannot be read.
#[derive(Debug, Serialize)]
pub struct DamagedPiece {
    pub state: StateName,
    /// `None` for a refused write and for artifacts.
    pub version: Option<i64>,
    pub why: Vec<String>,
}

/// Writes each version to `to/PROJECT/STATE/VERSION-SERIAL.tfstate`. `data` is a home, or a directory of homes.
pub async fn recover(
    data: &Path,
    key: &KeySource,
    to: &Path,
) -> Result<RecoverReport, RecoverError> {
    // Creating a key would only hide that the right one is missing.
    if key.is_to_be_made() {
        let origin = key.describe();
        return Err(RecoverError::NoKey { origin });
    }
    let keyring = key.read().await?;
    let homes = homes(data);
    if homes.is_empty() {
        return Err(RecoverError::NoHome {
            path: data.to_owned(),
        });
    }
    if fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(RecoverError::NotEmpty {
            path: to.to_owned(),
        });
    }
    let mut output = RecoverOutput::new(to);
    for home in homes {
        let mut failed = None;
        let each = |recovered| {
            if failed.is_none() {
                failed = output.take(recovered).err();
            }
        };
        let read = store::recover(&home, keyring.clone(), each);
        read.map_err(|source| RecoverError::Read { path: home, source })?;
        if let Some(failed) = failed {
            return Err(failed);
        }
    }
    let index = serde_json::to_vec_pretty(&output.report).map_err(|err| RecoverError::Write {
        path: to.join(INDEX),
        source: err.into(),
    })?;
    output.write(Path::new(INDEX), &index)?;
    Ok(output.report)
}

/// A home has segments; a directory of homes has one for each project.
fn homes(data: &Path) -> Vec<PathBuf> {
    let is_home = |dir: &Path| dir.join("segments").is_dir();
    if is_home(data) {
        return vec![data.to_owned()];
    }
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    let mut homes: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|dir| is_home(dir))
        .collect();
    homes.sort();
    homes
}

struct RecoverOutput<'a> {
    to: &'a Path,
    taken: BTreeSet<PathBuf>,
    report: RecoverReport,
}

impl<'a> RecoverOutput<'a> {
    fn new(to: &'a Path) -> Self {
        Self {
            to,
            taken: BTreeSet::new(),
            report: RecoverReport::default(),
        }
    }

    fn take(&mut self, recovered: RecoveredItem) -> Result<(), RecoverError> {
        match recovered {
            RecoveredItem::Version {
                version,
                digest,
                standing,
                body: Ok(body),
            } => {
                let (number, serial) = (version.version, version.serial);
                let dir = dir_of(&version.state);
                let mut file = dir.join(format!("{number}-{serial}.tfstate"));
                if !self.taken.insert(file.clone()) {
                    file = dir.join(format!("{number}-{serial}-{}.tfstate", &digest[..12]));
                }
                self.write(&file, &body)?;
                self.report.versions.push(RecoveredVersion {
                    file,
                    standing: match standing {
                        Acknowledgement::Acknowledged => RecoveredStatus::Acknowledged,
                        Acknowledgement::NotProvable => RecoveredStatus::NotProvablyAcknowledged,
                        Acknowledgement::Superseded => RecoveredStatus::Superseded,
                    },
                    version: *version,
                });
            }
            RecoveredItem::Version {
                version,
                body: Err(err),
                ..
            } => self.report.damaged.push(DamagedPiece {
                why: why(&err),
                version: Some(version.version),
                state: version.state,
            }),
            RecoveredItem::Lost {
                state,
                version,
                error,
            } => self.report.damaged.push(DamagedPiece {
                why: why(&error),
                version: Some(version),
                state,
            }),
            RecoveredItem::Refused {
                state,
                name,
                body: Ok(body),
            } => {
                let file = dir_of(&state).join("refused").join(name);
                self.write(&file, &body)?;
                self.report.refused.push(file);
            }
            RecoveredItem::Artifacts {
                state,
                set: Ok(set),
            } => {
                for (path, file) in set.iter() {
                    let place = dir_of(&state).join("artifacts").join(path);
                    self.write(&place, file.expose())?;
                    self.report.artifacts.push(place);
                }
            }
            RecoveredItem::Refused {
                state,
                body: Err(err),
                ..
            }
            | RecoveredItem::Artifacts {
                state,
                set: Err(err),
            } => self.report.damaged.push(DamagedPiece {
                state,
                version: None,
                why: why(&err),
            }),
        }
        Ok(())
    }

    fn write(&self, file: &Path, bytes: &[u8]) -> Result<(), RecoverError> {
        let path = self.to.join(file);
        let written = || {
            make_private(path.parent().unwrap_or(self.to))?;
            let mut options = File::options();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        written().map_err(|source| RecoverError::Write {
            path: path.clone(),
            source,
        })
    }
}

/// States without a project are stored beside the projects.
fn dir_of(state: &StateName) -> PathBuf {
    let name = PathBuf::from(file_name(&state.name));
    if state.project.is_empty() {
        name
    } else {
        Path::new(&file_name(&state.project)).join(name)
    }
}

fn why(error: &dyn std::error::Error) -> Vec<String> {
    let mut why = vec![error.to_string()];
    why.extend(causes(error).map(ToString::to_string));
    why
}
