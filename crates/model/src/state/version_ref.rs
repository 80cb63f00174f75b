//! Selects a version of a state.

use jiff::Timestamp;

use super::StateVersion;
use super::time_spec::{self, InvalidTimeSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionRef {
    Head,
    /// terrane's version number, starting at one.
    Version(i64),
    /// The engine's serial: the newest version that has it.
    Serial(u64),
    /// The version that was the head at that time.
    At(Timestamp),
}

impl VersionRef {
    /// `7` is a version, `serial:18` is the engine's serial, and anything else is a time.
    pub fn parse(word: &str, now: Timestamp) -> Result<Self, InvalidTimeSpec> {
        if let Ok(version) = word.parse() {
            return Ok(Self::Version(version));
        }
        let serial = word.strip_prefix("serial:");
        match serial.and_then(|serial| serial.parse().ok()) {
            Some(serial) => Ok(Self::Serial(serial)),
            None => time_spec::parse(word, now).map(Self::At),
        }
    }

    /// Finds the selected version. Takes all versions, oldest first.
    pub fn find(self, versions: &[StateVersion]) -> Option<&StateVersion> {
        let mut newest_first = versions.iter().rev();
        newest_first.find(|version| match self {
            Self::Head => true,
            Self::Version(number) => version.version == number,
            Self::Serial(serial) => version.serial == serial,
            Self::At(moment) => version.created_at <= moment,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_versions_serials_and_moments() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        let pick = |word: &str| VersionRef::parse(word, now).ok();
        assert_eq!(pick("7"), Some(VersionRef::Version(7)));
        assert_eq!(pick("serial:18"), Some(VersionRef::Serial(18)));
        let hour = "2026-11-15T11:00:00Z".parse().unwrap();
        assert_eq!(pick("1h"), Some(VersionRef::At(hour)));
        assert_eq!(pick("serial:x"), None);
    }
}
