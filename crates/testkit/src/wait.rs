//! Waits for conditions in tests, with a limit. Only [`pause`] sleeps.

use std::time::{Duration, Instant};

/// How long tests wait for an expected event.
const LIMIT: Duration = Duration::from_mins(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Waits for a condition; after a minute, fails the test with `what`.
#[track_caller]
pub fn wait_until(what: &str, is_true: impl FnMut() -> bool) {
    assert!(is_true_within(LIMIT, is_true), "never came: {what}");
}

/// Whether a condition becomes true in time.
pub fn is_true_within(limit: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !is_true() {
        if Instant::now() >= deadline {
            return false;
        }
        pause(BETWEEN_LOOKS);
    }
    true
}

/// Sleeps: between two checks of a condition, or until a random moment at which something is killed.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where tests let time pass"
)]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
