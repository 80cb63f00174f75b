//! Connections on which nobody has shown a token yet: guests. Who has no token may have many addresses, and must not
//! take the places of all who have one.
//!
//! Not here: how many connections one address may have (`peers`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

/// So long a guest has to show a token before another may have its place.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Guests {
    most: usize,
    /// By the order they came in.
    here: Mutex<Here>,
    /// There is room again.
    left: Notify,
}

#[derive(Debug, Default)]
struct Here {
    next: u64,
    guests: BTreeMap<u64, (Instant, Arc<Notify>)>,
}

/// One of them, until it is known or dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    number: u64,
    goes: Arc<Notify>,
    guests: Arc<Guests>,
}

impl Guests {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            here: Mutex::default(),
            left: Notify::new(),
        }
    }

    /// Returns when there is room for one more. If there is none, who is here longest goes, as soon as it had its time; until
    /// then the next ones wait.
    pub(crate) async fn room(&self) {
        while let Some(left) = self.make_room() {
            drop(timeout(left, self.left.notified()).await);
        }
    }

    /// How long the next one who may have to go has left; nothing if there is room.
    fn make_room(&self) -> Option<Duration> {
        let mut here = self.here();
        if here.guests.len() < self.most {
            return None;
        }
        let first = here.guests.first_entry()?;
        let left = GRACE.checked_sub(first.get().0.elapsed());
        let left = left.filter(|left| !left.is_zero());
        if left.is_none() {
            let (_, goes) = first.remove();
            goes.notify_one();
        }
        left
    }

    pub(crate) fn admit(guests: &Arc<Self>) -> Guest {
        let goes = Arc::new(Notify::new());
        let mut here = guests.here();
        let number = here.next;
        here.next += 1;
        let entry = (Instant::now(), Arc::clone(&goes));
        here.guests.insert(number, entry);
        drop(here);
        Guest {
            number,
            goes,
            guests: Arc::clone(guests),
        }
    }

    fn here(&self) -> MutexGuard<'_, Here> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    /// It has shown a token, and stays.
    pub(crate) fn is_known(&self) {
        if self.guests.here().guests.remove(&self.number).is_some() {
            self.guests.left.notify_one();
        }
    }

    /// Returns when its place is another's.
    pub(crate) async fn has_to_go(&self) {
        self.goes.notified().await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.is_known();
    }
}
