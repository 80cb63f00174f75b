//! The master keys in use. A long-lived process reads them again when a data key names one that it does not have: the
//! key was rotated meanwhile.
//!
//! Not here: where they are kept (`control::home::master_keys`).

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::Keyring;

/// Reads the master keys again; `None` if that fails.
pub(crate) type KeyringSource = Box<dyn Fn() -> Option<Keyring> + Send + Sync>;

pub(crate) struct CurrentKeyring {
    held: RwLock<Arc<Keyring>>,
    source: OnceLock<KeyringSource>,
}

impl CurrentKeyring {
    pub(crate) fn new(keyring: Keyring) -> Self {
        Self {
            held: RwLock::new(Arc::new(keyring)),
            source: OnceLock::new(),
        }
    }

    /// Only the first call counts.
    pub(crate) fn renew_from(&self, source: KeyringSource) {
        let _ = self.source.set(source);
    }

    pub(crate) fn get(&self) -> Arc<Keyring> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&held)
    }

    /// Reads the keys again; keys in memory are kept.
    pub(crate) fn renew(&self) -> Arc<Keyring> {
        let Some(kept) = self.source.get().and_then(|source| source()) else {
            return self.get();
        };
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(kept.followed_by(&held));
        Arc::clone(&held)
    }
}

impl fmt::Debug for CurrentKeyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
