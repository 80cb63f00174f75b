//! The time by which changes are recorded and limits of days are checked.
//!
//! Not here: waiting (`tokio::time`), and the store's own timestamps.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    /// Stands still until it is moved.
    Manual(Arc<Mutex<Timestamp>>),
}

impl Clock {
    pub fn manual(at: Timestamp) -> Self {
        Self::Manual(Arc::new(Mutex::new(at)))
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Manual(at) => *at.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Moves a manual clock forward. The system's clock cannot be moved.
    pub fn advance(&self, by: SignedDuration) {
        if let Self::Manual(at) = self {
            *at.lock().unwrap_or_else(PoisonError::into_inner) += by;
        }
    }
}
