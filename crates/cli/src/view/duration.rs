//! Durations as text for people.

use std::time::Duration;

use super::text::count;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// `0.4 s`, `3 s`, `4 m 12 s`, `1 h 02 m`, `3 d 04 h`.
pub fn human(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("0.{} s", span.subsec_millis() / 100),
        1..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} m {:02} s", seconds / MINUTE, seconds % MINUTE),
        HOUR..DAY => format!("{} h {:02} m", seconds / HOUR, seconds % HOUR / MINUTE),
        _ => format!("{} d {:02} h", seconds / DAY, seconds % DAY / HOUR),
    }
}

/// `00:41`, `12:05`, `1:02:03`: for columns and running clocks.
pub fn clock(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, rest) = (seconds / HOUR, seconds % HOUR / MINUTE, seconds % MINUTE);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{rest:02}")
    } else {
        format!("{minutes:02}:{rest:02}")
    }
}

/// `just now`, `3 minutes ago`, `2 days ago`, `5 months ago`.
pub fn ago(span: Duration) -> String {
    let seconds = span.as_secs();
    let (number, noun) = match seconds {
        ..5 => return "just now".to_owned(),
        5..MINUTE => (seconds, "second"),
        MINUTE..HOUR => (seconds / MINUTE, "minute"),
        HOUR..DAY => (seconds / HOUR, "hour"),
        _ => match seconds / DAY {
            days @ ..60 => (days, "day"),
            days @ 60..730 => (days / 30, "month"),
            days => (days / 365, "year"),
        },
    };
    // A number of months or seconds fits any pointer size.
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    format!("{} ago", count(number, noun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: u64, in_words: &str, on_a_clock: &str, past: &str) {
        let span = Duration::from_secs(seconds);
        assert_eq!(human(span), in_words);
        assert_eq!(clock(span), on_a_clock);
        assert_eq!(ago(span), past);
    }

    #[test]
    fn spans() {
        check(0, "0.0 s", "00:00", "just now");
        check(3, "3 s", "00:03", "just now");
        check(41, "41 s", "00:41", "41 seconds ago");
        check(60, "1 m 00 s", "01:00", "1 minute ago");
        check(252, "4 m 12 s", "04:12", "4 minutes ago");
        check(3723, "1 h 02 m", "1:02:03", "1 hour ago");
        check(2 * DAY + 3 * HOUR, "2 d 03 h", "51:00:00", "2 days ago");
        check(152 * DAY, "152 d 00 h", "3648:00:00", "5 months ago");
        check(900 * DAY, "900 d 00 h", "21600:00:00", "2 years ago");
    }

    #[test]
    fn less_than_a_second() {
        assert_eq!(human(Duration::from_millis(430)), "0.4 s");
    }
}
