//! States that a client deleted: they have no newest version any more, and all their versions.

use jiff::Timestamp;
use model::break_glass::Act;
use model::state::StateName;
use model::state::pick::Pick;
use store::{StateRow, StoreError};

use crate::Control;

/// When it was, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    pub at: Timestamp,
    /// Nothing if that is not known any more.
    pub actor: Option<String>,
}

/// Nothing if the state is there, or never was.
pub async fn deleted(control: &Control, state: &StateName) -> Result<Option<Deleted>, StoreError> {
    let Some(row) = control.store.state_get(state).await? else {
        return Ok(None);
    };
    let Some(at) = row.deleted_at.filter(|_| row.head.is_none()) else {
        return Ok(None);
    };
    let acts = control.store.break_glass_list(state).await?;
    let last = acts.into_iter().rfind(|act| act.act == Act::StateDeleted);
    let actor = last.map(|act| act.actor);
    Ok(Some(Deleted { at, actor }))
}

/// Whether a state was gone by the moment that is meant.
pub(super) fn is_deleted_by(row: &StateRow, pick: Pick) -> bool {
    let at = row.deleted_at.filter(|_| row.head.is_none());
    at.is_some_and(|at| is_meant(at, pick))
}

impl Deleted {
    /// Whether it was gone by the moment that is meant.
    pub(super) fn is_meant_by(&self, pick: Pick) -> bool {
        is_meant(self.at, pick)
    }
}

/// A version or a serial names what it was.
fn is_meant(at: Timestamp, pick: Pick) -> bool {
    match pick {
        Pick::Head => true,
        Pick::At(moment) => at <= moment,
        Pick::Version(_) | Pick::Serial(_) => false,
    }
}
