//! Keys: the master key a person keeps, and the data keys it wraps, one per state and one for the
//! project.
//!
//! A wrapped key is a file, `keys/<state>/<generation>`, written before it is used: the files and
//! the master key together are enough to read everything.
//!
//! Not here: what is sealed with them (`sealing`).

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::state::StateName;

use crate::StoreError;
use crate::blobs::{Disk, make_dir, state_dir};
use crate::sealing::{UnsealError, open, seal};

const KEY_FORMAT: &str = "terrane-key-1";
const WRAPPED_FORMAT: &str = "terrane-wrapped-1";

/// There is one generation of each data key so far; files and blobs name it already.
const GENERATION: u32 = 1;

/// The master key. Who has it and the home's files can read every state.
#[derive(Clone)]
pub struct Keyring {
    id: String,
    master: Key,
    created: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenKeyringError {
    #[error("could not {deed} the master key `{path}`")]
    File {
        deed: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("`{path}` is not a master key: one line `terrane-key-1 ID BASE64` is expected")]
    Shape { path: PathBuf },
    #[error("the system gave no random bytes")]
    Random,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the data key `{path}` is gone, and what it sealed is still there")]
    Lost { path: PathBuf },
    #[error("`{path}` is not a wrapped key")]
    Shape { path: PathBuf },
    #[error("`{path}` was wrapped with master key `{needed}`; the one at hand is `{given}`")]
    OtherMaster {
        path: PathBuf,
        needed: String,
        given: String,
    },
    #[error("`{path}` does not open with the master key")]
    Unwrap { path: PathBuf, source: UnsealError },
    #[error("the system gave no random bytes")]
    Random,
}

/// Whose data key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Project,
    State(StateName),
}

/// 32 secret bytes.
#[derive(Clone)]
pub(crate) struct Key([u8; 32]);

/// The keys of one home, unwrapped when first needed.
#[derive(Debug)]
pub(crate) struct Keys {
    keyring: Keyring,
    disk: Disk,
    known: Mutex<HashMap<Scope, Arc<DataKey>>>,
}

#[derive(Debug)]
pub(crate) struct DataKey {
    pub(crate) generation: u32,
    pub(crate) key: Key,
}

impl Keyring {
    /// Reads the master key; makes one if there is none. Of several processes that make it at
    /// once, one wins and the others read what it made.
    pub fn open_or_create(path: &Path) -> Result<Self, OpenKeyringError> {
        let failed = |deed| {
            let path = path.to_owned();
            move |source| OpenKeyringError::File { deed, path, source }
        };
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path, false),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let key = Key::random().ok_or(OpenKeyringError::Random)?;
                let id = uuid::Uuid::new_v4().simple().to_string();
                let line = format!("{KEY_FORMAT} {} {}\n", &id[..8], BASE64.encode(key.0));
                let dir = path.parent().unwrap_or(Path::new("."));
                make_dir(dir).map_err(failed("make a directory for"))?;
                let name = path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default();
                let created = Disk::new(dir)
                    .write_new(name, line.as_bytes())
                    .map_err(|err| failed("write")(io::Error::other(err)))?;
                let text = fs::read_to_string(path).map_err(failed("read"))?;
                Self::parse(&text, path, created)
            }
            Err(err) => Err(failed("read")(err)),
        }
    }

    /// Whether it was made just now, so that its owner can be told to back it up.
    pub fn created(&self) -> bool {
        self.created
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    fn parse(text: &str, path: &Path, created: bool) -> Result<Self, OpenKeyringError> {
        let shape = || OpenKeyringError::Shape {
            path: path.to_owned(),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let [KEY_FORMAT, id, encoded] = words[..] else {
            return Err(shape());
        };
        let master = Key::from_base64(encoded).ok_or_else(shape)?;
        Ok(Self {
            id: id.to_owned(),
            master,
            created,
        })
    }
}

impl Scope {
    pub(crate) fn dir(&self) -> String {
        match self {
            // A state's directory has no `@`: it would be encoded.
            Self::Project => "@project".to_owned(),
            Self::State(state) => state_dir(state),
        }
    }
}

impl Keys {
    pub(crate) fn new(keyring: Keyring, disk: Disk) -> Self {
        Self {
            keyring,
            disk,
            known: Mutex::default(),
        }
    }

    /// The data key, made durable if this is its first use.
    pub(crate) fn get_or_create(&self, scope: &Scope) -> Result<Arc<DataKey>, StoreError> {
        if let Some(key) = self.lookup(scope)? {
            return Ok(key);
        }
        // A key that is missing although it was used must not be replaced by another one. The
        // project's is the first of all keys; a state's is older than its first version. A server's
        // first deed may be a refusal, which needs a state's key and no other.
        if let Scope::State(_) = scope {
            self.get_or_create(&Scope::Project)?;
        }
        let path = key_file(scope, GENERATION);
        let used = match scope {
            Scope::Project => self.disk.holds_another("keys", &scope.dir()),
            Scope::State(_) => self.disk.path(&format!("states/{}", scope.dir())).exists(),
        };
        if used && self.lookup(scope)?.is_none() {
            return Err(KeyError::Lost {
                path: self.disk.path(&path),
            }
            .into());
        }
        let key = Key::random().ok_or(KeyError::Random)?;
        let context = wrapping_context(scope, GENERATION);
        let wrapped =
            seal(&self.keyring.master, context.as_bytes(), &key.0).ok_or(KeyError::Random)?;
        let line = format!(
            "{WRAPPED_FORMAT} {} {}\n",
            self.keyring.id,
            BASE64.encode(wrapped)
        );
        self.disk.write_new(&path, line.as_bytes())?;
        // What counts is what is there: another process may have been first.
        self.get(scope)
    }

    /// The data key; it is an error if there is none.
    pub(crate) fn get(&self, scope: &Scope) -> Result<Arc<DataKey>, StoreError> {
        let path = || self.disk.path(&key_file(scope, GENERATION));
        self.lookup(scope)?
            .ok_or_else(|| KeyError::Lost { path: path() }.into())
    }

    fn lookup(&self, scope: &Scope) -> Result<Option<Arc<DataKey>>, StoreError> {
        let known = self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(scope)
            .cloned();
        if known.is_some() {
            return Ok(known);
        }
        let relative = key_file(scope, GENERATION);
        let Some(text) = self.disk.read_optional(&relative)? else {
            return Ok(None);
        };
        let key = self.unwrap(scope, &text, self.disk.path(&relative))?;
        let key = Arc::new(DataKey {
            generation: GENERATION,
            key,
        });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(scope.clone(), Arc::clone(&key));
        Ok(Some(key))
    }

    fn unwrap(&self, scope: &Scope, text: &[u8], path: PathBuf) -> Result<Key, KeyError> {
        let text = String::from_utf8_lossy(text);
        let words: Vec<&str> = text.split_whitespace().collect();
        let [WRAPPED_FORMAT, master, encoded] = words[..] else {
            return Err(KeyError::Shape { path });
        };
        if master != self.keyring.id {
            let given = self.keyring.id.clone();
            return Err(KeyError::OtherMaster {
                path,
                needed: master.to_owned(),
                given,
            });
        }
        let Ok(wrapped) = BASE64.decode(encoded) else {
            return Err(KeyError::Shape { path });
        };
        let context = wrapping_context(scope, GENERATION);
        let plain = match open(&self.keyring.master, context.as_bytes(), wrapped) {
            Ok(plain) => plain,
            Err(source) => return Err(KeyError::Unwrap { path, source }),
        };
        plain
            .try_into()
            .map(Key)
            .map_err(|_| KeyError::Shape { path })
    }
}

/// Random bytes from the kernel. Not from the crypto library, whose generator first gathers entropy of its
/// own for tens of milliseconds: too much for a process that lives as long.
pub(crate) fn random(bytes: &mut [u8]) -> Option<()> {
    getrandom::fill(bytes).ok()
}

impl Key {
    fn random() -> Option<Self> {
        let mut bytes = [0; 32];
        random(&mut bytes)?;
        Some(Self(bytes))
    }

    fn from_base64(encoded: &str) -> Option<Self> {
        BASE64.decode(encoded).ok()?.try_into().ok().map(Self)
    }

    pub(crate) fn aead(&self) -> Option<LessSafeKey> {
        Some(LessSafeKey::new(
            UnboundKey::new(&AES_256_GCM, &self.0).ok()?,
        ))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({})", self.id)
    }
}

fn key_file(scope: &Scope, generation: u32) -> String {
    format!("keys/{}/{generation}", scope.dir())
}

/// Ties a wrapped key to its owner: it does not open as the key of another state.
fn wrapping_context(scope: &Scope, generation: u32) -> String {
    let owner = match scope {
        Scope::Project => serde_json::json!({ "project": true }),
        Scope::State(state) => serde_json::json!({ "state": state }),
    };
    serde_json::json!({ "terrane": "data key", "owner": owner, "generation": generation })
        .to_string()
}

#[cfg(test)]
mod tests;
