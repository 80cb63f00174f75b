//! Polling with growing intervals and an end.

use std::time::{Duration, Instant};

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// Polls soon at first, then less often, and never past the end.
pub(crate) struct Poll {
    end: Instant,
    next: Duration,
}

impl Poll {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            end: Instant::now() + limit,
            next: SHORTEST,
        }
    }

    /// None if the time is over first.
    pub(crate) async fn look<T>(&self, look: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.end.into(), look).await.ok()
    }

    /// Waits until the next poll is due; false if the time is over.
    pub(crate) async fn pause(&mut self) -> bool {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        tokio::time::sleep(self.next.min(left)).await;
        self.next = (self.next * 3 / 2).min(LONGEST);
        Instant::now() < self.end
    }
}
