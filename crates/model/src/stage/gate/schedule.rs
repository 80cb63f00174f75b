//! When a gate is checked again, and when it has failed.

use std::time::Duration;

/// The timing of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// From the start of one check to the start of the next.
    pub interval: Duration,
    /// When the gate has failed.
    pub timeout: Duration,
    /// The number of consecutive failures that end it earlier.
    pub failures: Option<u32>,
}

/// What follows a failed check. One pass ends a gate, so all earlier checks failed too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCheck {
    /// Check again, at this time since the gate's start.
    LookAt(Duration),
    /// The gate has failed, at this time since its start.
    FailAt(Duration),
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(15),
            timeout: Duration::from_mins(5),
            failures: None,
        }
    }
}

impl Schedule {
    /// A single check.
    #[must_use]
    pub fn once(self) -> Self {
        Self {
            failures: Some(1),
            ..self
        }
    }

    /// What follows failure number `failures`, of a check that started and ended at these times since the gate's start.
    /// Whatever the interval is, the last check is at the end.
    pub fn next(&self, failures: u32, began: Duration, ended: Duration) -> NextCheck {
        if self.failures.is_some_and(|most| failures >= most) {
            return NextCheck::FailAt(ended);
        }
        let next = (began + self.interval).max(ended);
        let last = self
            .timeout
            .saturating_sub(self.room(ended.saturating_sub(began)));
        if next <= last {
            NextCheck::LookAt(next)
        } else if ended < last {
            NextCheck::LookAt(last)
        } else if next < self.timeout {
            NextCheck::LookAt(next)
        } else {
            NextCheck::FailAt(ended)
        }
    }

    /// The time to reserve for the last check, if the previous one took this long.
    fn room(&self, took: Duration) -> Duration {
        let least = (self.timeout / 10).min(Duration::from_secs(1));
        least.max(took * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The starts of all checks that take `look` each, and the end.
    fn played(schedule: Schedule, look: Duration) -> (Vec<u128>, u128) {
        let (mut now, mut begun) = (Duration::ZERO, Vec::new());
        loop {
            begun.push(now.as_millis());
            let failures = u32::try_from(begun.len()).unwrap();
            match schedule.next(failures, now, now + look) {
                NextCheck::LookAt(next) => now = next,
                NextCheck::FailAt(end) => return (begun, end.as_millis()),
            }
        }
    }

    #[test]
    fn by_default_every_quarter_of_a_minute_and_at_the_end_of_five_minutes() {
        let (begun, end) = played(Schedule::default(), at(20));
        assert_eq!((begun.len(), begun[1], begun[20]), (21, 15_000, 299_000));
        assert_eq!(end, 299_020);
    }

    #[test]
    fn the_last_look_is_at_the_end_however_long_the_interval_is() {
        let schedule = |interval, timeout| Schedule {
            interval: at(interval),
            timeout: at(timeout),
            failures: None,
        };
        let looks = |interval, timeout| played(schedule(interval, timeout), at(10)).0;
        assert_eq!(looks(1000, 3000), [0, 1000, 2000, 2700]);
        assert_eq!(looks(15_000, 3000), [0, 2700]);
        assert_eq!(looks(3000, 3000), [0, 2700]);
        // A slow check gets enough time.
        let (begun, end) = played(schedule(10_000, 10_000), at(1500));
        assert_eq!((begun, end), (vec![0, 7000], 8500));
    }

    #[test]
    fn a_slow_look_delays_the_next_and_nothing_begins_after_the_end() {
        let schedule = Schedule {
            interval: at(1000),
            timeout: at(5000),
            failures: None,
        };
        assert_eq!(played(schedule, at(1700)), (vec![0, 1700, 3400], 5100));
    }

    #[test]
    fn failures_in_a_row_end_it_sooner() {
        let schedule = Schedule {
            failures: Some(3),
            ..Schedule::default()
        };
        assert_eq!(played(schedule, at(5)), (vec![0, 15_000, 30_000], 30_005));
        assert_eq!(played(schedule.once(), at(5)), (vec![0], 5));
    }
}
