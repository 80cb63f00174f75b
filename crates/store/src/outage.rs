//! Whether a failure means that the home did not answer, so that the same deed may work later: a full
//! disk, a database that somebody holds, a server that is away.

use crate::change_sets::ChangeSetError;
use crate::db::DbError;
use crate::locks::AcquireLockError;
use crate::state_versions::{AdoptError, AppendError};
use crate::{KeepArtifactsError, ReleaseLockError, StoreError};

impl StoreError {
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Db(err) => err.is_outage(),
            Self::File { .. } | Self::Object { .. } | Self::Interrupted => true,
            Self::Key(_)
            | Self::Unseal { .. }
            | Self::Row { .. }
            | Self::Stale { .. }
            | Self::Lost(_)
            | Self::OldHead { .. }
            | Self::NoHead { .. }
            | Self::NotNoted { .. }
            | Self::Unmarked { .. }
            | Self::Rival(_) => false,
        }
    }
}

impl DbError {
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Statement { .. }
            | Self::Away { .. }
            | Self::NoRoom
            | Self::ReadOnly
            | Self::Sync(_)
            | Self::Group(_) => true,
            Self::Column { .. } => false,
        }
    }
}

impl AppendError {
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Store { source, .. } => source.is_outage(),
            Self::Invalid { .. } | Self::Refused { .. } | Self::Contended { .. } => false,
        }
    }
}

impl KeepArtifactsError {
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Store(source) => source.is_outage(),
            Self::Moved { .. } => false,
        }
    }
}

impl AdoptError {
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Compare { source, .. } => source.is_outage(),
            Self::Append { source, .. } => source.is_outage(),
        }
    }
}

impl ReleaseLockError {
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Store { source, .. } => source.is_outage(),
            Self::Held { .. } => false,
        }
    }
}

impl AcquireLockError {
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Store { source, .. } => source.is_outage(),
            Self::Held { .. }
            | Self::HeadMoved { .. }
            | Self::Ended { .. }
            | Self::RunsOnly { .. } => false,
        }
    }
}

impl ChangeSetError {
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Db(err) => err.is_outage(),
            Self::Missing(_)
            | Self::Record { .. }
            | Self::Heard(_)
            | Self::Reopen(_)
            | Self::Run(_)
            | Self::Set(_)
            | Self::LaneLost { .. }
            | Self::OtherPlans { .. } => false,
        }
    }
}
