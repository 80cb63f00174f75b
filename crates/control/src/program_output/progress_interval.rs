//! When to repeat a progress message: after 5 seconds, then after twice the time, and so on.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressInterval {
    since: Instant,
    pause: Duration,
    next: Instant,
}

impl ProgressInterval {
    pub(crate) fn begin() -> Self {
        let since = Instant::now();
        Self {
            since,
            pause: FIRST,
            next: since + FIRST,
        }
    }

    pub(crate) async fn due(&self) {
        sleep_until(self.next).await;
    }

    /// The waiting time in seconds, if a message is due.
    pub(crate) fn tick(&mut self) -> Option<u64> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.pause = (self.pause * 2).min(LONGEST);
        self.next += self.pause;
        Some(now.duration_since(self.since).as_secs())
    }
}
