//! Parses a time as people write it: a timestamp, a day, or how long ago.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::base::duration;
use crate::base::error::{ErrorKind, Explain, NextStep, advice};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time")]
pub struct InvalidTimeSpec(String);

impl Explain for InvalidTimeSpec {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(
            "write `2026-11-01T10:00` (UTC), `2026-11-01T10:00+01:00`, or an age: `90m`, `2h`, `3d`, `4w`",
        )]
    }
}

/// `2h` is two hours before `now`. A day means its start. A time without an offset is UTC.
pub fn parse(word: &str, now: Timestamp) -> Result<Timestamp, InvalidTimeSpec> {
    let invalid = || InvalidTimeSpec(word.to_owned());
    if let Some(ago) = duration::parse(word) {
        return now.checked_sub(ago).map_err(|_| invalid());
    }
    if let Ok(moment) = word.parse::<Timestamp>() {
        return Ok(moment);
    }
    let civil: DateTime = word.parse().map_err(|_| invalid())?;
    TimeZone::UTC.to_timestamp(civil).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, expected: &str) {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        let seen = match parse(word, now) {
            Ok(moment) => moment.to_string(),
            Err(err) => err.to_string(),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn moments() {
        check("2h", "2026-11-15T10:00:00Z");
        check("90m", "2026-11-15T10:30:00Z");
        check("500ms", "2026-11-15T11:59:59.5Z");
        check("3d", "2026-11-12T12:00:00Z");
        check("2026-11-01", "2026-11-01T00:00:00Z");
        check("2026-11-01T10:00", "2026-11-01T10:00:00Z");
        check("2026-11-01 10:00", "2026-11-01T10:00:00Z");
        check("2026-11-01T10:00+01:00", "2026-11-01T09:00:00Z");
        check("2026-11-01T10:00:05Z", "2026-11-01T10:00:05Z");
        check("yesterday", "`yesterday` is not a time");
        check("h", "`h` is not a time");
        check("99999999999999999w", "`99999999999999999w` is not a time");
    }
}
