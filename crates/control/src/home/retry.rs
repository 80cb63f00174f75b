//! Retries while the home does not respond, because its disk is full or its database is locked. The work of
//! an engine must not be lost for that.

use std::time::Duration;

use model::base::error::Explain;
use tokio::time::Instant;

/// The time limit in seconds, if set. For tests, and for environments that must fail sooner.
pub const PATIENCE: &str = "TERRANE_PATIENCE";

const DEFAULT: Duration = Duration::from_mins(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A time limit for retries, with growing pauses.
#[derive(Debug)]
pub struct Backoff {
    until: Instant,
    pause: Duration,
}

impl Backoff {
    pub fn begin() -> Self {
        Self::of(limit(std::env::var(PATIENCE).ok().as_deref()))
    }

    fn of(limit: Duration) -> Self {
        Self {
            until: Instant::now() + limit,
            pause: FIRST_PAUSE,
        }
    }

    /// Waits before the next attempt; false if the time is up.
    pub async fn again(&mut self) -> bool {
        let now = Instant::now();
        if now >= self.until {
            return false;
        }
        tokio::time::sleep(self.pause.min(self.until - now)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// Repeats an action while the home is unavailable, until the time is up. Returns the last result.
pub(crate) async fn retry_unavailable<T, E: Explain>(
    mut action: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut patience = None;
    loop {
        let done = action().await;
        match &done {
            Err(err) if err.is_unavailable() => {}
            _ => return done,
        }
        if !patience.get_or_insert_with(Backoff::begin).again().await {
            return done;
        }
    }
}

fn limit(seconds: Option<&str>) -> Duration {
    seconds
        .and_then(|text| text.parse().ok())
        .map_or(DEFAULT, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use model::base::error::ErrorKind;

    use super::*;

    #[derive(Debug, PartialEq, Eq, thiserror::Error)]
    #[error("{0:?}")]
    struct TestError(ErrorKind);

    impl Explain for TestError {
        fn kind(&self) -> ErrorKind {
            self.0
        }
    }

    #[test]
    fn ten_minutes_unless_said_otherwise() {
        assert_eq!(limit(None), Duration::from_mins(10));
        assert_eq!(limit(Some("3")), Duration::from_secs(3));
        assert_eq!(limit(Some("soon")), Duration::from_mins(10));
    }

    #[tokio::test]
    async fn it_ends_when_the_time_is_up() {
        let limit = Duration::from_millis(120);
        let (begun, mut patience) = (Instant::now(), Backoff::of(limit));
        assert!(patience.again().await);
        assert!(patience.again().await, "the second pause is cut short");
        assert!(begun.elapsed() >= limit);
        assert!(!patience.again().await);
    }

    #[tokio::test]
    async fn only_an_outage_is_tried_again() {
        let mut answers = vec![
            Ok(1),
            Err(TestError(ErrorKind::Refused)),
            Err(TestError(ErrorKind::Unavailable)),
        ];
        let answer = retry_unavailable(async || answers.pop().unwrap()).await;
        assert_eq!(answer, Err(TestError(ErrorKind::Refused)));
        assert_eq!(answers, [Ok(1)]);
    }
}
