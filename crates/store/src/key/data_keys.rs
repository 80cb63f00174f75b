//! Data keys: one per state and one for the project, wrapped by a master key.
//!
//! A wrapped key is a file, `keys/<state>/<generation>`, written before its first use: the files and the master key
//! are enough to read everything.
//!
//! Not here: master keys (`keyring`), what is sealed with data keys (`sealing`).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::state::StateName;

use crate::StoreError;
use crate::blob::{Blobs, state_dir};
use crate::crypto::{Key, UnsealError, open, seal};
use crate::key::keyring::{CurrentKeyring, Keyring};

mod rewrap;

pub use rewrap::{Rewrapped, WrappedKey};

const WRAPPED_FORMAT: &str = "terrane-wrapped-1";

/// Each data key has only one generation so far; files and frames already name it.
const GENERATION: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the data key `{path}` is missing, but data sealed with it exists")]
    Lost { path: PathBuf },
    #[error("`{path}` is not a wrapped key")]
    Shape { path: PathBuf },
    #[error("`{path}` was wrapped with master key `{needed}`; the current one is `{given}`")]
    OtherMaster {
        path: PathBuf,
        needed: String,
        given: String,
    },
    #[error("cannot unwrap `{path}` with the master key")]
    Unwrap { path: PathBuf, source: UnsealError },
    #[error("`{path}` is the key of an unknown state")]
    NoOwner { path: PathBuf },
    #[error("cannot get random bytes from the system")]
    Random,
}

/// The owner of a data key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyScope {
    Project,
    State(StateName),
}

/// The keys of one home, unwrapped when first needed.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) keyring: CurrentKeyring,
    blobs: Blobs,
    known: Mutex<HashMap<KeyScope, Arc<DataKey>>>,
}

#[derive(Debug)]
pub(crate) struct DataKey {
    pub(crate) generation: u32,
    pub(crate) key: Key,
}

impl KeyScope {
    pub(crate) fn dir(&self) -> String {
        match self {
            // A state's directory never contains `@`: it would be encoded.
            Self::Project => "@project".to_owned(),
            Self::State(state) => state_dir(state),
        }
    }
}

impl Keys {
    pub(crate) fn new(keyring: Keyring, blobs: Blobs) -> Self {
        Self {
            keyring: CurrentKeyring::new(keyring),
            blobs,
            known: Mutex::default(),
        }
    }

    pub(crate) fn keyring(&self) -> Arc<Keyring> {
        self.keyring.get()
    }

    /// The data key, created durably on first use. Whether a state's key was used before is in the database:
    /// `Store::data_key` checks it.
    pub(crate) fn get_or_create(&self, scope: &KeyScope) -> Result<Arc<DataKey>, StoreError> {
        if let Some(key) = self.lookup(scope)? {
            return Ok(key);
        }
        // A key that was used and is missing must not be replaced. The project's key is always the first one: a server
        // may need a state's key first, to record a refusal.
        if let KeyScope::State(_) = scope {
            self.get_or_create(&KeyScope::Project)?;
        }
        let path = key_file(scope, GENERATION);
        let used = match scope {
            KeyScope::Project => {
                let keys = self.blobs.list("keys")?;
                keys.iter().any(|name| *name != scope.dir())
            }
            KeyScope::State(_) => false,
        };
        if used && self.lookup(scope)?.is_none() {
            return Err(KeyError::Lost {
                path: self.blobs.path(&path),
            }
            .into());
        }
        let key = Key::random().ok_or(KeyError::Random)?;
        let masters = self.newest_masters()?;
        let line = wrap(&masters, scope, GENERATION, &key)?;
        let made = if self.blobs.write_new(&path, line.as_bytes())? {
            self.know(scope, key)
        } else {
            // Another process created it first: use that one.
            self.get(scope)?
        };
        // A rotation that ended meanwhile did not see this key.
        let now = self.newest_masters()?;
        if now.id() != masters.id() {
            let line = wrap(&now, scope, GENERATION, &made.key)?;
            self.blobs.write(&path, line.as_bytes())?;
        }
        Ok(made)
    }

    /// Creates a key in the place of one that is damaged or missing. What the old one sealed can never be read again,
    /// so only a person decides this. The old file is moved to `lost/`. False if the key is usable.
    pub(crate) fn replace_lost(&self, scope: &KeyScope) -> Result<bool, StoreError> {
        let file = key_file(scope, GENERATION);
        match self.lookup(scope) {
            Ok(Some(_)) => return Ok(false),
            Ok(None) => {}
            Err(StoreError::Key(KeyError::Shape { .. } | KeyError::Unwrap { .. })) => {
                let damaged = self.blobs.read(&file)?;
                self.blobs.write(&format!("lost/{file}"), &damaged)?;
                self.blobs.remove(&file)?;
            }
            Err(err) => return Err(err),
        }
        self.get_or_create(scope)?;
        Ok(true)
    }

    /// The master keys. They are read again if the project's key was wrapped with another one than the first: then a
    /// rotation took place.
    fn newest_masters(&self) -> Result<Arc<Keyring>, StoreError> {
        let masters = self.keyring.get();
        let file = key_file(&KeyScope::Project, GENERATION);
        let Some(text) = self.blobs.read_optional(&file)? else {
            return Ok(masters);
        };
        let text = String::from_utf8_lossy(&text);
        if text.split_whitespace().nth(1) == Some(masters.id()) {
            return Ok(masters);
        }
        Ok(self.keyring.renew())
    }

    /// The data key; an error if there is none.
    pub(crate) fn get(&self, scope: &KeyScope) -> Result<Arc<DataKey>, StoreError> {
        let path = || self.blobs.path(&key_file(scope, GENERATION));
        self.lookup(scope)?
            .ok_or_else(|| KeyError::Lost { path: path() }.into())
    }

    /// The data key if it is in memory.
    pub(crate) fn known(&self, scope: &KeyScope) -> Option<Arc<DataKey>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(scope).cloned()
    }

    pub(crate) fn lookup(&self, scope: &KeyScope) -> Result<Option<Arc<DataKey>>, StoreError> {
        if let Some(known) = self.known(scope) {
            return Ok(Some(known));
        }
        let relative = key_file(scope, GENERATION);
        let Some(text) = self.blobs.read_optional(&relative)? else {
            return Ok(None);
        };
        let key = self.unwrap_as(scope, GENERATION, &text, self.blobs.path(&relative))?;
        Ok(Some(self.know(scope, key)))
    }

    fn know(&self, scope: &KeyScope, key: Key) -> Arc<DataKey> {
        let key = Arc::new(DataKey {
            generation: GENERATION,
            key,
        });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(scope.clone(), Arc::clone(&key));
        key
    }

    fn unwrap_as(
        &self,
        scope: &KeyScope,
        generation: u32,
        text: &[u8],
        path: PathBuf,
    ) -> Result<Key, KeyError> {
        let text = String::from_utf8_lossy(text);
        let words: Vec<&str> = text.split_whitespace().collect();
        let [WRAPPED_FORMAT, master, encoded] = words[..] else {
            return Err(KeyError::Shape { path });
        };
        let mut masters = self.keyring.get();
        if masters.find(master).is_none() {
            masters = self.keyring.renew();
        }
        let Some(master) = masters.find(master) else {
            let given: Vec<&str> = masters.ids().collect();
            return Err(KeyError::OtherMaster {
                path,
                needed: master.to_owned(),
                given: given.join("`, `"),
            });
        };
        let Ok(wrapped) = BASE64.decode(encoded) else {
            return Err(KeyError::Shape { path });
        };
        let context = wrapping_context(scope, generation);
        let plain = match open(&master.key, context.as_bytes(), wrapped) {
            Ok(plain) => plain,
            Err(source) => return Err(KeyError::Unwrap { path, source }),
        };
        Key::from_bytes(plain).ok_or(KeyError::Shape { path })
    }
}

fn key_file(scope: &KeyScope, generation: u32) -> String {
    format!("keys/{}/{generation}", scope.dir())
}

/// A data key as stored in its file, wrapped by the first master key.
fn wrap(
    masters: &Keyring,
    scope: &KeyScope,
    generation: u32,
    key: &Key,
) -> Result<String, KeyError> {
    let (first, context) = (masters.first(), wrapping_context(scope, generation));
    let wrapped = seal(&first.key, context.as_bytes(), key.bytes()).ok_or(KeyError::Random)?;
    let wrapped = BASE64.encode(wrapped);
    Ok(format!("{WRAPPED_FORMAT} {} {wrapped}\n", first.id))
}

/// Binds a wrapped key to its owner: it does not open as the key of another state.
fn wrapping_context(scope: &KeyScope, generation: u32) -> String {
    let owner = match scope {
        KeyScope::Project => serde_json::json!({ "project": true }),
        KeyScope::State(state) => serde_json::json!({ "state": state }),
    };
    serde_json::json!({ "terrane": "data key", "owner": owner, "generation": generation })
        .to_string()
}

#[cfg(test)]
mod tests;
