//! Connections on which nothing happens: engines keep one open between two requests, as scripts and probes may. When all
//! places are taken, whoever is still longest goes: a client of ours opens another one with its next request.
//!
//! Not here: those on which nobody has shown a token (`guests`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::pulse::Pulse;

/// So long one has to be still before another may have its place.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<Here>);

#[derive(Debug, Default)]
struct Here {
    next: u64,
    connections: BTreeMap<u64, (Arc<Pulse>, Arc<Notify>)>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stay {
    number: u64,
    goes: Arc<Notify>,
    idle: Arc<Idle>,
}

impl Idle {
    pub(crate) fn enter(idle: &Arc<Self>, pulse: &Arc<Pulse>) -> Stay {
        let goes = Arc::new(Notify::new());
        let mut here = idle.here();
        let number = here.next;
        here.next += 1;
        let entry = (Arc::clone(pulse), Arc::clone(&goes));
        here.connections.insert(number, entry);
        drop(here);
        Stay {
            number,
            goes,
            idle: Arc::clone(idle),
        }
    }

    /// A place, as soon as there is one.
    pub(crate) async fn place(&self, places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(place) = Arc::clone(places).try_acquire_owned() {
                return Some(place);
            }
            let wait = self.make_room();
            if let Ok(place) = timeout(wait, Arc::clone(places).acquire_owned()).await {
                return place.ok();
            }
        }
    }

    /// Sends who is still longest away. How long to wait for its place, or for somebody who may go.
    fn make_room(&self) -> Duration {
        let mut here = self.here();
        let all = here.connections.iter();
        let still = all.filter_map(|(number, (pulse, _))| Some((pulse.still()?, *number)));
        let Some((still, number)) = still.max() else {
            return GRACE;
        };
        if still < GRACE {
            return GRACE.saturating_sub(still);
        }
        if let Some((_, goes)) = here.connections.remove(&number) {
            goes.notify_one();
        }
        GRACE
    }

    fn here(&self) -> MutexGuard<'_, Here> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stay {
    /// Returns when its place is another's.
    pub(crate) async fn has_to_go(&self) {
        self.goes.notified().await;
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.idle.here().connections.remove(&self.number);
    }
}
