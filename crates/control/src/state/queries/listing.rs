//! Lists states with their current status.

use std::collections::BTreeSet;

use model::base::ids::RunId;
use model::state::resources::OpaqueState;
use model::state::version_ref::VersionRef;
use model::state::{HeldLock, StateName, StateVersion};
use store::StateRow;

use super::author::{Author, AuthorCache};
use super::deleted::is_deleted_by;
use super::version::{AskStateError, read_document, store_failed};
use crate::Control;
use crate::run::lock::RunLock;

#[derive(Clone, Debug)]
pub struct StateLine {
    pub state: StateName,
    pub head: StateVersion,
    /// The number of resources, or why it is unknown.
    pub resources: Result<usize, OpaqueState>,
    pub lock: Option<LockStatus>,
    pub author: Author,
}

#[derive(Clone, Debug)]
pub struct LockStatus {
    pub held: HeldLock,
    /// Whether the run that holds the lock is alive; `None` if no run of ours holds it.
    pub is_alive: Option<bool>,
}

#[derive(Debug, Default)]
pub struct StateListing {
    pub lines: Vec<StateLine>,
    /// States that could not be read; a damaged state does not hide others.
    pub unread: Vec<AskStateError>,
}

/// All states that have a version, as they are now or were at a time.
pub async fn list(control: &Control, pick: VersionRef) -> Result<StateListing, AskStateError> {
    let rows = control.store.state_list().await;
    let mut authors = AuthorCache::new(control);
    let mut listing = StateListing::default();
    let mut known = BTreeSet::new();
    for row in rows.map_err(AskStateError::List)? {
        known.insert(row.name.clone());
        match line(control, &mut authors, row, pick).await {
            Ok(Some(line)) => listing.lines.push(line),
            Ok(None) => {}
            Err(unread) => listing.unread.push(unread),
        }
    }
    for (state, source) in control.store.state_list_stale() {
        if !known.contains(&state) {
            listing.unread.push(store_failed("list", &state)(source));
        }
    }
    Ok(listing)
}

async fn line(
    control: &Control,
    authors: &mut AuthorCache<'_>,
    row: StateRow,
    pick: VersionRef,
) -> Result<Option<StateLine>, AskStateError> {
    if is_deleted_by(&row, pick) {
        return Ok(None);
    }
    let versions = match pick {
        VersionRef::Head => {
            let head = control.store.state_head(&row.name).await;
            head.map(Vec::from_iter)
        }
        VersionRef::Version(_) | VersionRef::Serial(_) | VersionRef::At(_) => {
            control.store.state_version_list(&row.name).await
        }
    };
    let versions = versions.map_err(|source| AskStateError::Store {
        action: "list",
        state: row.name.clone(),
        source: Box::new(source),
    })?;
    let Some(head) = pick.find(&versions).cloned() else {
        return Ok(None);
    };
    let document = read_document(&control.store, &head).await?;
    let alive = |run: RunId| RunLock::is_held(&control.home, run);
    Ok(Some(StateLine {
        state: row.name,
        resources: document.map(|document| document.resource_count()),
        lock: row
            .lock
            .filter(|_| pick == VersionRef::Head)
            .map(|held| LockStatus {
                is_alive: held.run.map(alive),
                held,
            }),
        author: authors.of(&head).await?,
        head,
    }))
}
