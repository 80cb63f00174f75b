//! How a backend at a URL locks: options of `state import` and `state export`.

use control::state::http_backend_lock::{Locking, Method};

use crate::{CommandError, ExitStatus};

#[derive(Debug, clap::Args)]
pub(super) struct LockingArgs {
    /// Lock address of the backend [default: the URL itself, then `/lock` below it]
    #[arg(long, value_name = "URL")]
    lock_address: Option<String>,
    /// HTTP method that locks, instead of `LOCK`
    #[arg(long, value_name = "METHOD")]
    lock_method: Option<Method>,
    /// HTTP method that unlocks, instead of `UNLOCK`
    #[arg(long, value_name = "METHOD")]
    unlock_method: Option<Method>,
    /// The backend at the URL has no locks: make sure that no client writes there meanwhile
    #[arg(long, conflicts_with_all = ["lock_address", "lock_method", "unlock_method"])]
    no_lock: bool,
}

impl LockingArgs {
    pub(super) fn read(&self, is_url: bool) -> Result<Locking, CommandError> {
        let is_said = self.lock_address.is_some()
            || self.lock_method.is_some()
            || self.unlock_method.is_some();
        if !is_url && (is_said || self.no_lock) {
            let message = "cannot use lock options: they apply only to a URL";
            return Err(CommandError::new(message).status(ExitStatus::Usage));
        }
        Ok(match (self.no_lock, is_said) {
            (true, _) => Locking::Nowhere,
            (false, false) => Locking::Unknown,
            (false, true) => Locking::Said {
                address: self.lock_address.clone(),
                lock: self.lock_method.clone(),
                unlock: self.unlock_method.clone(),
            },
        })
    }
}
