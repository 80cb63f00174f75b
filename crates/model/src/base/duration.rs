//! Durations as people write them: `500ms`, `90s`, `10m`, `24h`, `30d`, `4w`.
//!
//! Not here: points in time (`state::time_spec`), durations in tables and progress lines (`cli::view::duration`).

use std::time::Duration;

/// Examples for messages and the reference.
pub const EXAMPLES: &str = "`500ms`, `90s`, `10m`, `24h`, `30d`";

const UNITS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", HOUR),
    ("d", 24 * HOUR),
    ("w", 7 * 24 * HOUR),
];
const SECOND: u64 = 1000;
const HOUR: u64 = 60 * 60 * SECOND;

/// Parses an integer with its unit.
pub fn parse(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*length).map(Duration::from_millis)
}

/// Writes an integer with the largest possible unit, up to hours.
pub fn write(duration: Duration) -> String {
    let millis = duration.as_millis();
    let is_whole = |length: u64| millis > 0 && millis.is_multiple_of(u128::from(length));
    let (unit, length) = match UNITS[..4].iter().rev().find(|(_, it)| is_whole(*it)) {
        Some(found) => *found,
        None => ("s", SECOND),
    };
    format!("{}{unit}", millis / u128::from(length))
}

/// `10 s`, `0.3 s`: for use in sentences.
pub fn seconds(duration: Duration) -> String {
    if duration.subsec_millis() == 0 || duration >= Duration::from_secs(10) {
        format!("{} s", duration.as_secs())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_read_and_written_again() {
        for (text, millis) in [
            ("500ms", 500),
            ("1500ms", 1500),
            ("90s", 90_000),
            ("10m", 600_000),
            ("24h", 86_400_000),
        ] {
            let read = parse(text);
            assert_eq!(read, Some(Duration::from_millis(millis)), "{text}");
            assert_eq!(read.map(write).as_deref(), Some(text));
        }
        assert_eq!(parse("30d").map(write).as_deref(), Some("720h"));
        assert_eq!(parse("4w").map(write).as_deref(), Some("672h"));
        assert_eq!(parse("0s").map(write).as_deref(), Some("0s"));
    }

    #[test]
    fn what_is_no_length_is_refused() {
        for text in [
            "",
            "s",
            "ms",
            "90",
            "-1s",
            "+1s",
            "1.5s",
            "90 s",
            "1µs",
            "1S",
            "1sm",
            "99999999999999999w",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn in_sentences_short_lengths_have_a_fraction() {
        let said = [300, 1000, 1500, 10_500].map(|it| seconds(Duration::from_millis(it)));
        assert_eq!(said, ["0.3 s", "1 s", "1.5 s", "10 s"]);
    }
}
