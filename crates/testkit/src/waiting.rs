//! Waiting in tests: for a condition, with a limit. Time itself passes in one place, [`pause`].

use std::time::{Duration, Instant};

/// How long tests wait for something that must come.
const LIMIT: Duration = Duration::from_mins(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Waits for a condition; fails the test, and says what never came, after a minute.
#[track_caller]
pub fn wait_until(what: &str, is_true: impl FnMut() -> bool) {
    assert!(is_true_within(LIMIT, is_true), "never came: {what}");
}

/// Whether a condition comes true in time.
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

/// Lets time pass: between two looks at a condition, or until a random moment at which something is killed.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where tests let time pass"
)]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
