//! Sources of master keys, listing them, and rotation.
//!
//! Not here: wrapping (`store::key`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use drivers::process::Environment;
use drivers::secrets::{self, SecretContext, SecretError, SecretReference, SecretSources};
use model::base::age_identity::AgeIdentity;
use model::base::error::{Explain, NextStep, advice, command};
use model::base::secret::Secret;
use store::{Keyring, OpenKeyringError, OpenMode, OpenStoreError, Store, StoreError};

use crate::Control;

/// Where the master key is stored.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// Created on first use.
    File(PathBuf),
    /// `TERRANE_KEY`, or a key that the caller read from `origin`.
    Text { key: Secret, origin: String },
    /// `TERRANE_KEY_AGE`: an identity that decrypts the file.
    Age {
        identity: AgeIdentity,
        file: PathBuf,
    },
    /// `TERRANE_KEY_COMMAND`: a command that prints the key.
    Command {
        line: String,
        dir: PathBuf,
        env: BTreeMap<String, String>,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum ReadKeyError {
    #[error("could not read the master key")]
    Keyring(#[from] OpenKeyringError),
    #[error("could not get the master key from the command in `TERRANE_KEY_COMMAND`")]
    Command(#[from] SecretError),
}

impl Explain for ReadKeyError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Keyring(OpenKeyringError::NoAgeFile { path }) => vec![advice(format!(
                "encrypt the key for that identity: `age -r RECIPIENT -o {} master.key`",
                path.display()
            ))],
            Self::Keyring(_) | Self::Command(_) => Vec::new(),
        }
    }
}

impl KeySource {
    /// A key given as text, not in a file.
    pub fn text(key: Secret) -> Self {
        let origin = "`TERRANE_KEY`".to_owned();
        Self::Text { key, origin }
    }

    /// A description without the key.
    pub fn describe(&self) -> String {
        match self {
            Self::File(path) => format!("`{}`", path.display()),
            Self::Text { origin, .. } => origin.clone(),
            Self::Age { file, .. } => {
                format!("`{}`, by way of `TERRANE_KEY_AGE`", file.display())
            }
            Self::Command { .. } => "`TERRANE_KEY_COMMAND`".to_owned(),
        }
    }

    /// Whether the key file does not exist yet; opening a home creates it.
    pub fn is_to_be_made(&self) -> bool {
        self.file().is_some_and(|path| !path.exists())
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text { .. } | Self::Age { .. } | Self::Command { .. } => None,
        }
    }

    pub(crate) async fn read(&self) -> Result<Keyring, ReadKeyError> {
        Ok(match self {
            Self::File(path) => Keyring::open_or_create(path)?,
            Self::Text { key, origin } => Keyring::from_text(key, origin)?,
            Self::Age { identity, file } => Keyring::open_age(file, identity)?,
            Self::Command { line, dir, env } => {
                let reference: SecretReference = format!("command:{line}").parse()?;
                let seen: Environment = env
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.clone()))
                    .collect();
                let around = SecretContext {
                    asker: env,
                    root: dir,
                    env: &seen,
                    sources: &SecretSources::default(),
                };
                let text = secrets::resolve(&reference, around).await?;
                Keyring::from_text(&text, "what the command in `TERRANE_KEY_COMMAND` prints")?
            }
        })
    }
}

/// Minimum time between two calls of the key command.
const COMMAND_AT_MOST_EVERY: Duration = Duration::from_secs(5);

impl KeySource {
    /// Lets `store` read the keys again when it finds an unknown one, for example after a rotation. A key
    /// given as text cannot change.
    pub(crate) fn renew(&self, store: &Store) {
        match self.clone() {
            Self::Text { .. } => {}
            Self::File(path) => store.key_renew_from(move || Keyring::open(&path).ok()),
            Self::Age { identity, file } => {
                store.key_renew_from(move || Keyring::open_age(&file, &identity).ok());
            }
            Self::Command { .. } => {
                let source = self.clone();
                let last: Mutex<Option<Instant>> = Mutex::default();
                store.key_renew_from(move || {
                    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                    if last.is_some_and(|last| last.elapsed() < COMMAND_AT_MOST_EVERY) {
                        return None;
                    }
                    let read = source.read_elsewhere();
                    *last = Some(Instant::now());
                    read
                });
            }
        }
    }
}

impl KeySource {
    /// Reads the keys on a separate thread with its own runtime: the calling thread may not be allowed to
    /// block on one.
    fn read_elsewhere(&self) -> Option<Keyring> {
        let source = self.clone();
        let read = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().ok()?;
            runtime.block_on(source.read()).ok()
        });
        read.join().ok().flatten()
    }
}

/// A master key, whether available here or only referenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterKey {
    pub id: String,
    /// Whether it wraps new data keys.
    pub wraps: bool,
    pub at_hand: bool,
    /// How many data keys it wraps.
    pub data_keys: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("cannot list the data keys")]
    List(#[source] StoreError),
    #[error(transparent)]
    Read(#[from] ReadKeyError),
    #[error("cannot store a new master key: the current one comes from {origin}")]
    NoPlace { origin: String },
    #[error("`{}` contains the master key that is in use: nothing was rotated", file.display())]
    InUse { file: PathBuf },
    #[error("cannot store the new master key")]
    Write(#[source] OpenKeyringError),
    #[error("could not open the home with the new master key")]
    Open(#[source] Box<OpenStoreError>),
    #[error("cannot wrap the data keys with the new master key")]
    Rewrap(#[source] StoreError),
}

impl Explain for KeysError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![match self {
            Self::NoPlace { .. } => command("key rotate --to FILE", "writes the new key to a file"),
            Self::InUse { .. } => advice(
                "name a file that does not exist yet, or omit `--to` to put the new key first in the present file",
            ),
            Self::Rewrap(_) => {
                advice("nothing is lost: both keys are stored; repeat the command to finish")
            }
            Self::Read(err) => return err.next_steps(),
            Self::List(_) | Self::Write(_) | Self::Open(_) => return Vec::new(),
        }]
    }
}

/// Lists the wrapping key first, then other available keys, then missing ones.
pub async fn list(control: &Control) -> Result<Vec<MasterKey>, KeysError> {
    let keyring = control.home.key().read().await?;
    let wrapped = control.store.key_list().await.map_err(KeysError::List)?;
    let count = |id: &str| wrapped.iter().filter(|key| key.master == id).count();
    let mut masters: Vec<MasterKey> = keyring
        .ids()
        .map(|id| MasterKey {
            id: id.to_owned(),
            wraps: id == keyring.id(),
            at_hand: true,
            data_keys: count(id),
        })
        .collect();
    let needed: BTreeSet<&str> = wrapped.iter().map(|key| key.master.as_str()).collect();
    for id in needed {
        if !masters.iter().any(|master| master.id == id) {
            masters.push(MasterKey {
                id: id.to_owned(),
                wraps: false,
                at_hand: false,
                data_keys: count(id),
            });
        }
    }
    Ok(masters)
}

/// The result of a rotation.
#[derive(Clone, Debug)]
pub struct KeyRotation {
    pub new: String,
    pub old: Vec<String>,
    /// The file with the new key, followed by the old ones.
    pub file: PathBuf,
    pub rewrapped: usize,
    /// Whether this finished an earlier, interrupted rotation.
    pub resumed: bool,
    /// Whether the new key is stored elsewhere than the old one: users of the home need to know the new
    /// location.
    pub moved: bool,
}

/// Creates a new master key, stores it durably, then wraps all data keys with it. Data that the data keys
/// encrypt does not change.
pub async fn rotate(control: &Control, to: Option<&Path>) -> Result<KeyRotation, KeysError> {
    let source = control.home.key();
    let old = source.read().await?;
    let moved = to.is_some() && to != source.file();
    let file = place_for(control, to)?;
    let (keyring, resumed) = begin(control, &old, &file, moved).await?;
    let store = control
        .home
        .store()
        .open(keyring.clone(), OpenMode::Cli)
        .await;
    let store = store.map_err(|err| KeysError::Open(Box::new(err)))?;
    let mut rewrapped = 0;
    // Meanwhile, a process that has only the old key may wrap another data key.
    loop {
        let round = store.key_rewrap(usize::MAX).await;
        let round = round.map_err(KeysError::Rewrap)?;
        rewrapped += round.done;
        if round.done == 0 {
            break;
        }
    }
    Ok(KeyRotation {
        new: keyring.id().to_owned(),
        old: keyring.ids().skip(1).map(str::to_owned).collect(),
        file,
        rewrapped,
        resumed,
        moved,
    })
}

/// The file for a new master key.
pub fn place_for(control: &Control, to: Option<&Path>) -> Result<PathBuf, KeysError> {
    let source = control.home.key();
    let file = to.or(source.file()).ok_or_else(|| KeysError::NoPlace {
        origin: source.describe(),
    })?;
    Ok(file.to_owned())
}

/// Stores a keyring with a new first key in `file`. The key of an unfinished rotation is reused.
async fn begin(
    control: &Control,
    old: &Keyring,
    file: &Path,
    moved: bool,
) -> Result<(Keyring, bool), KeysError> {
    if moved && file.exists() {
        let begun = Keyring::open_or_create(file).map_err(KeysError::Write)?;
        if begun.id() == old.id() {
            let file = file.to_owned();
            return Err(KeysError::InUse { file });
        }
        return Ok((begun.followed_by(old), true));
    }
    let wrapped = control.store.key_list().await.map_err(KeysError::List)?;
    let first_wraps_all = wrapped.iter().all(|key| key.master == old.id());
    if !moved && !first_wraps_all {
        return Ok((old.clone(), true));
    }
    let new = Keyring::generate().map_err(KeysError::Write)?;
    let new = new.followed_by(old);
    new.write(file).map_err(KeysError::Write)?;
    Ok((new, false))
}
