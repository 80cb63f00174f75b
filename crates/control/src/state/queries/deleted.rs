//! States that a client deleted: they have no head, but all their versions are still stored.

use jiff::Timestamp;
use model::base::actor::Actor;
use model::state::StateName;
use model::state::break_glass::BreakGlassAction;
use model::state::version_ref::VersionRef;
use store::{StateRow, StoreError};

use crate::Control;

/// When a state was deleted, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub at: Timestamp,
    /// `None` if it is no longer known.
    pub actor: Option<Actor>,
}

/// `None` if the state exists, or never existed.
pub async fn deleted(control: &Control, state: &StateName) -> Result<Option<Deletion>, StoreError> {
    let Some(row) = control.store.state_get(state).await? else {
        return Ok(None);
    };
    let Some(at) = row.deleted_at.filter(|_| row.head.is_none()) else {
        return Ok(None);
    };
    let acts = control.store.break_glass_list(state).await?;
    let last = acts
        .into_iter()
        .rfind(|act| act.act == BreakGlassAction::StateDeleted);
    let actor = last.map(|act| act.actor);
    Ok(Some(Deletion { at, actor }))
}

/// Whether a state was already deleted at the selected time.
pub(super) fn is_deleted_by(row: &StateRow, pick: VersionRef) -> bool {
    let at = row.deleted_at.filter(|_| row.head.is_none());
    at.is_some_and(|at| is_meant(at, pick))
}

impl Deletion {
    /// Whether the state was already deleted at the selected time.
    pub(super) fn is_meant_by(&self, pick: VersionRef) -> bool {
        is_meant(self.at, pick)
    }
}

/// A version number or serial selects a version even of a deleted state.
fn is_meant(at: Timestamp, pick: VersionRef) -> bool {
    match pick {
        VersionRef::Head => true,
        VersionRef::At(moment) => at <= moment,
        VersionRef::Version(_) | VersionRef::Serial(_) => false,
    }
}
