//! Which states there are, and how each stands.

use model::ids::RunId;
use model::state::pick::Pick;
use model::state::resources::Opaque;
use model::state::{HeldLock, StateName, StateVersion};

use super::ask::{AskStateError, look_into};
use super::author::{Author, Authors};
use crate::Control;
use crate::locks::RunLock;

#[derive(Clone, Debug)]
pub struct StateLine {
    pub state: StateName,
    pub head: StateVersion,
    /// How many resources there are, or why that cannot be known.
    pub resources: Result<usize, Opaque>,
    pub lock: Option<Lock>,
    pub author: Author,
}

#[derive(Clone, Debug)]
pub struct Lock {
    pub held: HeldLock,
    /// Whether the run that holds it is at work; nothing if no run of ours holds it.
    pub is_alive: Option<bool>,
}

/// Every state that has a version, as it stands, or as it stood at a time.
pub async fn list(control: &Control, pick: Pick) -> Result<Vec<StateLine>, AskStateError> {
    let rows = control.store.state_list().await;
    let mut authors = Authors::new(control);
    let mut lines = Vec::new();
    for row in rows.map_err(AskStateError::List)? {
        let versions = match pick {
            Pick::Head => control
                .store
                .state_head(&row.name)
                .await
                .map(Vec::from_iter),
            Pick::Version(_) | Pick::Serial(_) | Pick::At(_) => {
                control.store.state_version_list(&row.name).await
            }
        };
        let versions = versions.map_err(AskStateError::List)?;
        let Some(head) = pick.find(&versions).cloned() else {
            continue;
        };
        let document = look_into(control, &head).await?;
        let alive = |run: RunId| RunLock::is_held(&control.home, run);
        lines.push(StateLine {
            state: row.name,
            resources: document.map(|document| document.resource_count()),
            lock: row.lock.filter(|_| pick == Pick::Head).map(|held| Lock {
                is_alive: held.run.map(alive),
                held,
            }),
            author: authors.of(&head).await?,
            head,
        });
    }
    Ok(lines)
}
